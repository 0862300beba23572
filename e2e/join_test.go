package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/plugin"
	"github.com/rulefleet/rulefleet/pkg/plugin/cluster"
	"github.com/rulefleet/rulefleet/pkg/plugin/env"
	"github.com/rulefleet/rulefleet/pkg/plugin/exit"
	"github.com/rulefleet/rulefleet/pkg/spoke/kubeconfig"
	"github.com/rulefleet/rulefleet/pkg/testing/controlplane"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

var updateGoldens = flag.Bool("update", false, "write the golden files")

// kubectlRulefleet is the plugin with a person's kubeconfig: a context for each cluster, by its name.
type kubectlRulefleet struct {
	kubeconfig string
	printed    strings.Builder // by all commands
}

// pluginFor writes a kubeconfig with administrators of the clusters, and the hub as the current context.
func pluginFor(t *testing.T, hub *fleet.Member, spokes ...*fleet.Member) *kubectlRulefleet {
	t.Helper()
	kubeconfigs := map[string][]byte{"hub": hub.Kubeconfig()}
	for _, m := range spokes {
		kubeconfigs[m.Name()] = m.Kubeconfig()
	}
	return pluginWith(t, kubeconfigs)
}

// pluginWith writes a kubeconfig with a context for each kubeconfig.
func pluginWith(t *testing.T, kubeconfigs map[string][]byte) *kubectlRulefleet {
	t.Helper()
	all := api.NewConfig()
	all.CurrentContext = "hub"
	for name, content := range kubeconfigs {
		one, err := clientcmd.Load(content)
		must(t, err)
		current := one.Contexts[one.CurrentContext]
		all.Clusters[name], all.AuthInfos[name] = one.Clusters[current.Cluster], one.AuthInfos[current.AuthInfo]
		all.Contexts[name] = &api.Context{Cluster: name, AuthInfo: name}
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, clientcmd.WriteToFile(*all, file))
	return &kubectlRulefleet{kubeconfig: file}
}

// run runs the plugin within this process, and returns its exit code and what it printed.
func (k *kubectlRulefleet) run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errOut bytes.Buffer
	e := &env.Env{
		IOStreams: genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut},
		Hub:       cluster.NewHub("e2e", &errOut), Version: "e2e", Now: time.Now,
	}
	code = plugin.Run(t.Context(), e, append([]string{"--kubeconfig=" + k.kubeconfig}, args...))
	t.Logf("kubectl rulefleet %s: %d\n%s%s", strings.Join(args, " "), code, out.String(), errOut.String())
	k.printed.WriteString(out.String() + errOut.String())
	return code, out.String(), errOut.String()
}

// expect runs the plugin, and fails unless it ends with that exit code and prints the words.
func (k *kubectlRulefleet) expect(t *testing.T, code int, words string, args ...string) (stdout string) {
	t.Helper()
	got, stdout, stderr := k.run(t, args...)
	if got != code {
		t.Errorf("kubectl rulefleet %s: exit code %d, want %d", strings.Join(args, " "), got, code)
	}
	if !strings.Contains(stdout+stderr, words) {
		t.Errorf("kubectl rulefleet %s: it does not print %q", strings.Join(args, " "), words)
	}
	return stdout
}

// varying is what differs between two runs of a command: addresses, times, numbers of rules, certificates and UIDs.
var varying = regexp.MustCompile(`https://[^,\s]+|\d{4}-\d\d-\d\dT[\d:]+Z|\(\d+|LS0tLS1[\w+/=]+|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// golden runs the plugin, and compares what it prints with a file in testdata, apart from what it waits for and what is not
// known yet at a time.
func (k *kubectlRulefleet) golden(t *testing.T, name string, args ...string) {
	t.Helper()
	code, stdout, stderr := k.run(t, args...)
	var got strings.Builder
	fmt.Fprintf(&got, "$ kubectl rulefleet %s\n", strings.Join(args, " "))
	for line := range strings.Lines(varying.ReplaceAllString(stdout+stderr, "…")) {
		if !strings.HasPrefix(line, "Waiting: ") && !strings.HasPrefix(line, "Note: ") {
			got.WriteString(line)
		}
	}
	fmt.Fprintf(&got, "[exit code %d]\n", code)
	file := filepath.Join("testdata", name+".golden")
	if *updateGoldens {
		must(t, os.WriteFile(file, []byte(got.String()), 0o600))
		return
	}
	want, err := os.ReadFile(file)
	must(t, err)
	if got.String() != string(want) {
		t.Errorf("%s (go test ./e2e -run TestJoin -update writes it):\ngot\n%s\nwant\n%s", file, got.String(), want)
	}
}

// documented fails unless the commands that have run printed each line that docs/how-to/plugin.md shows as the output of
// a subcommand, apart from what it waits for, and a question that --yes answers.
func (k *kubectlRulefleet) documented(t *testing.T, subcommand string) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "docs", "how-to", "plugin.md"))
	must(t, err)
	_, shown, found := strings.Cut(string(page), "```\n$ kubectl rulefleet "+subcommand+" ")
	if !found {
		t.Fatalf("docs/how-to/plugin.md does not show the output of %s", subcommand)
	}
	shown, _, _ = strings.Cut(shown, "```")
	printed := strings.Split(varying.ReplaceAllString(k.printed.String(), "…"), "\n")
	for _, line := range strings.Split(strings.TrimSpace(shown), "\n")[1:] {
		if strings.HasPrefix(line, "Waiting: ") || strings.Contains(line, "[y/N]") {
			continue
		}
		if !slices.Contains(printed, varying.ReplaceAllString(line, "…")) {
			t.Errorf("docs/how-to/plugin.md shows a line that %s has not printed:\n%s", subcommand, line)
		}
	}
}

// joinTest is a fleet whose only spoke is registered with the plugin.
type joinTest struct {
	*fleet.Fleet

	k *kubectlRulefleet
	// joiner is the kubeconfig of someone in the spoke who has only the permissions that a join needs, with escalate and
	// bind in place of those of the account.
	joiner []byte
}

// join returns the arguments of a join of the spoke.
func (j *joinTest) join(args ...string) []string {
	return append([]string{"join", spokeA, "--spoke-context", spokeA}, args...)
}

// TestJoin registers a cluster with the plugin, uses it, and lets it leave.
func TestJoin(t *testing.T) {
	parallel(t)
	f := start(t, fleet.Options{Spokes: []string{spokeA}, Audit: true, OpenAPI: true, ControllerManager: true})
	hub, spoke := f.Hub, f.Spoke(spokeA)
	withoutAccount(t, spoke)
	startManager(t, f, t.TempDir())
	k := pluginFor(t, hub, spoke)
	j := &joinTest{Fleet: f, k: k}

	t.Run("dry run", j.dryRun)
	t.Run("rights", j.rights)
	t.Run("mistakes", func(t *testing.T) {
		k.expect(t, exit.Usage, `no context "nowhere"`, "join", spokeA, "--spoke-context", "nowhere")
		k.expect(t, exit.Usage, "--spoke-context is missing", "join", spokeA)
		k.expect(t, exit.Missing, `namespace "nowhere" not found on the hub`, j.join("--namespace", "nowhere")...)
		k.expect(t, exit.Usage, "not the address of an API server", j.join("--server", "http://example.com")...)
		precious := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: "precious"}, Data: map[string][]byte{"tls.key": nil}}
		must(t, hub.Client.Create(t.Context(), precious))
		k.expect(t, exit.Failed, "not the registration of a spoke", "join", "precious", "--spoke-context", spokeA)
		k.expect(t, exit.Failed, "not the registration of a spoke", "unjoin", "precious", "--yes")
	})
	t.Run("unjoin without a kubeconfig", func(t *testing.T) {
		hollow := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: "hollow", Labels: map[string]string{v1alpha1.RegistrationLabel: "true"}}}
		must(t, hub.Client.Create(t.Context(), hollow))
		eventually(t, "it is registered", func(ctx context.Context) error {
			return hub.Client.Get(ctx, client.ObjectKey{Name: hollow.Name}, &v1alpha1.SpokeCluster{})
		})
		k.expect(t, exit.OK, "has left", "unjoin", hollow.Name, "--yes")
	})
	if !t.Run("join", j.first) {
		return
	}
	t.Run("again", j.again)
	t.Run("why", j.why)
	t.Run("one cluster has one name", func(t *testing.T) {
		k.golden(t, "join-another-name", "join", "other", "--spoke-context", spokeA)
		k.golden(t, "join-another-cluster", "join", spokeA, "--spoke-context", "hub")
	})
	t.Run("policy", j.policy)
	t.Run("without evaluate", func(t *testing.T) {
		k.expect(t, exit.OK, "", j.join("--no-evaluate")...)
		for _, o := range []client.Object{&rbacv1.ClusterRole{}, &rbacv1.ClusterRoleBinding{}} {
			if err := spoke.Client.Get(t.Context(), client.ObjectKey{Name: fleet.EvaluateGrant}, o); !apierrors.IsNotFound(err) {
				t.Errorf("%T: %v", o, err)
			}
		}
		k.expect(t, exit.OK, "", j.join()...)
	})
	t.Run("several Prometheus", j.severalPrometheus)
	t.Run("from Argo CD", j.fromArgoCD)
	t.Run("static", j.static)
	t.Run("unjoin", j.unjoin)
	t.Run("unjoin by hand", j.byHand)
}

// pluginWrites returns what the plugin has written to the clusters, and how often it has read.
func pluginWrites(t *testing.T, members ...*fleet.Member) (writes []string, reads int) {
	t.Helper()
	for _, m := range members {
		events, err := m.Audit().Events(func(e controlplane.AuditEvent) bool { return strings.HasPrefix(e.UserAgent, "kubectl-rulefleet/") })
		must(t, err)
		for _, e := range events {
			switch {
			case slices.Contains([]string{"get", "list", "watch"}, e.Verb), e.ObjectRef.Resource == "selfsubjectaccessreviews":
				reads++
			default:
				writes = append(writes, fmt.Sprintf("%s: %s %s/%s", m.Name(), e.Verb, e.ObjectRef.Resource, e.ObjectRef.Name))
			}
		}
	}
	return writes, reads
}

func (j *joinTest) dryRun(t *testing.T) {
	j.k.golden(t, "join-dry-run", j.join("--dry-run", "-o", "yaml", "-l", "env=prod", "--suspend", "--prometheus", "monitoring/k8s")...)
	j.k.golden(t, "join-dry-run-names", j.join("--dry-run", "-o", "name", "--no-evaluate", "--auth", "static")...)
	j.k.golden(t, "join-dry-run-json", j.join("--dry-run", "-o", "json")...)
	if writes, reads := pluginWrites(t, j.Hub, j.Spoke(spokeA)); len(writes) > 0 || reads == 0 {
		t.Errorf("after %d reads, it has written: %q", reads, writes)
	}
}

// rights has people without rights: they are told all that they lack, and nothing is written.
func (j *joinTest) rights(t *testing.T) {
	spoke := j.Spoke(spokeA)
	user := func(m *fleet.Member, name string) []byte {
		kubeconfig, err := m.UserKubeconfig(name)
		must(t, err)
		return kubeconfig
	}
	_, stderr := "", ""
	k := pluginWith(t, map[string][]byte{"hub": user(j.Hub, "nobody"), spokeA: spoke.Kubeconfig()})
	k.golden(t, "join-denied-hub", j.join()...)
	k = pluginWith(t, map[string][]byte{"hub": j.Hub.Kubeconfig(), spokeA: user(spoke, "nobody")})
	k.golden(t, "join-denied-spoke", j.join()...)

	// Someone who may write everything, and not grant what they do not have.
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "joiner"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces", "serviceaccounts", "serviceaccounts/token", "secrets"}, Verbs: []string{"*"}},
		{APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"*"}, Verbs: []string{"*"}},
		{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles", "clusterrolebindings", "roles", "rolebindings"}, Verbs: []string{"get", "list", "create", "patch", "delete"}},
	}}
	must(t, spoke.Client.Create(t.Context(), role))
	must(t, spoke.Client.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "joiner"}, Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "joiner"}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "joiner"},
	}))
	k = pluginWith(t, map[string][]byte{"hub": j.Hub.Kubeconfig(), spokeA: user(spoke, "joiner")})
	eventually(t, "the rights of the joiner are those of the role", func(context.Context) error {
		if _, _, stderr = k.run(t, j.join()...); !strings.Contains(stderr, "you lack permissions in the spoke:\n  deployments.apps: get, list, watch\n") {
			return fmt.Errorf("it prints %s", stderr)
		}
		return nil
	})
	for _, want := range []string{"prometheusrules.monitoring.coreos.com: get, list, watch, create, update, delete\n", "http:prometheus-operated:web"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("it does not print %q", want)
		}
	}
	if writes, _ := pluginWrites(t, j.Hub, spoke); len(writes) > 0 {
		t.Errorf("it has written: %q", writes)
	}
	// With escalate and bind, they can register the spoke, as the subtest join shows.
	before := role.DeepCopy()
	role.Rules[2].Verbs = append(role.Rules[2].Verbs, "escalate", "bind")
	must(t, spoke.Client.Patch(t.Context(), role, client.MergeFrom(before)))
	eventually(t, "the joiner may grant the permissions of the account", func(context.Context) error {
		if code, _, stderr := k.run(t, j.join("--dry-run")...); code != exit.OK {
			return fmt.Errorf("it prints %s", stderr)
		}
		return nil
	})
	j.joiner = user(spoke, "joiner")
}

// registered returns the configuration by which the hub connects with the spoke.
func registered(t *testing.T, hub *fleet.Member) (*corev1.Secret, *rest.Config) {
	t.Helper()
	s := &corev1.Secret{}
	must(t, hub.Client.Get(t.Context(), client.ObjectKey{Namespace: fleet.Namespace, Name: spokeA}, s))
	cfg, err := clientcmd.RESTConfigFromKubeConfig(s.Data[v1alpha1.KubeconfigKey])
	must(t, err)
	return s, cfg
}

// granted returns what the API server says that a user may do in the namespaces default, kube-system and rulefleet-system.
func granted(t *testing.T, cfg *rest.Config) map[string]bool {
	t.Helper()
	c, err := client.New(cfg, client.Options{Scheme: fleet.Scheme})
	must(t, err)
	out := map[string]bool{}
	for _, namespace := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem, fleet.Namespace} {
		review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}
		must(t, c.Create(t.Context(), review))
		for _, r := range review.Status.ResourceRules {
			for _, right := range cluster.RightsOf([]rbacv1.PolicyRule{{Verbs: r.Verbs, APIGroups: r.APIGroups, Resources: r.Resources, ResourceNames: r.ResourceNames}}) {
				out[right.String()] = true
			}
		}
	}
	return out
}

// documentedRights reads the table in docs/how-to/register.md, without names of objects.
func documentedRights(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "docs", "how-to", "register.md"))
	must(t, err)
	groups := map[string]string{"deployments": ".apps", "statefulsets": ".apps", "daemonsets": ".apps", "cronjobs": ".batch", "prometheuses": ".monitoring.coreos.com", "thanosrulers": ".monitoring.coreos.com", "prometheusrules": ".monitoring.coreos.com"}
	row := regexp.MustCompile("(?m)^\\| (?:`(?:evaluate|renew)` \\(optional\\): )?((?:[a-z]+(?:, )?)+) ((?:`[a-z/]+`(?:, )?)+)(.*?) \\|")
	var out []string
	for _, match := range row.FindAllStringSubmatch(string(page), -1) {
		for resource := range strings.SplitSeq(match[2], ", ") {
			resource = strings.Trim(resource, "`")
			for verb := range strings.SplitSeq(match[1], ", ") {
				out = append(out, verb+" "+resource+groups[resource])
			}
		}
	}
	slices.Sort(out)
	return out
}

func (j *joinTest) first(t *testing.T) {
	spoke := j.Spoke(spokeA)
	joiner := pluginWith(t, map[string][]byte{"hub": j.Hub.Kubeconfig(), spokeA: j.joiner})
	joiner.golden(t, "join", j.join("-l", "env=prod,region=eu")...)
	joiner.documented(t, "join")
	s, cfg := registered(t, j.Hub)
	if s.Labels["env"] != "prod" || s.Labels[v1alpha1.RegistrationLabel] != "true" || len(s.Annotations) != 1 || s.Annotations[v1alpha1.RenewTokenAnnotation] != "true" {
		t.Errorf("the Secret has labels %v and annotations %v", s.Labels, s.Annotations)
	}

	// The status shows when the token expires: --duration is a year by default, and the spoke grants it.
	eventually(t, "the credential is shown", func(ctx context.Context) error {
		var sc v1alpha1.SpokeCluster
		if err := j.Hub.Client.Get(ctx, client.ObjectKey{Name: spokeA}, &sc); err != nil {
			return err
		}
		valid, c := meta.FindStatusCondition(sc.Status.Conditions, v1alpha1.ConditionCredentialValid), sc.Status.Credential
		if valid == nil || valid.Status != metav1.ConditionTrue || valid.Reason != v1alpha1.ReasonCredentialValid || c == nil {
			return fmt.Errorf("%+v: %+v", c, valid)
		}
		if left, life := time.Until(c.ExpirationTime.Time), 365*24*time.Hour; left > life || left < life-time.Hour {
			return fmt.Errorf("it expires in %s", left)
		}
		if third := c.ExpirationTime.Sub(c.RenewalTime.Time); (third - 365*8*time.Hour).Abs() > time.Second {
			return fmt.Errorf("it is renewed %s before", third)
		}
		return nil
	})

	// What the account has in addition to any other account is what the page documents.
	must(t, spoke.Client.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "stranger"}}))
	other, err := spoke.ServiceAccountKubeconfig(t.Context(), client.ObjectKey{Namespace: "default", Name: "stranger"})
	must(t, err)
	stranger, err := clientcmd.RESTConfigFromKubeConfig(other)
	must(t, err)
	rights, anyone := granted(t, cfg), granted(t, stranger)
	var got []string
	proxied := map[string]bool{}
	for right := range maps.Keys(rights) {
		if anyone[right] {
			continue
		}
		if name, ok := strings.CutPrefix(right, "get services/proxy "); ok {
			proxied[name] = true
			right = "get services/proxy"
		}
		if right == "create serviceaccounts/token "+fleet.SpokeUser {
			right = "create serviceaccounts/token"
		}
		if !slices.Contains(got, right) {
			got = append(got, right)
		}
	}
	slices.Sort(got)
	if want := documentedRights(t); !slices.Equal(got, want) {
		t.Errorf("the account has\n%q\nand the page documents\n%q", got, want)
	}
	for name := range proxied {
		if !regexp.MustCompile("^https?:(prometheus|thanos-ruler)-operated:(web|http-web)$").MatchString(name) {
			t.Errorf("the account may proxy to %q", name)
		}
	}
	if len(proxied) != 8 {
		t.Errorf("the account may proxy to %d Services", len(proxied))
	}
}

// versions returns the resourceVersions of the account in the spoke.
func versions(t *testing.T, m *fleet.Member) map[string]string {
	t.Helper()
	out := map[string]string{}
	for name, o := range map[string]client.Object{
		"ns":   &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fleet.Namespace}},
		"sa":   &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: fleet.SpokeUser}},
		"role": &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: fleet.SpokeUser}}, "binding": &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: fleet.SpokeUser}},
		"role/evaluate": &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: fleet.EvaluateGrant}}, "binding/evaluate": &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: fleet.EvaluateGrant}},
	} {
		must(t, m.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o))
		out[name] = o.GetResourceVersion()
	}
	return out
}

// inPlace waits until the present token is in use, and checks that nothing was listed or watched again.
func (j *joinTest) inPlace(t *testing.T) {
	t.Helper()
	_, cfg := registered(t, j.Hub)
	want := kubeconfig.CredentialOf(cfg).Expires
	eventually(t, "the new token is in use", func(ctx context.Context) error {
		var sc v1alpha1.SpokeCluster
		err := j.Hub.Client.Get(ctx, client.ObjectKey{Name: spokeA}, &sc)
		if c := sc.Status.Credential; err == nil && (c == nil || !c.ExpirationTime.Time.Equal(want)) {
			err = fmt.Errorf("%+v, want %s", c, want)
		}
		return err
	})
	events, err := j.Spoke(spokeA).Audit().Events(func(e controlplane.AuditEvent) bool {
		watched := []string{"deployments", "namespaces", "prometheusrules"}
		return e.User.Username == "system:serviceaccount:rulefleet-system:rulefleet-spoke" && slices.Contains(watched, e.ObjectRef.Resource)
	})
	must(t, err)
	for _, e := range events {
		if again := e.Verb == "list" && !regexp.MustCompile(`limit=1(&|$)`).MatchString(e.RequestURI); again || e.Verb == "watch" {
			t.Errorf("with the new token: %s %s", e.Verb, e.RequestURI)
		}
	}
	if len(events) == 0 {
		t.Error("the spoke was asked for nothing")
	}
}

func (j *joinTest) again(t *testing.T) {
	before, was := versions(t, j.Spoke(spokeA)), func() *corev1.Secret { s, _ := registered(t, j.Hub); return s }()
	must(t, j.Spoke(spokeA).Audit().Reset())
	j.k.golden(t, "join-again", j.join()...)
	j.inPlace(t)
	if after := versions(t, j.Spoke(spokeA)); !maps.Equal(before, after) {
		t.Errorf("the account was changed: %v, and before %v", after, before)
	}
	is, _ := registered(t, j.Hub)
	if !maps.Equal(is.Labels, was.Labels) || bytes.Equal(is.Data[v1alpha1.KubeconfigKey], was.Data[v1alpha1.KubeconfigKey]) {
		t.Errorf("the labels are %v, and the token is the former one or not", is.Labels)
	}
	j.k.expect(t, exit.OK, "labels: env=dev", j.join("-l", "env=dev")...)
	j.k.expect(t, exit.OK, "labels: env=prod", j.join("-l", "env=prod")...)
}

// why breaks links, and follows what the plugin says.
func (j *joinTest) why(t *testing.T) {
	hub, spoke := j.Hub, j.Spoke(spokeA)
	ar := alertRule("why", "why", onLabeled("tier", "gold"))
	must(t, hub.Client.Create(t.Context(), ar))
	why := []string{"why", "alertrule/why", "-n", fleet.Namespace, "--cluster", spokeA}
	says := func(step, next string) {
		t.Helper()
		eventually(t, "the plugin names the step "+step, func(context.Context) error {
			code, _, stderr := j.k.run(t, why...)
			if _, shown, _ := strings.Cut(stderr, "\nNext step: "); code != exit.NotReady || !strings.Contains(stderr, fmt.Sprintf("%q", step)) || !strings.Contains(shown, next) {
				return fmt.Errorf("it prints %s", stderr)
			}
			return nil
		})
	}
	says("placement", "change spec.placement of the AlertRule: add the spoke to names")
	update(t, hub, ar, func(ar *v1alpha1.AlertRule) { ar.Spec.Placement.Names = []v1alpha1.ClusterName{spokeA} })
	says("written", "Create the namespace in the spoke")
	namespace(t, "why", spoke)
	eventually(t, "the rule works", func(context.Context) error {
		if code, out, _ := j.k.run(t, why...); code != exit.OK || !strings.Contains(out, "nothing more can be verified") {
			return fmt.Errorf("it prints %s", out)
		}
		return nil
	})
	update(t, hub, ar, func(ar *v1alpha1.AlertRule) { ar.Spec.Suspend = new(true) })
	says("rule accepted", "To resume, set spec.suspend of the AlertRule to false")
	update(t, hub, ar, func(ar *v1alpha1.AlertRule) { ar.Spec.Suspend = nil })
	s := &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: spokeA}}
	update(t, hub, s, func(s *v1alpha1.SpokeCluster) { s.Spec.Suspend = new(true) })
	says("spoke", "Before you resume, check the deletions in status.pendingDeletions")
	update(t, hub, s, func(s *v1alpha1.SpokeCluster) { s.Spec.Suspend = nil })
	must(t, hub.Client.Delete(t.Context(), ar))
	j.k.expect(t, exit.OK, "", j.join("-l", "env=prod")...)
}

// policy compares the policy in the spoke with its manifest, as far as the API server does not add defaults, and
// has it removed and left out.
func (j *joinTest) policy(t *testing.T) {
	spoke := j.Spoke(spokeA)
	key := client.ObjectKey{Name: fleet.SpokeUser}
	manifest, err := os.ReadFile(filepath.Join("..", "charts", "rulefleet", "files", "spoke-policy.yaml"))
	must(t, err)
	var want, got admissionregistrationv1.ValidatingAdmissionPolicy
	must(t, yaml.Unmarshal([]byte(strings.Split(string(manifest), "\n---\n")[0]), &want))
	must(t, spoke.Client.Get(t.Context(), key, &got))
	if !reflect.DeepEqual(got.Spec.Validations, want.Spec.Validations) || !reflect.DeepEqual(got.Spec.MatchConditions, want.Spec.MatchConditions) || len(want.Spec.Validations) == 0 {
		t.Errorf("the spoke has the policy %+v", got.Spec)
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	must(t, spoke.Client.Get(t.Context(), key, binding))
	must(t, spoke.Client.Delete(t.Context(), binding))
	j.k.expect(t, exit.OK, "", j.join("--no-policy")...)
	if err := spoke.Client.Get(t.Context(), key, binding); !apierrors.IsNotFound(err) {
		t.Errorf("--no-policy creates the binding: %v", err)
	}
	must(t, spoke.Client.Get(t.Context(), key, &got))
	j.k.expect(t, exit.OK, "", j.join()...)
	must(t, spoke.Client.Get(t.Context(), key, binding))
}

func (j *joinTest) severalPrometheus(t *testing.T) {
	spoke := j.Spoke(spokeA)
	j.k.expect(t, exit.OK, "has left", "unjoin", spokeA, "--yes")
	for _, crd := range []string{"prometheuses", "thanosrulers"} {
		must(t, j.InstallMonitoringCRD(t.Context(), spoke, crd))
	}
	namespace(t, "monitoring", spoke)
	for _, name := range []string{"a", "b", "no-rules"} {
		p := &monitoringv1.Prometheus{ObjectMeta: metav1.ObjectMeta{Namespace: "monitoring", Name: name}}
		if name != "no-rules" {
			p.Spec.RuleSelector = &metav1.LabelSelector{}
		}
		must(t, spoke.Client.Create(t.Context(), p))
	}
	j.k.golden(t, "join-several-prometheuses", j.join()...)
	j.k.golden(t, "join-another-prometheus", j.join("--prometheus", "monitoring/c")...)
	j.k.golden(t, "join-no-kube-state-metrics", j.join("--prometheus", "monitoring/b", "--suspend")...)
	var s v1alpha1.SpokeCluster
	must(t, j.Hub.Client.Get(t.Context(), client.ObjectKey{Name: spokeA}, &s))
	if s.Spec.Suspend == nil || !*s.Spec.Suspend || len(s.Spec.EvaluatorRefs) != 1 || s.Spec.EvaluatorRefs[0].Name != "b" {
		t.Errorf("the spec is %+v", s.Spec)
	}
	j.k.expect(t, exit.OK, "suspended", j.join()...) // a renewal resumes nothing
	must(t, j.Hub.Client.Get(t.Context(), client.ObjectKey{Name: spokeA}, &s))
	if s.Spec.Suspend == nil || !*s.Spec.Suspend || len(s.Spec.EvaluatorRefs) != 1 {
		t.Errorf("after a renewal, the spec is %+v", s.Spec)
	}
	before := s.DeepCopy()
	s.Spec.Suspend = new(false)
	must(t, j.Hub.Client.Patch(t.Context(), &s, client.MergeFrom(before)))
}

// fromArgoCD registers the spoke again with what Argo CD knows of it, and lists the cluster that it cannot register.
func (j *joinTest) fromArgoCD(t *testing.T) {
	admin := j.Spoke(spokeA).RESTConfig()
	access, err := json.Marshal(map[string]any{"tlsClientConfig": map[string]any{"caData": admin.CAData, "certData": admin.CertData, "keyData": admin.KeyData}})
	must(t, err)
	must(t, j.Hub.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "argocd"}}))
	clusters := map[string]string{spokeA: string(access), "us-9": `{"execProviderConfig":{"command":"argocd-k8s-auth"}}`}
	for name, config := range clusters {
		must(t, j.Hub.Client.Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "argocd", Name: "cluster-" + name, Labels: map[string]string{"argocd.argoproj.io/secret-type": "cluster", "tier": name}},
			StringData: map[string]string{"name": name, "server": admin.Host, "config": config},
		}))
	}
	before, _ := registered(t, j.Hub)
	j.k.golden(t, "join-argocd-none", "join", "--from-argocd", "tier=none")
	j.k.golden(t, "join-argocd-context", "join", "--from-argocd", "", "--spoke-context", spokeA)
	// Whether its Prometheus was queried already is chance, so it does not wait.
	j.k.golden(t, "join-argocd", "join", "--from-argocd", "tier="+spokeA, "--prometheus", "auto", "--timeout", "0")
	got, _ := registered(t, j.Hub)
	if !maps.Equal(got.Labels, before.Labels) || bytes.Equal(got.Data[v1alpha1.KubeconfigKey], before.Data[v1alpha1.KubeconfigKey]) {
		t.Errorf("the labels were %v and are %v; or the token is the same", before.Labels, got.Labels)
	}
	j.k.golden(t, "join-argocd-some", "join", "--from-argocd", "", "--prometheus", "auto", "--dry-run", "-o", "name")
}

// static registers the spoke with a token that does not expire. A renewal without the flags keeps the kind of the token,
// and how long it is valid.
func (j *joinTest) static(t *testing.T) {
	isStatic := func() {
		t.Helper()
		_, cfg := registered(t, j.Hub)
		var s corev1.Secret
		must(t, j.Spoke(spokeA).Client.Get(t.Context(), client.ObjectKey{Namespace: fleet.Namespace, Name: fleet.SpokeUser}, &s))
		if cfg.BearerToken != string(s.Data[corev1.ServiceAccountTokenKey]) || cfg.BearerToken == "" {
			t.Error("the token is not that of the Secret")
		}
	}
	// As above.
	j.k.golden(t, "join-static", j.join("--auth", "static", "--timeout", "0")...)
	isStatic()
	eventually(t, "the new credential is shown", func(ctx context.Context) error {
		var sc v1alpha1.SpokeCluster
		err := j.Hub.Client.Get(ctx, client.ObjectKey{Name: spokeA}, &sc)
		if valid := meta.FindStatusCondition(sc.Status.Conditions, v1alpha1.ConditionCredentialValid); err == nil && (sc.Status.Credential != nil || valid == nil || valid.Message != "the token does not expire") {
			err = fmt.Errorf("%+v: %+v", sc.Status.Credential, valid)
		}
		return err
	})
	j.k.expect(t, exit.OK, "token that does not expire", j.join()...)
	isStatic()
	j.k.golden(t, "join-static-duration", j.join("--duration", "1h")...)

	j.k.expect(t, exit.OK, "token valid until", j.join("--auth", "token", "--duration", "1h")...)
	code, _, stderr := j.k.run(t, j.join()...)
	_, until, _ := strings.Cut(stderr, "token valid until ")
	until, _, _ = strings.Cut(until, "\n")
	expires, err := time.Parse(time.RFC3339, until)
	if code != exit.OK || err != nil || time.Until(expires) > time.Hour || time.Until(expires) < 50*time.Minute {
		t.Errorf("%d %v: %s", code, err, stderr)
	}
	j.k.expect(t, exit.OK, "token that does not expire", j.join("--auth", "static")...)
	isStatic()
}

func (j *joinTest) unjoin(t *testing.T) {
	hub, spoke := j.Hub, j.Spoke(spokeA)
	namespace(t, "shop", spoke)
	ar := alertRule("leaves", "shop", onNamed(spokeA))
	must(t, hub.Client.Create(t.Context(), ar))
	rules := func(ctx context.Context) int {
		var list monitoringv1.PrometheusRuleList
		must(t, spoke.Client.List(ctx, &list, client.InNamespace("shop")))
		return len(list.Items)
	}
	eventually(t, "the rule is in the spoke", func(ctx context.Context) error {
		if n := rules(ctx); n != 1 {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
	_, cfg := registered(t, hub)
	j.k.golden(t, "unjoin-dry-run", "unjoin", spokeA, "--spoke-context", spokeA, "--dry-run")
	j.k.golden(t, "unjoin-not-asked", "unjoin", spokeA, "--spoke-context", spokeA)
	j.k.golden(t, "unjoin-another-cluster", "unjoin", spokeA, "--spoke-context", "hub", "--yes")
	if rules(t.Context()) != 1 {
		t.Fatal("the rule is gone")
	}
	nobody := func(m *fleet.Member) []byte {
		kubeconfig, err := m.UserKubeconfig("nobody")
		must(t, err)
		return kubeconfig
	}
	k := pluginWith(t, map[string][]byte{"hub": nobody(hub), spokeA: spoke.Kubeconfig()})
	k.golden(t, "unjoin-denied-hub", "unjoin", spokeA, "--spoke-context", spokeA, "--orphan", "--yes")
	k = pluginWith(t, map[string][]byte{"hub": hub.Kubeconfig(), spokeA: nobody(spoke)})
	k.golden(t, "unjoin-denied-spoke", "unjoin", spokeA, "--spoke-context", spokeA, "--yes")
	must(t, hub.Client.Get(t.Context(), client.ObjectKey{Name: spokeA}, &v1alpha1.SpokeCluster{}))
	j.k.golden(t, "unjoin-orphan", "unjoin", spokeA, "--orphan", "--yes")
	if rules(t.Context()) != 1 {
		t.Fatal("--orphan removed the rule")
	}
	j.k.expect(t, exit.OK, "", j.join("--prometheus", "auto")...)

	foreign := &monitoringv1.PrometheusRule{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "foreign", Labels: map[string]string{
		v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue, v1alpha1.HubLabel: "another-hub",
	}}}
	must(t, spoke.Client.Create(t.Context(), foreign))
	j.k.golden(t, "unjoin-another-hub", "unjoin", spokeA, "--spoke-context", spokeA, "--yes")
	if n := rules(t.Context()); n != 1 {
		t.Errorf("%d rules are left, and only the foreign one should be", n)
	}
	must(t, spoke.Client.Delete(t.Context(), foreign))
	if err := hub.Client.Get(t.Context(), client.ObjectKey{Namespace: fleet.Namespace, Name: spokeA}, &corev1.Secret{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Secret on the hub: %v", err)
	}
	j.k.golden(t, "unjoin", "unjoin", spokeA, "--spoke-context", spokeA, "--yes") // it goes on where it was
	j.k.golden(t, "unjoin-missing", "unjoin", spokeA, "--yes")
	j.k.documented(t, "unjoin")
	for _, o := range []client.Object{
		&rbacv1.ClusterRole{}, &rbacv1.ClusterRoleBinding{}, &admissionregistrationv1.ValidatingAdmissionPolicy{}, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{},
	} {
		if err := spoke.Client.Get(t.Context(), client.ObjectKey{Name: fleet.SpokeUser}, o); !apierrors.IsNotFound(err) {
			t.Errorf("%T is still in the spoke: %v", o, err)
		}
	}
	stolen, err := client.New(cfg, client.Options{Scheme: fleet.Scheme})
	must(t, err)
	eventually(t, "a stolen token is dead", func(ctx context.Context) error {
		if err := stolen.List(ctx, &corev1.NamespaceList{}); !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("the answer is %w", err)
		}
		return nil
	})
}

// byHand creates the account from its manifests, and deletes it by the commands of docs/how-to/leave.md.
func (j *joinTest) byHand(t *testing.T) {
	spoke := j.Spoke(spokeA)
	kubectl := func(args ...string) string {
		out, err := spoke.Kubectl(t.Context(), args...).CombinedOutput()
		if err != nil {
			t.Fatalf("kubectl %q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	files := filepath.Join("..", "charts", "rulefleet", "files")
	manifests := []string{"-f", filepath.Join(files, "spoke-access.yaml"), "-f", filepath.Join(files, "spoke-policy.yaml")}
	created := append([]string{"apply"}, manifests...)
	kubectl(created...)
	page, err := os.ReadFile(filepath.Join("..", "docs", "how-to", "leave.md"))
	must(t, err)
	found := 0
	for line := range strings.Lines(string(page)) {
		if command, ok := strings.CutPrefix(line, "kubectl --context eu-prod-1 "); ok {
			found++
			kubectl(strings.Fields(command)...)
		}
	}
	left := kubectl(append([]string{"get", "--ignore-not-found", "-o", "name"}, manifests...)...)
	if found < 4 || left != "namespace/"+fleet.Namespace+"\n" {
		t.Errorf("after the %d commands of the page, the spoke has:\n%s", found, left)
	}
}
