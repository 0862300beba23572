package continuity

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A cluster can't make much of it be remembered by long texts, and a version that is too long is not sent back.
func TestMomentsAreBounded(t *testing.T) {
	long := strings.Repeat("1", 1<<20)
	for name, tc := range map[string]struct {
		o    metav1.ObjectMeta
		kept bool
	}{
		"usual":            {metav1.ObjectMeta{Namespace: "shop", Name: strings.Repeat("a", 253), UID: "u", ResourceVersion: "18446744073709551615"}, true},
		"a long version":   {metav1.ObjectMeta{Name: "a", ResourceVersion: long}, false},
		"a long name":      {metav1.ObjectMeta{Name: long, ResourceVersion: "7"}, false},
		"a long namespace": {metav1.ObjectMeta{Namespace: long, Name: "a", ResourceVersion: "7"}, false},
		"a long UID":       {metav1.ObjectMeta{Name: "a", UID: types.UID(long), ResourceVersion: "7"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := momentOf(&corev1.ConfigMap{ObjectMeta: tc.o})
			if kept := m != (moment{}); kept != tc.kept {
				t.Errorf("it is kept: %v", kept)
			}
		})
	}
	h := &history{}
	h.raise("7")
	h.raise(long)
	if h.highest != "7" {
		t.Errorf("the highest version has %d bytes", len(h.highest))
	}
	s := newServer()
	if _, err := NewGuard(nil, nil).ListerWatcher(s, &corev1.ConfigMap{}).WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: long}); !apierrors.IsResourceExpired(err) {
		t.Errorf("the watch: %.100v", err)
	}
	if asked := s.requests(); len(asked) > 0 {
		t.Errorf("it asks for %v", asked)
	}
}
