package hub

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/live"
)

// reader is an API server that answers every read by a function, which gets what is
// read as Kind namespace/name.
func reader(answer func(what string, o client.Object) error) client.Reader {
	return fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
			return answer(kindName(o)+" "+key.String(), o)
		},
	}).Build()
}

// kindName returns the name of an object's kind, with its group.
func kindName(o client.Object) string {
	if kind, ok := kindOf(o); ok {
		return kind.kind + "." + v1alpha1.Group
	}
	return o.GetObjectKind().GroupVersionKind().GroupKind().String()
}

// guarded returns a Guard of an API server, whose clock stands still.
func guarded(r client.Reader) Guard {
	c := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	return Guard{Live: live.New(r, c), Kinds: NewKinds(r, nil, RecordKeys{}, c, nil)}
}

func notFound(what string) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: what}, "x")
}

func TestGuard(t *testing.T) {
	const (
		object   = "AlertRule.rulefleet.io ns/name"
		crd      = "CustomResourceDefinition.apiextensions.k8s.io /alertrules.rulefleet.io"
		template = "AlertRuleTemplate.rulefleet.io ns/name"
		crd2     = "CustomResourceDefinition.apiextensions.k8s.io /alertruletemplates.rulefleet.io"
	)
	var (
		made        = time.Unix(1000, 0)
		there       = func(o client.Object) error { o.SetCreationTimestamp(metav1.NewTime(made)); return nil }
		absent      = func(client.Object) error { return notFound("x") }
		fails       = func(client.Object) error { return errors.New("no answer") }
		refuses     = func(client.Object) error { return apierrors.NewForbidden(schema.GroupResource{}, "x", nil) }
		terminating = func(o client.Object) error {
			o.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)})
			return nil
		}
	)
	for name, tc := range map[string]struct {
		kind        Kind
		object, crd func(client.Object) error
		gone, err   bool
		reads       []string
	}{
		"deleted":                          {kind: AlertRules, object: absent, crd: there, gone: true, reads: []string{object, crd}},
		"a template, deleted":              {kind: AlertRuleTemplates, object: absent, crd: there, gone: true, reads: []string{template, crd2}},
		"still there, the cache is behind": {kind: AlertRules, object: there, crd: there, reads: []string{object}},
		"being deleted":                    {kind: AlertRules, object: terminating, crd: there, reads: []string{object}},
		"can't be read":                    {kind: AlertRules, object: fails, crd: there, err: true, reads: []string{object}},
		"may not be read":                  {kind: AlertRules, object: refuses, crd: there, err: true, reads: []string{object}},
		"gone with its definition":         {kind: AlertRules, object: absent, crd: absent, reads: []string{object, crd}},
		"going with its definition":        {kind: AlertRules, object: absent, crd: terminating, reads: []string{object, crd}},
		"the definition can't be read":     {kind: AlertRules, object: absent, crd: fails, err: true, reads: []string{object, crd}},
		"the definition may not be read":   {kind: AlertRules, object: absent, crd: refuses, err: true, reads: []string{object, crd}},
	} {
		t.Run(name, func(t *testing.T) {
			var reads []string
			guard := guarded(reader(func(what string, o client.Object) error {
				if reads = append(reads, what); what == crd || what == crd2 {
					return tc.crd(o)
				}
				return tc.object(o)
			}))
			gone, defined, err := guard.Gone(t.Context(), guard.Live, tc.kind, client.ObjectKey{Namespace: "ns", Name: "name"})
			if gone != tc.gone || (err != nil) != tc.err {
				t.Errorf("got %v, %v, want %v, %v", gone, err, tc.gone, tc.err)
			}
			if gone && !defined.Since.Equal(made) {
				t.Errorf("the definition was made at %v, want %v", defined.Since, made)
			}
			if !slices.Equal(reads, tc.reads) {
				t.Errorf("read %q, want %q", reads, tc.reads)
			}
		})
	}
}

// Between the two reads, the definition and all objects are deleted.
func TestGuardBetweenTheReads(t *testing.T) {
	deleted := false
	clock := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	server := reader(func(_ string, o client.Object) error {
		_, isCRD := o.(*metav1.PartialObjectMetadata)
		isCRD = isCRD && o.GetObjectKind().GroupVersionKind() == crdKind
		switch {
		case !deleted:
			deleted = true
			return nil
		case isCRD:
			o.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)})
			return nil
		}
		return notFound("alertrules")
	})
	guard := Guard{Live: live.New(server, clock), Kinds: NewKinds(server, nil, RecordKeys{}, clock, nil)}
	for range 2 {
		clock.Step(live.MaxAge)
		if gone, _, err := guard.Gone(t.Context(), guard.Live, AlertRules, client.ObjectKey{Name: "name"}); gone || err != nil {
			t.Errorf("got %v, %v", gone, err)
		}
	}
}

// The definitions have the names that the API server knows them by.
func TestGuardKinds(t *testing.T) {
	for _, k := range []Kind{AlertRules, AlertRuleTemplates} {
		if k.crd == "" || k.kind == "" || k.crd[len(k.crd)-len(v1alpha1.Group):] != v1alpha1.Group {
			t.Errorf("got %+v", k)
		}
	}
}
