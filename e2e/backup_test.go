package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// backup is a hub on which the commands of docs/how-to/backup.md are run, as they are.
type backup struct {
	*fleet.Fleet
	spoke *fleet.Member
	dir   string
	page  string
}

// TestBackup saves a hub, takes all away from it that was saved, and restores it, by the commands of
// docs/how-to/backup.md. The rules in the spoke stay as they are.
func TestBackup(t *testing.T) {
	long(t)
	parallel(t)
	page, err := os.ReadFile(filepath.Join("..", "docs", "how-to", "backup.md"))
	must(t, err)
	b := &backup{Fleet: start(t, fleet.Options{Spokes: []string{spokeA}, OpenAPI: true}), dir: t.TempDir(), page: string(page)}
	b.spoke = b.Spoke(spokeA)
	must(t, os.Symlink(b.Hub.Kubectl(t.Context()).Path, filepath.Join(b.dir, "kubectl")))
	b.deploy(t)
	namespace(t, "shop", b.spoke)
	must(t, b.Register(t.Context(), spokeA, map[string]string{"env": "prod"}))
	expectCondition(t, b.Fleet, membership(spokeA), v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	update(t, b.Hub, membership(spokeA), func(sc *v1alpha1.SpokeCluster) {
		metav1.SetMetaDataLabel(&sc.ObjectMeta, "tier", "gold")
		sc.Spec.RuleLabels = map[string]v1alpha1.RuleLabelValue{"team": "shop"}
	})
	for _, name := range []string{"edited", "web"} {
		must(t, b.spoke.Client.Create(t.Context(), deployment("shop", name)))
	}
	tpl := template("by-label", "shop")
	tpl.Spec.Placement = new(onLabeled("tier", "gold"))
	must(t, b.Hub.Client.Create(t.Context(), tpl))
	must(t, b.Hub.Client.Create(t.Context(), alertRule("rule", "shop", onLabeled("tier", "gold"))))
	pack := samplePack(t, "pack", "shop", 5)
	pack.Spec.Placement = onLabeled("tier", "gold")
	slices.Reverse(pack.Spec.Groups) // the first rule has a duration, which the test compares
	pack.Spec.Groups = pack.Spec.Groups[1:]
	must(t, b.Hub.Client.Create(t.Context(), pack))
	edited := b.made(t, tpl, "edited")
	update(t, b.Hub, edited, func(ar *v1alpha1.AlertRule) { ar.Spec.For = "7m" })
	b.expectFor(t, edited, "7m", "for")
	rules := b.settled(t)

	b.run(t, "What to save")
	since := alertRule("since-the-backup", "shop", onEvery())
	must(t, b.Hub.Client.Create(t.Context(), since))
	pr := expectPushed(t, b.spoke, client.ObjectKeyFromObject(since), 1)

	t.Run("Kinds", func(t *testing.T) {
		b.lose(t)
		eventually(t, "deletions wait", func(ctx context.Context) error {
			sc := membership(spokeA)
			if err := read(ctx, b.Hub, client.ObjectKeyFromObject(sc), sc); err != nil {
				return err
			}
			if sc.Status.PendingDeletions == nil || sc.Status.PendingDeletions.Suspect == 0 {
				return fmt.Errorf("the status tells of %+v", sc.Status.PendingDeletions)
			}
			return nil
		})
		must(t, b.Hub.Client.Create(t.Context(), alertRule("since-the-backup", "shop", onEvery()))) // else it would wait on
		b.run(t, "Restore a kind")
		b.same(t, append(slices.Clone(rules), pr))
	})
	if t.Failed() {
		return
	}
	t.Run("Hub", func(t *testing.T) {
		b.run(t, "Stop the manager")
		eventually(t, "the manager has ended", func(ctx context.Context) error { // there are no pods to wait for
			d := &appsv1.Deployment{}
			if err := read(ctx, b.Hub, client.ObjectKey{Namespace: fleet.Namespace, Name: "rulefleet"}, d); err != nil {
				return err
			}
			if d.Status.ObservedGeneration != d.Generation || d.Status.Replicas > 0 {
				return fmt.Errorf("the Deployment's status is %+v", d.Status)
			}
			return nil
		})
		for _, o := range []client.Object{&v1alpha1.SpokeCluster{}, registration(spokeA)} {
			o.SetName(spokeA)
			if _, ok := o.(*v1alpha1.SpokeCluster); ok {
				update(t, b.Hub, membership(spokeA), func(sc *v1alpha1.SpokeCluster) { sc.Finalizers = nil })
			}
			must(t, b.Hub.Client.Delete(t.Context(), o))
		}
		b.lose(t)
		b.run(t, "Suspend all spokes")
		b.run(t, "Start the manager")
		out := b.run(t, "See what would be removed")
		if !strings.Contains(out, "[rulefleet-system/since-the-backup]") {
			eventually(t, "the rule that was made since", func(context.Context) error {
				if out = b.run(t, "See what would be removed"); !strings.Contains(out, "[rulefleet-system/since-the-backup]") {
					return errors.New(out)
				}
				return nil
			})
		}
		t.Log(out)
		must(t, b.Hub.Client.Create(t.Context(), alertRule("since-the-backup", "shop", onEvery())))
		b.run(t, "Let the manager write to the spokes again")
		b.same(t, append(slices.Clone(rules), pr))
	})
	if t.Failed() {
		return
	}
	t.Run("FollowsTheTemplate", func(t *testing.T) { b.followsTheTemplate(t, tpl) })
}

// followsTheTemplate restores a generated AlertRule in each way that kubectl offers: with the page's commands
// it follows its template again and keeps a person's edits.
func (b *backup) followsTheTemplate(t *testing.T, tpl *v1alpha1.AlertRuleTemplate) {
	t.Helper()
	web, follows := b.made(t, tpl, "web"), 0
	follow := func(t *testing.T) {
		t.Helper()
		wait := string(web.Spec.For)
		b.expectFor(t, web, wait, "alert expr for labels.deployment labels.namespace labels.spoke severity state")
		b.run(t, "Generated AlertRules that were restored")
		b.expectFor(t, web, wait, "")
		follows++
		wait = fmt.Sprintf("%dm", 10+follows)
		update(t, b.Hub, tpl, func(tpl *v1alpha1.AlertRuleTemplate) { tpl.Spec.For = v1alpha1.Duration(wait) })
		b.expectFor(t, web, wait, "")
		web.Spec.For = v1alpha1.Duration(wait)
		if ar := b.made(t, tpl, "edited"); ar.Spec.For != "7m" {
			t.Errorf("what was edited is %q now", ar.Spec.For)
		}
	}
	follow(t)
	for _, how := range []string{"create", "apply", "replace --force", "apply --server-side"} {
		if !t.Run(how, func(t *testing.T) {
			b.shell(t, "restoring an AlertRule", fmt.Sprintf(`
				scale() { kubectl -n %[1]s scale deployment rulefleet --replicas "$1"; kubectl -n %[1]s rollout status deployment rulefleet --timeout=30s; }
				scale 0
				kubectl get alertrule -n %[2]s %[3]s -o yaml | sed -E '/^  (uid|resourceVersion|creationTimestamp|generation):/d' >one.yaml
				kubectl delete alertrule -n %[2]s %[3]s
				kubectl %[4]s -f one.yaml
				scale 2`, fleet.Namespace, fleet.GeneratedNamespace, web.Name, how))
			follow(t)
		}) {
			return
		}
	}
}

// deploy creates a Deployment that stands for the manager, which runs while it has replicas.
func (b *backup) deploy(t *testing.T) {
	t.Helper()
	d := deployment(fleet.Namespace, "rulefleet")
	d.Spec.Replicas = new(int32(2))
	must(t, b.Hub.Client.Create(t.Context(), d))
	dir := t.TempDir()
	manager := startManagerWith(t, b.Fleet, fleet.ManagerOptions{Dir: dir})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for running := true; ctx.Err() == nil; <-tick.C {
			d := &appsv1.Deployment{}
			if b.Hub.Client.Get(ctx, client.ObjectKey{Namespace: fleet.Namespace, Name: "rulefleet"}, d) != nil {
				continue
			}
			replicas := *d.Spec.Replicas
			switch {
			case replicas == 0 && running:
				running = manager.Kill() != nil
			case replicas > 0 && !running:
				next, err := b.StartManager(ctx, fleet.ManagerOptions{Path: managerFor(t), Dir: dir})
				if err != nil {
					t.Error(err)
					return
				}
				manager, running = next, true
			}
			is := appsv1.DeploymentStatus{
				ObservedGeneration: d.Generation, Replicas: replicas, UpdatedReplicas: replicas, ReadyReplicas: replicas, AvailableReplicas: replicas,
			}
			if !equality.Semantic.DeepEqual(d.Status, is) {
				d.Status = is
				_ = b.Hub.Client.Status().Update(ctx, d)
			}
		}
	}()
}

// run runs the commands below a heading of the page, and returns their output.
func (b *backup) run(t *testing.T, heading string) string {
	t.Helper()
	_, text, found := strings.Cut(b.page, "# "+heading+"\n")
	if !found {
		t.Fatalf("the page has no heading %q", heading)
	}
	text, _, _ = strings.Cut(text, "\n#")
	var commands []string
	for i, block := range strings.Split(text, "```sh\n")[1:] {
		command, _, ended := strings.Cut(block, "```")
		if !ended {
			t.Fatalf("block %d under %q has no end", i, heading)
		}
		commands = append(commands, command)
	}
	if len(commands) == 0 {
		t.Fatalf("there are no commands under %q", heading)
	}
	return b.shell(t, "the commands under "+heading, strings.Join(commands, "\n"))
}

// shell runs commands as a reader of the page would.
func (b *backup) shell(t *testing.T, what, commands string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", commands)
	cmd.Dir = b.dir
	cmd.Env = append(os.Environ(), "PATH="+b.dir+":"+os.Getenv("PATH"), "KUBECONFIG="+b.Hub.KubeconfigPath(), "KUBECACHEDIR="+filepath.Join(b.dir, "cache"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", what, err, out)
	}
	return string(out)
}

// lose deletes all three kinds with all their objects, and defines them again.
func (b *backup) lose(t *testing.T) {
	t.Helper()
	begun := time.Now()
	for _, plural := range []string{"spokeclusters", "alertruletemplates", "rulepacks", "alertrules"} {
		crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: plural + "." + v1alpha1.Group}}
		must(t, b.Hub.Client.Delete(t.Context(), crd))
		expectGone(t, b.Hub, crd)
	}
	eventually(t, "another second", func(context.Context) error {
		if time.Since(begun) < 2*time.Second {
			return errors.New("times are of a second's precision")
		}
		return nil
	})
	must(t, b.Hub.InstallCRDs(t.Context(), filepath.Join("..", "charts", "rulefleet", "files", "crds"), "*.yaml"))
}

// made returns the AlertRule that a template generated for a Deployment.
func (b *backup) made(t *testing.T, tpl *v1alpha1.AlertRuleTemplate, name string) *v1alpha1.AlertRule {
	t.Helper()
	var out *v1alpha1.AlertRule
	eventually(t, "the AlertRule of "+name, func(ctx context.Context) error {
		rules, err := generated(ctx, b.Fleet, spokeA, "shop", name)
		for i := range rules {
			if rules[i].Labels[v1alpha1.TemplateLabel] == tpl.Name {
				out = &rules[i]
				return nil
			}
		}
		return fmt.Errorf("there are %d others: %w", len(rules), err)
	})
	return out
}

// expectFor waits until an AlertRule, and the rule in the spoke, have this 'for', and this number of
// overridden fields.
func (b *backup) expectFor(t *testing.T, ar *v1alpha1.AlertRule, wait, overridden string) {
	t.Helper()
	eventually(t, fmt.Sprintf("AlertRule %s has for %s and overrides %q", ar.Name, wait, overridden), func(ctx context.Context) error {
		now := &v1alpha1.AlertRule{}
		if err := read(ctx, b.Hub, client.ObjectKeyFromObject(ar), now); err != nil {
			return err
		}
		if got := strings.Join(now.Status.OverriddenFields, " "); string(now.Spec.For) != wait || got != overridden {
			return fmt.Errorf("for is %q, overridden are %q", now.Spec.For, got)
		}
		found, err := pushed(ctx, b.spoke, client.ObjectKeyFromObject(ar))
		if err != nil || len(found) != 1 || duration(found[0].Spec.Groups[0].Rules[0].For) != wait {
			return fmt.Errorf("the spoke has %+v: %w", found, err)
		}
		return nil
	})
}

// settled returns the rules in the spoke when all of them are as they should be.
func (b *backup) settled(t *testing.T) []*monitoringv1.PrometheusRule {
	t.Helper()
	var out []*monitoringv1.PrometheusRule
	eventually(t, "all rules are in the spoke, with their label", func(ctx context.Context) error {
		var list monitoringv1.PrometheusRuleList
		if err := b.spoke.Client.List(ctx, &list); err != nil {
			return err
		}
		out = nil
		for i := range list.Items {
			if list.Items[i].Labels["team"] == "shop" {
				out = append(out, &list.Items[i])
			}
		}
		if len(out) != 6 || len(list.Items) != 6 { // two of each template, one more, and a RulePack's
			return fmt.Errorf("there are %d, of %d", len(out), len(list.Items))
		}
		return nil
	})
	return out
}

func brief(pr *monitoringv1.PrometheusRule) string {
	return fmt.Sprintf("%s with labels %v and for %s", pr.UID, pr.Labels, duration(pr.Spec.Groups[0].Rules[0].For))
}

// same expects what was in the spoke to be there, as it was: not to be made anew.
func (b *backup) same(t *testing.T, rules []*monitoringv1.PrometheusRule) {
	t.Helper()
	eventually(t, "all is as it was", func(ctx context.Context) error {
		for _, pr := range rules {
			now := &monitoringv1.PrometheusRule{}
			if err := read(ctx, b.spoke, client.ObjectKeyFromObject(pr), now); err != nil {
				return err
			}
			if now.UID != pr.UID || now.Labels["team"] != "shop" || *now.Spec.Groups[0].Rules[0].For != *pr.Spec.Groups[0].Rules[0].For {
				return fmt.Errorf("%s was made anew, or is another: it was %s and is %s", pr.Name, brief(pr), brief(now))
			}
		}
		return nil
	})
}
