package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	urlpath "path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/plugin/exit"
	"github.com/rulefleet/rulefleet/pkg/plugin/why"
	"github.com/rulefleet/rulefleet/pkg/testing/controlplane"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
	"github.com/rulefleet/rulefleet/pkg/testing/pipeline"
)

// askWhy returns what kubectl rulefleet why says about a rule in a spoke: all steps, and the first that is not ok, or nil.
func askWhy(t *testing.T, hub *fleet.Member, key client.ObjectKey, spoke string) (steps []why.Link, broken *why.Link, err error) {
	t.Helper()
	code, out, failure := pluginFor(t, hub).run(t, "why", "alertrule/"+key.Name, "-n", key.Namespace, "--cluster", spoke, "-o", "json")
	var answer struct {
		Links []why.Link `json:"links"`
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		return nil, nil, fmt.Errorf("exit code %d, %s: %w", code, failure, err)
	}
	broken = why.Broken(answer.Links)
	if want := map[bool]int{true: exit.OK, false: exit.NotReady}[broken == nil]; code != want {
		t.Errorf("the exit code is %d, want %d", code, want)
	}
	return answer.Links, broken, nil
}

// explained waits until why names a step of a rule in the first spoke as the first that is not ok, or else as unknown, with
// all parts in what it says about it, and with what fixes it.
func (e *evaluating) explained(t *testing.T, key client.ObjectKey, state why.State, step string, parts ...string) (found why.Link) {
	t.Helper()
	within(t, linkLimit, fmt.Sprintf("why says that the step %q of %s is %s", step, key.Name, state), func(context.Context) error {
		steps, link, err := askWhy(t, e.Hub, key, spokeA)
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(steps, func(l why.Link) bool { return l.Name == step }); link == nil && i >= 0 {
			link = &steps[i]
		}
		if link == nil || link.Name != step || link.State != state || link.Fix == "" {
			return fmt.Errorf("it says %+v", link)
		}
		for _, part := range parts {
			if !strings.Contains(link.Evidence+"\n"+link.Fix, part) {
				return fmt.Errorf("it does not say %q: %+v", part, link)
			}
		}
		found = *link
		return nil
	})
	return found
}

// runnable matches the commands with which why fixes a step.
var runnable = regexp.MustCompile(`kubectl (rulefleet join \S+ --spoke-context CONTEXT( --force-conflicts)?` +
	`|(--context CONTEXT )?(-n \S+ )?(annotate|label) (--overwrite )?\S+ \S+( [^\s=]+=[^\s)]+)+` +
	`|(-n \S+ )?patch \S+ \S+ --type[= ]merge -p '[^']*'` +
	`|--context CONTEXT apply (--server-side )?-f \S+\.yaml` +
	`|--context CONTEXT create namespace \S+` +
	`|-n \S+ delete secret \S+` +
	`|(--context CONTEXT )?-n \S+ edit (resourcequotas|alertrule \S+))`)

// mend runs a command that why prints to fix a step, as a person does who copies it: the first one that has the words.
func mend(t *testing.T, hub, spoke *fleet.Member, link why.Link, words string) {
	t.Helper()
	mendBy(t, hub, spoke, link, words, "")
}

// mendBy is mend of a command that opens an editor: sed, with a script.
func mendBy(t *testing.T, hub, spoke *fleet.Member, link why.Link, words, script string) {
	t.Helper()
	found := runnable.FindAllString(link.Fix+"\n"+link.Evidence, -1)
	i := slices.IndexFunc(found, func(command string) bool { return strings.Contains(command, words) })
	if i < 0 {
		t.Fatalf("why prints the commands %q, and none with %q: %+v", found, words, link)
	}
	t.Logf("running %s", found[i])
	args, patch, _ := strings.Cut(strings.TrimPrefix(found[i], "kubectl "), " '")
	in := hub
	if rest, ok := strings.CutPrefix(args, "--context CONTEXT "); ok {
		in, args = spoke, rest
	}
	if args, ok := strings.CutPrefix(args, "rulefleet "); ok {
		pluginFor(t, hub, spoke).expect(t, exit.OK, "", strings.Fields(strings.ReplaceAll(args, "CONTEXT", spoke.Name()))...)
		return
	}
	list := strings.Fields(args)
	for i, arg := range list {
		if strings.HasSuffix(arg, ".yaml") {
			list[i] = manifestFile(t, arg)
		}
	}
	if patch != "" {
		list = append(list, strings.TrimSuffix(patch, "'"))
	}
	cmd := in.Kubectl(t.Context(), list...)
	cmd.Env = append(os.Environ(), fmt.Sprintf("KUBE_EDITOR=sed -i '%s'", script))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%q: %v: %s", found[i], err, out)
	}
}

// manifestFile returns the file that a person gets who downloads a manifest that why names.
func manifestFile(t *testing.T, name string) string {
	t.Helper()
	bin, err := controlplane.DefaultBinDir()
	must(t, err)
	for _, file := range []string{filepath.Join("..", "charts", "rulefleet", "files", urlpath.Base(name)), filepath.Join(bin, "crds", urlpath.Base(name))} {
		if _, err := os.Stat(file); err == nil {
			return file
		}
	}
	t.Fatalf("there is no file for %s", name)
	return ""
}

// TestWhyMends breaks a spoke that the plugin has registered, and runs the command that why prints. Then the rule works
// again.
func TestWhyMends(t *testing.T) {
	long(t)
	parallel(t)
	e := &evaluating{t: t, Fleet: start(t, fleet.Options{Spokes: []string{spokeA}, OpenAPI: true, ControllerManager: true}), dir: t.TempDir()}
	spoke := e.Spoke(spokeA)
	withoutAccount(t, spoke)
	var err error
	e.first, err = pipeline.Start(t.Context(), spoke, pipeline.Options{Prometheus: monitoringv1.PrometheusSpec{
		RuleSelector: &metav1.LabelSelector{}, RuleNamespaceSelector: &metav1.LabelSelector{},
	}})
	must(t, err)
	t.Cleanup(func() { must(t, e.first.Stop()) })
	begun := time.Now()
	e.run()
	pluginFor(t, e.Hub, spoke).expect(t, exit.OK, "", "join", spokeA, "--spoke-context", spokeA)
	key := create(t, e.Hub, written("mends", "test_mends > 10", onNamed(spokeA)))
	e.first.SetMetric("test_mends", nil, 1)
	e.works(t, key)
	if took := time.Since(begun); took > 90*time.Second {
		t.Errorf("a Prometheus evaluates the first rule %v after the start of the manager", took)
	}

	gone := func(objects ...client.Object) func(*testing.T) {
		return func(t *testing.T) {
			t.Helper()
			for _, o := range objects {
				must(t, client.IgnoreNotFound(e.Hub.Client.Delete(t.Context(), o)))
				within(t, linkLimit, o.GetName()+" is gone", func(ctx context.Context) error {
					if err := e.Hub.Client.Get(ctx, client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
						return fmt.Errorf("it is there: %w", err)
					}
					return nil
				})
			}
		}
	}
	deleted := func(m *fleet.Member, o client.Object, namespace, name string) func(*testing.T) {
		o.SetNamespace(namespace)
		o.SetName(name)
		return func(t *testing.T) {
			t.Helper()
			must(t, m.Client.Delete(t.Context(), o))
		}
	}
	secret := func(change func(*corev1.Secret)) func(*testing.T) {
		return func(t *testing.T) {
			t.Helper()
			update(t, e.Hub, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: spokeA}}, change)
		}
	}
	kubeconfig := func(content []byte) func(*testing.T) {
		return secret(func(s *corev1.Secret) { s.Data[v1alpha1.KubeconfigKey] = content })
	}
	// onlyWith replaces the kubeconfig while the manager is down, so that it has no former one to use.
	onlyWith := func(spoil func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)) func(*testing.T) {
		return func(t *testing.T) {
			t.Helper()
			must(t, e.manager.Stop())
			present, _ := registered(t, e.Hub)
			kubeconfig(spoiled(t, present.Data[v1alpha1.KubeconfigKey], spoil))(t)
			e.run()
		}
	}
	for _, tc := range []struct {
		name  string
		fault func(t *testing.T)
		state why.State
		step  string
		says  string
		runs  string // the words of the command, if there are several
	}{
		{"the Secret is gone", deleted(e.Hub, &corev1.Secret{}, fleet.Namespace, spokeA), why.NotOK, "registration", v1alpha1.ReasonKubeconfigMissing, ""},
		{"its label is gone", secret(func(s *corev1.Secret) { delete(s.Labels, v1alpha1.RegistrationLabel) }), why.NotOK, "registration", "does not have the label", ""},
		{"its kubeconfig is gone", secret(func(s *corev1.Secret) { delete(s.Data, v1alpha1.KubeconfigKey) }), why.NotOK, "registration", "has no key kubeconfig", ""},
		{"the SpokeCluster is gone", gone(membership(spokeA)), why.NotOK, "registration", "does not have the label", ""},
		{"nothing is left of it on the hub", gone(membership(spokeA), registration(spokeA)), why.NotOK, "registration", "does not exist", ""},
		{"suspended", func(t *testing.T) {
			t.Helper()
			update(t, e.Hub, membership(spokeA), func(sc *v1alpha1.SpokeCluster) { sc.Spec.Suspend = new(true) })
		}, why.NotOK, "spoke", "spec.suspend", ""},
		{"revoked tokens", deleted(spoke, &corev1.Secret{}, fleet.Namespace, "rulefleet-spoke-tokens"), why.NotOK, "connection", v1alpha1.ReasonAuthFailed, ""},
		{"the account is gone", deleted(spoke, &corev1.ServiceAccount{}, fleet.Namespace, fleet.SpokeUser), why.NotOK, "connection", v1alpha1.ReasonAuthFailed, ""},
		{"no permissions", deleted(spoke, &rbacv1.ClusterRoleBinding{}, "", fleet.SpokeUser), why.NotOK, "connection", v1alpha1.ReasonForbidden, ""},
		{"a permission less", func(t *testing.T) {
			t.Helper()
			update(t, spoke, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: fleet.SpokeUser}}, func(role *rbacv1.ClusterRole) {
				for i := range role.Rules {
					role.Rules[i].Verbs = slices.DeleteFunc(role.Rules[i].Verbs, func(verb string) bool { return verb == "watch" })
				}
			})
		}, why.NotOK, "connection", v1alpha1.ReasonForbidden, "apply"},
		{"garbage in place of its kubeconfig", kubeconfig([]byte("{{")), why.OK, "connection", v1alpha1.ReasonKubeconfigNotUsed, ""},
		{"the kubeconfig of another cluster", kubeconfig(e.Hub.Kubeconfig()), why.NotOK, "connection", v1alpha1.ReasonIdentityChanged, "join"},
		{"a kubeconfig that is refused", onlyWith(func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.TokenFile, u.Token = "/token", "" }),
			why.NotOK, "connection", v1alpha1.ReasonInvalidKubeconfig, ""},
		{"an address at which nothing answers", onlyWith(func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.Server = "https://127.0.0.1:1" }),
			why.NotOK, "connection", v1alpha1.ReasonUnreachable, ""},
		{"no queries", deleted(spoke, &rbacv1.ClusterRole{}, "", fleet.EvaluateGrant), why.Unknown, "evaluated", v1alpha1.ReasonNotGranted, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.fault(t)
			mend(t, e.Hub, spoke, e.explained(t, key, tc.state, tc.step, tc.says), tc.runs)
			e.works(t, key)
		})
	}
}

// works waits until a rule is evaluated in the first spoke, and why finds no fault.
func (e *evaluating) works(t *testing.T, key client.ObjectKey) {
	t.Helper()
	e.evaluates(t, key, spokeA)
	within(t, linkLimit, "why finds no fault of "+key.Name, func(context.Context) error {
		steps, broken, err := askWhy(t, e.Hub, key, spokeA)
		if err != nil {
			return err
		}
		if broken != nil || slices.ContainsFunc(steps, func(l why.Link) bool { return l.State != why.OK || l.Fix != "" }) {
			return fmt.Errorf("it says %+v", steps)
		}
		return nil
	})
}

// stepsOf has the steps that can have a reason of a SpokeCluster's condition Ready.
var stepsOf = map[string][]string{
	v1alpha1.ReasonUnreachable:     {"connection"},
	v1alpha1.ReasonThrottled:       {"connection"},
	v1alpha1.ReasonAuthFailed:      {"connection"},
	v1alpha1.ReasonIdentityChanged: {"connection"},
	v1alpha1.ReasonCRDMissing:      {"kinds and permissions"},
	v1alpha1.ReasonForbidden:       {"connection", "kinds and permissions"},
}

// explained asks the plugin why rules do not work in the spoke. It has to name the step that the fault breaks, and the
// reason that is shown.
func (r *fault) explained(status metav1.ConditionStatus, reason string) {
	r.t.Helper()
	within(r.t, shownWithin, "why explains "+reason, func(ctx context.Context) error {
		if status == metav1.ConditionTrue {
			key, of := r.failing(ctx)
			if of == "" {
				return fmt.Errorf("no AlertRule fails in %s", r.name)
			}
			return r.says(key, r.name, of, "written")
		}
		return r.says(r.untouched(), r.name, reason, stepsOf[reason]...)
	})
}

// repairs has a part of what why says about each reason: what has to be repaired, and where, or the command that does it.
var repairs = map[string]string{
	v1alpha1.ReasonUnreachable:       "check the network, the address in the kubeconfig and the API server of the spoke",
	v1alpha1.ReasonThrottled:         "give Rulefleet's account its own FlowSchema in the spoke, or find out what overloads the API server",
	v1alpha1.ReasonTooLarge:          "find out what fills the cluster, or which server answers at the address in the kubeconfig",
	v1alpha1.ReasonAuthFailed:        "kubectl rulefleet join",
	v1alpha1.ReasonIdentityChanged:   "restore the former kubeconfig",
	v1alpha1.ReasonDuplicateCluster:  "delete secret",
	v1alpha1.ReasonInvalidKubeconfig: "Change that field.",
	v1alpha1.ReasonCRDMissing:        "kubectl --context CONTEXT apply",
	v1alpha1.ReasonForbidden:         "kubectl rulefleet join",
	v1alpha1.ReasonNamespaceMissing:  "create namespace",
	v1alpha1.ReasonQuotaExceeded:     "edit resourcequotas",
	v1alpha1.ReasonRejected:          "change the webhook or policy in the spoke",
	v1alpha1.ReasonError:             "If an admission webhook of the spoke can't be called, repair it",
}

// mend runs the command that why has printed last, as mendBy does. The fault is over when the caller says so.
func (r *fault) mend(script string) {
	r.t.Helper()
	mendBy(r.t, r.Hub, r.m, r.broken, "", script)
}

// untouched is an AlertRule that no fault changes.
func (at *place) untouched() client.ObjectKey {
	return client.ObjectKey{Namespace: fleet.Namespace, Name: at.name + "-rule-1"}
}

// says returns an error unless one of the steps is the first that is not ok, for a reason, with what fixes it. mend can run
// the command.
func (r *fault) says(key client.ObjectKey, spoke, reason string, steps ...string) error {
	r.t.Helper()
	_, broken, err := askWhy(r.t, r.Hub, key, spoke)
	if err != nil {
		return err
	}
	repair := repairs[reason]
	if broken == nil || !slices.Contains(steps, broken.Name) || !strings.Contains(broken.Evidence, reason) || repair == "" || !strings.Contains(broken.Fix, repair) {
		return fmt.Errorf("why says %+v, want one of the steps %q, and the fix %q", broken, steps, repair)
	}
	r.t.Logf("%s: why says: %s", r.title, broken.Fix)
	r.broken = *broken
	return nil
}

// step asks the plugin about a rule in the spoke, in which nothing is broken. It waits until a step has a state, with words
// in what is said about it.
func (r *fault) step(key client.ObjectKey, name string, state why.State, words ...string) {
	r.t.Helper()
	within(r.t, shownWithin, fmt.Sprintf("why says that the step %q of %s is %s", name, key.Name, state), func(context.Context) error {
		steps, broken, err := askWhy(r.t, r.Hub, key, r.name)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(steps, func(l why.Link) bool { return l.Name == name })
		if broken != nil || i < 0 || steps[i].State != state {
			return fmt.Errorf("it says %+v", steps)
		}
		for _, word := range words {
			if !strings.Contains(steps[i].Evidence+"\n"+steps[i].Fix, word) {
				return fmt.Errorf("it does not say %q: %+v", word, steps[i])
			}
		}
		return nil
	})
}

// refused asks the plugin while it cannot read the AlertRule from the hub.
func (r *fault) refused(code int, words string) {
	r.t.Helper()
	k, key := pluginFor(r.t, r.Hub), r.untouched()
	k.expect(r.t, code, words, "why", "alertrule/"+key.Name, "-n", key.Namespace, "--cluster", r.name)
}

// failing returns an AlertRule that is not written to the spoke, and the reason.
func (r *fault) failing(ctx context.Context) (client.ObjectKey, string) {
	var list v1alpha1.AlertRuleList
	if err := r.Hub.Client.List(ctx, &list); err != nil {
		return client.ObjectKey{}, ""
	}
	for i := range list.Items {
		ar := &list.Items[i]
		if at := row(ar, r.name); at != nil && at.Phase == v1alpha1.PhasePending && at.Reason != v1alpha1.ReasonWaiting && at.ObservedGeneration == ar.Generation {
			return client.ObjectKeyFromObject(ar), at.Reason
		}
	}
	return client.ObjectKey{}, ""
}
