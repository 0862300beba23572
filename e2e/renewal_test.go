package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/plugin/exit"
	"github.com/rulefleet/rulefleet/pkg/spoke/kubeconfig"
	"github.com/rulefleet/rulefleet/pkg/testing/controlplane"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// newToken is an age at which the renewal of a token is not due yet.
const newToken = 9 * time.Second

// renewals is a fleet whose only spoke is registered with the plugin, and whose tokens are renewed after 12 s: they are
// valid for 10 minutes, the shortest life that an API server grants.
type renewals struct {
	*joinTest

	manager *fleet.Manager
	rule    *v1alpha1.AlertRule
	changes int
	// tokens are those that were in use, and cfg are their configurations.
	tokens []string
	cfgs   []*rest.Config
}

// start starts a manager. If it elects a leader, it only works when it leads.
func (r *renewals) start(t *testing.T, elects bool) *fleet.Manager {
	t.Helper()
	return startManagerWith(t, r.Fleet, fleet.ManagerOptions{Dir: t.TempDir(), LeaderElect: elects, Args: []string{"--renewal-scale=0.03"}})
}

// TestTokensAreRenewed has the manager renew a token three times, with a restart and a fail-over between, while it works.
// Then it may not, and then the tokens are revoked.
func TestTokensAreRenewed(t *testing.T) {
	long(t)
	parallel(t)
	f := start(t, fleet.Options{Spokes: []string{spokeA}, Audit: true})
	spoke := f.Spoke(spokeA)
	withoutAccount(t, spoke)
	r := &renewals{joinTest: &joinTest{Fleet: f, k: pluginFor(t, f.Hub, spoke)}}
	r.manager = r.start(t, false)
	namespace(t, "shop", spoke)
	r.k.expect(t, exit.OK, "the hub manages the rules", r.join("--duration", "10m", "-l", "env=prod")...)
	r.rule = alertRule("rule", "shop", onNamed(spokeA))
	must(t, f.Hub.Client.Create(t.Context(), r.rule))
	expectPushed(t, spoke, client.ObjectKeyFromObject(r.rule), 1)
	r.use(t)

	r.renewed(t)
	must(t, r.manager.Kill())
	r.manager = r.start(t, true)
	r.worksAgain(t, "the first change after the restart")
	r.renewed(t)
	standby := r.start(t, true)
	must(t, r.manager.Kill())
	r.manager = standby
	r.worksAgain(t, "the first change after the fail-over")
	r.renewed(t)
	if !t.Run("former tokens work", r.formerWork) {
		return
	}
	t.Run("of somebody else", r.unmanaged)
	t.Run("without the permission", r.denied)
	t.Run("switched off", r.switchedOff)
	t.Run("revoked", r.revoked)
}

// worksAgain waits until the manager carries out a change.
func (r *renewals) worksAgain(t *testing.T, what string) {
	t.Helper()
	r.change(t)
	expectRule(t, r.Spoke(spokeA), client.ObjectKeyFromObject(r.rule), what, r.isCurrent)
	r.use(t) // the former token may have been renewed meanwhile
}

// use records the token in use.
func (r *renewals) use(t *testing.T) {
	t.Helper()
	_, cfg := registered(t, r.Hub)
	r.tokens, r.cfgs = append(r.tokens, cfg.BearerToken), append(r.cfgs, cfg)
}

// condition waits for a state of the credential of the spoke.
func (r *renewals) condition(t *testing.T, status metav1.ConditionStatus, reason, says string) {
	t.Helper()
	eventually(t, "CredentialValid has the reason "+reason, func(ctx context.Context) error {
		sc := &v1alpha1.SpokeCluster{}
		if err := r.Hub.Client.Get(ctx, client.ObjectKey{Name: spokeA}, sc); err != nil {
			return err
		}
		c := meta.FindStatusCondition(sc.Status.Conditions, v1alpha1.ConditionCredentialValid)
		if c == nil || c.Status != status || c.Reason != reason || !strings.Contains(c.Message, says) {
			return fmt.Errorf("it is %+v", c)
		}
		return nil
	})
}

// change changes the rule.
func (r *renewals) change(t *testing.T) {
	t.Helper()
	r.changes++
	update(t, r.Hub, r.rule, func(ar *v1alpha1.AlertRule) {
		ar.Spec.Labels = map[string]v1alpha1.LabelText{"step": v1alpha1.LabelText(strconv.Itoa(r.changes))}
	})
}

// isCurrent reports whether a rule in the spoke has the last change.
func (r *renewals) isCurrent(rule *monitoringv1.Rule) bool {
	return rule.Labels["step"] == strconv.Itoa(r.changes)
}

// noFailedWrites checks that no write to the spoke, and none of its Secret on the hub, has failed since the audit logs were
// reset: neither with a former token, nor after a restart or a fail-over.
func (r *renewals) noFailedWrites(t *testing.T) {
	t.Helper()
	for _, m := range []*fleet.Member{r.Hub, r.Spoke(spokeA)} {
		failed, err := m.Audit().Events(func(e controlplane.AuditEvent) bool {
			return wroteHere(e) && e.ResponseStatus.Code >= 400 && (m != r.Hub || e.ObjectRef.Resource == "secrets")
		})
		must(t, err)
		for _, e := range failed {
			t.Errorf("%s: %d: %s %s", m.Name(), e.ResponseStatus.Code, e.Verb, e.RequestURI)
		}
	}
}

// renewed waits until the token is renewed, and changes a rule meanwhile. Nothing is listed or watched again, and no
// request fails.
func (r *renewals) renewed(t *testing.T) {
	t.Helper()
	spoke := r.Spoke(spokeA)
	// The audit log must not begin after a token was requested and before it is in the Secret.
	eventually(t, "the token is new", func(context.Context) error {
		_, cfg := registered(t, r.Hub)
		if age := time.Since(kubeconfig.CredentialOf(cfg).Issued); age > newToken {
			return fmt.Errorf("it was issued %v ago", age)
		}
		return nil
	})
	r.use(t)
	former := r.tokens[len(r.tokens)-1]
	before, was := registered(t, r.Hub)
	r.noFailedWrites(t)
	must(t, spoke.Audit().Reset())
	eventually(t, "the token is renewed and in use", func(ctx context.Context) error {
		r.change(t)
		_, cfg := registered(t, r.Hub)
		if cfg.BearerToken == former {
			return errors.New("the Secret has the former token")
		}
		var sc v1alpha1.SpokeCluster
		if err := r.Hub.Client.Get(ctx, client.ObjectKey{Name: spokeA}, &sc); err != nil {
			return err
		}
		if c := sc.Status.Credential; c == nil || !c.ExpirationTime.Time.Equal(kubeconfig.CredentialOf(cfg).Expires) {
			return fmt.Errorf("the status has %+v", c)
		}
		return nil
	})
	r.condition(t, metav1.ConditionTrue, v1alpha1.ReasonRenewed, "it renews it again before")
	after, is := registered(t, r.Hub)
	if !kubeconfig.SameButToken(before.Data[v1alpha1.KubeconfigKey], after.Data[v1alpha1.KubeconfigKey]) || was.Host != is.Host {
		t.Error("the kubeconfig differs in more than the token")
	}
	expectRule(t, spoke, client.ObjectKeyFromObject(r.rule), "the last change", r.isCurrent)
	r.use(t)
	r.noFailedWrites(t)

	requests, err := spoke.Audit().Events(func(e controlplane.AuditEvent) bool {
		return e.User.Username == "system:serviceaccount:"+fleet.Namespace+":"+fleet.SpokeUser
	})
	must(t, err)
	asked := 0
	for _, e := range requests {
		watched := slices.Contains([]string{"deployments", "namespaces", "prometheusrules"}, e.ObjectRef.Resource)
		if again := e.Verb == "list" && !regexp.MustCompile(`limit=1(&|$)`).MatchString(e.RequestURI); watched && (again || e.Verb == "watch") {
			t.Errorf("%s %s", e.Verb, e.RequestURI)
		}
		if e.ResponseStatus.Code >= 400 && e.Verb != "get" && e.Verb != "list" { // there is no prometheus-operator to read
			t.Errorf("%d: %s %s", e.ResponseStatus.Code, e.Verb, e.RequestURI)
		}
		if e.ObjectRef.Resource == "serviceaccounts" {
			asked++
		}
	}
	if asked < 1 || asked > 2 { // the next renewal may have come already
		t.Errorf("%d tokens were requested", asked)
	}
	for _, token := range r.tokens {
		if log := r.manager.Log(); strings.Contains(log, token) {
			t.Error("the log has a token")
		}
	}
}

func (r *renewals) formerWork(t *testing.T) {
	if len(slices.Compact(slices.Clone(r.tokens))) < 4 {
		t.Fatal("fewer than four tokens")
	}
	for i, cfg := range r.cfgs {
		c, err := client.New(cfg, client.Options{Scheme: fleet.Scheme})
		must(t, err)
		if err := c.List(t.Context(), &corev1.NamespaceList{}); err != nil {
			t.Errorf("token %d: %v", i, err)
		}
	}
}

// requested returns how many tokens the account has requested since the audit log was reset.
func (r *renewals) requested() (int, error) {
	events, err := r.Spoke(spokeA).Audit().Events(func(e controlplane.AuditEvent) bool {
		return e.ObjectRef.Resource == "serviceaccounts" && strings.HasPrefix(e.User.Username, "system:serviceaccount:")
	})
	return len(events), err
}

// unmanaged has another client take the kubeconfig over. The manager leaves it alone, and so does join without force.
func (r *renewals) unmanaged(t *testing.T) {
	s, _ := registered(t, r.Hub)
	takeover := applycorev1.Secret(s.Name, s.Namespace).WithData(map[string][]byte{v1alpha1.KubeconfigKey: s.Data[v1alpha1.KubeconfigKey]})
	must(t, r.Hub.Client.Apply(t.Context(), takeover, client.FieldOwner("external-secrets"), client.ForceOwnership))
	r.condition(t, metav1.ConditionTrue, v1alpha1.ReasonUnmanaged, `field manager "external-secrets"`)
	s, _ = registered(t, r.Hub) // it may have been renewed just before
	must(t, r.Spoke(spokeA).Audit().Reset())
	throughout(t, 15*time.Second, "the Secret stays as it is, and no token is requested", func(context.Context) error {
		now, _ := registered(t, r.Hub)
		if now.ResourceVersion != s.ResourceVersion || !bytes.Equal(now.Data[v1alpha1.KubeconfigKey], s.Data[v1alpha1.KubeconfigKey]) {
			return fmt.Errorf("it was changed: %+v", now.ManagedFields)
		}
		if n, err := r.requested(); err != nil || n > 0 {
			return fmt.Errorf("%d requests: %w", n, err)
		}
		return nil
	})
	r.k.expect(t, exit.Failed, "--force-conflicts", r.join()...)
	r.k.expect(t, exit.OK, "", r.join("--force-conflicts")...)
	r.condition(t, metav1.ConditionTrue, v1alpha1.ReasonRenewed, "")
}

// denied removes the permission to renew.
func (r *renewals) denied(t *testing.T) {
	must(t, r.Spoke(spokeA).Client.Delete(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: "rulefleet-spoke-renew"}}))
	r.condition(t, metav1.ConditionTrue, v1alpha1.ReasonExpiring, "the account in the spoke lacks the permission to create serviceaccounts/token")
	r.k.expect(t, exit.OK, "", r.join()...)
	r.condition(t, metav1.ConditionTrue, v1alpha1.ReasonRenewed, "")
}

// switchedOff joins without renewal.
func (r *renewals) switchedOff(t *testing.T) {
	r.k.expect(t, exit.OK, "", r.join("--no-renew")...)
	r.condition(t, metav1.ConditionTrue, v1alpha1.ReasonCredentialValid, "")
	s, _ := registered(t, r.Hub)
	if s.Annotations[v1alpha1.RenewTokenAnnotation] != "" {
		t.Errorf("the Secret has the annotations %v", s.Annotations)
	}
	if err := r.Spoke(spokeA).Client.Get(t.Context(), client.ObjectKey{Namespace: fleet.Namespace, Name: "rulefleet-spoke-renew"}, &rbacv1.Role{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Role: %v", err)
	}
	must(t, r.Spoke(spokeA).Audit().Reset())
	throughout(t, 15*time.Second, "no token is requested", func(context.Context) error {
		if n, err := r.requested(); err != nil || n > 0 {
			return fmt.Errorf("%d requests: %w", n, err)
		}
		return nil
	})
	r.k.expect(t, exit.OK, "", r.join()...)
	r.condition(t, metav1.ConditionTrue, v1alpha1.ReasonRenewed, "")
}

// revoked deletes the Secret that all tokens are bound to.
func (r *renewals) revoked(t *testing.T) {
	r.use(t)
	must(t, r.Spoke(spokeA).Client.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: "rulefleet-spoke-tokens"}}))
	for i, cfg := range r.cfgs {
		c, err := client.New(cfg, client.Options{Scheme: fleet.Scheme})
		must(t, err)
		eventually(t, fmt.Sprintf("token %d is dead", i), func(ctx context.Context) error {
			if err := c.List(ctx, &corev1.NamespaceList{}); !apierrors.IsUnauthorized(err) {
				return fmt.Errorf("the answer is %w", err)
			}
			return nil
		})
	}
	r.condition(t, metav1.ConditionFalse, v1alpha1.ReasonAuthFailed, "it was revoked")
	expectCondition(t, r.Fleet, membership(spokeA), v1alpha1.ConditionConnected, metav1.ConditionFalse, v1alpha1.ReasonAuthFailed)
	r.k.expect(t, exit.OK, "", r.join()...)
	r.condition(t, metav1.ConditionTrue, v1alpha1.ReasonRenewed, "")
}
