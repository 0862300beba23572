package continuity

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// An event whose time was trimmed, because it waited for a long list, is compared without the time.
func TestContinues(t *testing.T) {
	event := func(kind watch.EventType, version string, written int64) moment {
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u", ResourceVersion: version}}
		if written != 0 {
			earlier, at := metav1.Unix(1, 0), metav1.Unix(written, 0)
			o.ManagedFields = []metav1.ManagedFieldsEntry{{Time: &at}, {Time: &earlier}, {}}
		}
		return eventOf(watch.Event{Type: kind, Object: o})
	}
	expected := event(watch.Modified, "7", 50)
	for name, tc := range map[string]struct {
		is        moment
		continues bool
	}{
		"the same":               {event(watch.Modified, "7", 50), true},
		"without a time":         {event(watch.Added, "7", 0), true},
		"written later":          {event(watch.Modified, "7", 51), false},
		"of another version":     {event(watch.Modified, "8", 50), false},
		"deleted at its version": {event(watch.Deleted, "7", 50), false},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.is.continues(expected) != tc.continues || expected.continues(tc.is) != tc.continues {
				t.Errorf("%+v and %+v", tc.is, expected)
			}
		})
	}
}
