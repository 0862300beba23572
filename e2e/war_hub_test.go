package e2e

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
	"github.com/rulefleet/rulefleet/pkg/webhook/certs"
)

// opposeMembership is oppose for one SpokeCluster. undo tells whether it changed something.
func opposeMembership(t *testing.T, at *place, name string, undo func(sc *v1alpha1.SpokeCluster) bool) (end func()) {
	t.Helper()
	return oppose(t, at.Hub, &v1alpha1.SpokeClusterList{}, func(ctx context.Context, kind watch.EventType, sc *v1alpha1.SpokeCluster) error {
		if kind == watch.Deleted || !undo(sc) {
			return nil
		}
		return at.Hub.Client.Update(ctx, sc, client.FieldOwner(opponent))
	}, client.MatchingFields{"metadata.name": name})
}

// annotates sets an annotation where it is missing.
func annotates(key, value string) func(sc *v1alpha1.SpokeCluster) bool {
	return func(sc *v1alpha1.SpokeCluster) bool {
		if sc.Annotations[key] != "" {
			return false
		}
		metav1.SetMetaDataAnnotation(&sc.ObjectMeta, key, value)
		return true
	}
}

// warOverMembership is about the labels and the finalizer of a SpokeCluster.
func warOverMembership(t *testing.T, at *place, name string) {
	t.Helper()
	must(t, at.RegisterKubeconfig(t.Context(), name, []byte("none"), map[string]string{"env": "prod"}))
	labeled := func(ctx context.Context) error {
		sc := membership(name)
		if err := read(ctx, at.Hub, client.ObjectKeyFromObject(sc), sc); err != nil {
			return err
		}
		if sc.Labels["env"] != "prod" || len(sc.Finalizers) != 1 {
			return fmt.Errorf("it has %v, %v", sc.Labels, sc.Finalizers)
		}
		return nil
	}
	eventually(t, "the SpokeCluster is made", labeled)
	w := at.onHub("spokeclusters", name)
	end := opposeMembership(t, at, name, func(sc *v1alpha1.SpokeCluster) bool {
		has := sc.Labels["env"] != "" || len(sc.Finalizers) > 0
		sc.Labels, sc.Finalizers = nil, nil
		return has
	})
	w.rages(t)
	end()
	within(t, warEnds, "it is as its Secret", labeled)
}

// warOverAcknowledgement is about an acknowledgement that is kept in a repository.
func warOverAcknowledgement(t *testing.T, at *place, name string) {
	t.Helper()
	must(t, at.RegisterKubeconfig(t.Context(), name, []byte("none"), nil))
	w := at.onHub("spokeclusters", name)
	end := opposeMembership(t, at, name, annotates(v1alpha1.AcknowledgeDeletionsAnnotation, "true"))
	w.rages(t)
	end()
	within(t, warEnds, "the annotation is taken off", unannotated(at, name))
}

// warOverConfirmation is the same for the confirmation of an identity.
func warOverConfirmation(t *testing.T, at *place, name string) {
	t.Helper()
	expectSpoke(t, at.Fleet, name, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady, "")
	sc := membership(name)
	must(t, read(t.Context(), at.Hub, client.ObjectKeyFromObject(sc), sc))
	w := at.onHub("spokeclusters", name)
	end := opposeMembership(t, at, name, annotates(v1alpha1.AcceptIdentityAnnotation, sc.Status.Identity))
	expectSpoke(t, at.Fleet, name, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonContested,
		fmt.Sprintf("field manager %q sets annotation %s of SpokeCluster %s again", opponent, v1alpha1.AcceptIdentityAnnotation, name))
	w.rages(t)
	end()
	within(t, warEnds, "the spoke is ready again", func(ctx context.Context) error {
		return says(ctx, at.Fleet, membership(name), v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady, "")
	})
	must(t, unannotated(at, name)(t.Context()))
}

func unannotated(at *place, name string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		sc := membership(name)
		if err := read(ctx, at.Hub, client.ObjectKeyFromObject(sc), sc); err != nil {
			return err
		}
		if len(sc.Annotations) > 0 {
			return fmt.Errorf("it has %v", sc.Annotations)
		}
		return nil
	}
}

// opposeAlertRule is oppose for one generated AlertRule.
func opposeAlertRule(t *testing.T, at *place, name string, undo func(ctx context.Context, kind watch.EventType, ar *v1alpha1.AlertRule) error) (end func()) {
	t.Helper()
	return oppose(t, at.Hub, &v1alpha1.AlertRuleList{}, undo, client.InNamespace(fleet.GeneratedNamespace), client.MatchingFields{"metadata.name": name})
}

func warHubWrittenBack(t *testing.T, at *place, name string) {
	t.Helper()
	create(t, at.m, deployment(at.name, name))
	ar := expectGenerated(t, at.Fleet, at.name, at.name, name, 1)
	key := client.ObjectKeyFromObject(ar)
	expectReady(t, at.Fleet, key, metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
	template := ar.Labels[v1alpha1.TemplateLabel]
	w := at.onHub("alertrules", ar.Name)
	end := opposeAlertRule(t, at, ar.Name, func(ctx context.Context, kind watch.EventType, ar *v1alpha1.AlertRule) error {
		if kind == watch.Deleted || ar.Labels[v1alpha1.TemplateLabel] != template {
			return nil
		}
		ar.Labels[v1alpha1.TemplateLabel] = "other"
		return at.Hub.Client.Update(ctx, ar, client.FieldOwner(opponent))
	})
	w.contested(t, key, opponent, "AlertRule "+key.String(), "back after each write")
	w.rages(t)
	end()
	w.over(t, key)
	expectGenerated(t, at.Fleet, at.name, at.name, name, 1)
}

func warHubDeleted(t *testing.T, at *place, name string) {
	t.Helper()
	create(t, at.m, deployment(at.name, name))
	ar := expectGenerated(t, at.Fleet, at.name, at.name, name, 1)
	key := client.ObjectKeyFromObject(ar)
	expectReady(t, at.Fleet, key, metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
	w := at.onHub("alertrules", ar.Name)
	end := opposeAlertRule(t, at, ar.Name, func(ctx context.Context, kind watch.EventType, ar *v1alpha1.AlertRule) error {
		if kind == watch.Deleted {
			return nil
		}
		return at.Hub.Client.Delete(ctx, ar)
	})
	expectSpoke(t, at.Fleet, at.name, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonContested, "")
	w.rages(t)
	end()
	w.over(t, key)
	expectPushed(t, at.m, key, 1)
}

// warHubMadeAgain is about the AlertRule of a Deployment that is gone.
func warHubMadeAgain(t *testing.T, at *place, name string) {
	t.Helper()
	d := deployment(at.name, name)
	create(t, at.m, d)
	ar := expectGenerated(t, at.Fleet, at.name, at.name, name, 1)
	key := client.ObjectKeyFromObject(ar)
	expectReady(t, at.Fleet, key, metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
	w := at.onHub("alertrules", ar.Name)
	end := opposeAlertRule(t, at, ar.Name, func(ctx context.Context, kind watch.EventType, ar *v1alpha1.AlertRule) error {
		if kind != watch.Deleted {
			return nil
		}
		again := &v1alpha1.AlertRule{ObjectMeta: metav1.ObjectMeta{Namespace: ar.Namespace, Name: ar.Name, Labels: ar.Labels}, Spec: ar.Spec}
		return at.Hub.Client.Create(ctx, again, client.FieldOwner(opponent))
	})
	must(t, at.m.Client.Delete(t.Context(), d))
	w.contested(t, key, opponent, "creates AlertRule "+key.String(), "again after each deletion")
	w.rages(t)
	end()
	within(t, warEnds, "both are gone", func(ctx context.Context) error {
		if err := at.Hub.Client.Get(ctx, key, &v1alpha1.AlertRule{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the AlertRule is still there: %w", err)
		}
		return nonePushed(ctx, at.m, key)
	})
}

// TestWarOverTheWebhook has somebody write the caBundle of the webhook's configuration back, and
// take the label off the Secret with its certificates.
func TestWarOverTheWebhook(t *testing.T) {
	long(t)
	parallel(t)
	f, address := startWar(t), freeAddress(t)
	f.options.Webhook = address
	f.start(t)
	endsWell(t, f)
	at := f.place(t, healthyName)
	f.healthy = at
	at.register(t)
	at.settle(t)
	must(t, f.InstallWebhook(t.Context(), address))
	eventually(t, "the webhook is asked", asked(f.Hub))

	at.row("the webhook", rowOptions{}, func(r *fault) {
		config := &admissionregistrationv1.ValidatingWebhookConfigurationList{}
		must(r.t, f.Hub.Client.List(r.t.Context(), config))
		name := config.Items[0].Name
		r.inject(func() {}, func() {})
		wars := []*war{at.onHub("validatingwebhookconfigurations", name), at.onHub("secrets", certs.SecretName)}
		another := serveHook(r.t, "nobody", nil).config.CABundle
		end := oppose(r.t, f.Hub, config, func(ctx context.Context, kind watch.EventType, o *admissionregistrationv1.ValidatingWebhookConfiguration) error {
			changed := false
			for i := range o.Webhooks {
				changed = changed || !bytes.Equal(o.Webhooks[i].ClientConfig.CABundle, another)
				o.Webhooks[i].ClientConfig.CABundle = another
			}
			if kind == watch.Deleted || !changed {
				return nil
			}
			return f.Hub.Client.Update(ctx, o, client.FieldOwner(opponent))
		})
		endSecret := oppose(r.t, f.Hub, &corev1.SecretList{}, func(ctx context.Context, kind watch.EventType, o *corev1.Secret) error {
			if kind == watch.Deleted || o.Labels[v1alpha1.ManagedByLabel] == "" {
				return nil
			}
			o.Labels = map[string]string{"theirs": ""}
			return f.Hub.Client.Update(ctx, o, client.FieldOwner(opponent))
		}, client.InNamespace(fleet.Namespace), client.MatchingFields{"metadata.name": certs.SecretName})
		expectEvent(r.t, f.Hub, "ValidatingWebhookConfiguration", name, v1alpha1.ReasonContested, opponent)
		// Who takes a field off can't be seen in managedFields.
		expectEvent(r.t, f.Hub, "Secret", certs.SecretName, v1alpha1.ReasonContested, "an unknown client changes Secret")
		for _, w := range wars {
			w.rages(r.t)
		}
		end()
		endSecret()
		within(r.t, warEnds, "the webhook is asked again", asked(f.Hub))
		r.over()
	})
}
