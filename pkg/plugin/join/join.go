package join

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/plugin/cluster"
	"github.com/rulefleet/rulefleet/pkg/plugin/env"
	"github.com/rulefleet/rulefleet/pkg/plugin/exit"
	"github.com/rulefleet/rulefleet/pkg/plugin/output"
)

// options are the flags of join.
type options struct {
	name, context, server, auth, labels string
	prometheus                          []string
	duration, timeout                   time.Duration
	noEvaluate, noPolicy, noRenew       bool
	suspend, force, dryRun              bool

	// argocd selects clusters of Argo CD, if fromArgoCD is set.
	argocd, argocdNamespace string
	fromArgoCD              bool
	// access is the connection to use in place of a context, or nil.
	access *cluster.Spoke
	// newLabels are the labels of a spoke that is not registered yet and for which labels are not set.
	newLabels map[string]string
}

// New returns the command join.
func New(e *env.Env) *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "join {NAME --spoke-context CONTEXT | --from-argocd SELECTOR}",
		Short: "Register a cluster as a spoke, or renew its credential",
		Long: `Register a cluster as a spoke, or renew its credential.

The command creates an account with only the permissions that Rulefleet needs in the spoke, puts a kubeconfig
with a token of this account into a Secret on the hub, and waits until the spoke is Ready. It checks your
permissions in both clusters first. The manager renews the token before it expires, unless you set --no-renew.

You can run the command again at any time: it replaces the token, and creates again what was deleted. To overwrite
what other clients changed, add --force-conflicts. The labels, the kind of the token and its duration stay as they
are, unless you set --labels, --auth or --duration. --server, --no-evaluate, --no-renew and --no-policy are not
remembered: set them again.

With --from-argocd, the command registers clusters that Argo CD on the hub has. It supports clusters to which Argo CD
connects with a bearer token or a client certificate, without a proxy and without the option insecure. It lists all
other clusters with the reason.`,
		Example: `  kubectl rulefleet join eu-prod-1 --spoke-context eu-prod-1 -l env=prod,region=eu
  kubectl rulefleet join eu-prod-1 --spoke-context eu-prod-1 --dry-run -o yaml
  kubectl rulefleet join --from-argocd env=prod`,
		ValidArgsFunction: e.CompleteSpokeArg,
	}
	f := cmd.Flags()
	f.StringVar(&o.context, "spoke-context", "", "the `context` of the spoke in your kubeconfig (required without --from-argocd)")
	f.StringVarP(&o.labels, "labels", "l", "", "the labels of the spoke, such as env=prod,region=eu; they replace those of an earlier join, and rules placed by a label that you leave out are removed from the spoke")
	f.StringVar(&o.server, "server", "", "the `URL` at which the hub's pods reach the spoke's API server (default: the address in the context)")
	f.StringVar(&o.auth, "auth", "", "token: a token that expires after --duration; static: a token that does not expire, in a Secret of the spoke (default: as before; token for a new spoke)")
	f.DurationVar(&o.duration, "duration", 0, "how long the token is valid; the spoke may grant less (default: as before; 8760h for a new spoke)")
	f.StringSliceVar(&o.prometheus, "prometheus", nil, "the Prometheus that evaluates the rules, as NAMESPACE/NAME or ThanosRuler/NAMESPACE/NAME, or auto; if this flag is not set and the spoke has several, the command asks which one to use")
	f.BoolVar(&o.noEvaluate, "no-evaluate", false, "omit or revoke the permission to query the spoke's Prometheus")
	f.BoolVar(&o.noRenew, "no-renew", false, "omit or revoke the permission with which the manager renews the token before it expires")
	f.BoolVar(&o.noPolicy, "no-policy", false, "do not apply the policy that limits the account to Rulefleet's own PrometheusRules; a policy that exists stays")
	f.BoolVar(&o.suspend, "suspend", false, "register the spoke suspended, so that no rule is written to it yet")
	f.BoolVar(&o.force, "force-conflicts", false, "overwrite changes that other clients made to the same fields")
	f.BoolVar(&o.dryRun, "dry-run", false, "print the objects, and write nothing")
	env.AddTimeout(cmd, &o.timeout, time.Minute, true, "how long to wait until the spoke is Ready; 0 does not wait")
	argoFlags(cmd, o)
	_ = cmd.RegisterFlagCompletionFunc("spoke-context", e.CompleteContexts)
	_ = cmd.RegisterFlagCompletionFunc("auth", cobra.FixedCompletions([]string{authToken, authStatic}, cobra.ShellCompDirectiveNoFileComp))
	p := e.Printer(cmd, output.FormatYAML, output.FormatJSON, output.FormatName)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if o.fromArgoCD {
			return joinArgoCD(cmd.Context(), e, o, p)
		}
		o.name = args[0]
		return join(cmd.Context(), e, o, p)
	}
	return cmd
}

func join(ctx context.Context, e *env.Env, o *options, p *output.Printer) error {
	j, err := prepare(ctx, e, o, p)
	if err != nil {
		return err
	}
	if o.dryRun {
		return j.show()
	}
	return j.run(ctx)
}

// joining is a join whose preflight has passed.
type joining struct {
	*env.Env
	*options
	p *output.Printer

	hub            client.Client
	spoke          *cluster.Spoke
	namespace      string // of the Secret on the hub
	spokes         []v1alpha1.SpokeCluster
	present        *v1alpha1.SpokeCluster
	labels         map[string]string
	refs           []v1alpha1.EvaluatorReference
	endpoint       endpoint
	apply, removed []*unstructured.Unstructured
	// registered is the present Secret on the hub, or nil.
	registered *corev1.Secret
}

// prepare checks everything that can be checked without a write.
func prepare(ctx context.Context, e *env.Env, o *options, p *output.Printer) (*joining, error) {
	j := &joining{Env: e, options: o, p: p, namespace: e.Hub.SystemNamespace()}
	if err := j.checkFlags(); err != nil {
		return nil, err
	}
	var err error
	if j.hub, err = e.Hub.Connect(); err != nil {
		return nil, err
	}
	if j.spoke = o.access; j.spoke == nil {
		if j.spoke, err = e.Hub.Spoke(o.context); err != nil {
			return nil, err
		}
	}
	if err := j.chooseEndpoint(); err != nil {
		return nil, err
	}
	if err := j.checkHub(ctx); err != nil {
		return nil, err
	}
	if err := j.chooseAccess(); err != nil {
		return nil, err
	}
	if err := j.checkSpoke(ctx); err != nil {
		return nil, err
	}
	return j, nil
}

// chooseAccess decides what the account may do. For a token that does not expire, the permission to renew is not granted.
// It is not revoked either, because another hub may use the account.
func (j *joining) chooseAccess() (err error) {
	var without []string
	if j.noEvaluate {
		without = append(without, evaluateComponent)
	}
	if j.noRenew || j.auth == authStatic {
		without = append(without, renewComponent)
	}
	j.apply, j.removed, err = accessObjects(without...)
	if !j.noRenew {
		j.removed = slices.DeleteFunc(j.removed, func(o *unstructured.Unstructured) bool { return o.GetLabels()[componentLabel] == renewComponent })
	}
	return err
}

// renews reports whether the manager is to renew the token.
func (j *joining) renews() bool { return !j.noRenew && j.auth == authToken }

func (j *joining) checkFlags() error {
	var err error
	switch {
	case !nameable(j.name):
		return exit.New(exit.Usage, "Use lower case letters, digits, - and dots.", "%q cannot be the name of a spoke", j.name)
	case j.context == "" && j.access == nil:
		return exit.New(exit.Usage, "List them: kubectl config get-contexts", "--spoke-context is missing; name the context of the spoke in your kubeconfig")
	case j.auth != "" && j.auth != authToken && j.auth != authStatic:
		return exit.New(exit.Usage, "", "--auth %q is not known; use token or static", j.auth)
	case j.duration != 0 && j.duration < minDuration:
		return exit.New(exit.Usage, "", "--duration %v is too short: the minimum is 10m", j.duration)
	}
	if j.refs, err = evaluators(j.prometheus); err != nil {
		return err
	}
	if j.labels, err = parseLabels(j.options.labels); err != nil {
		return err
	}
	return j.p.Check()
}

// nameable reports whether a spoke, and so a Secret, can have this name.
func nameable(name string) bool { return len(validation.IsDNS1123Subdomain(name)) == 0 }

func parseLabels(text string) (map[string]string, error) {
	set, err := labels.ConvertSelectorToLabelsMap(text)
	if err != nil {
		return nil, exit.New(exit.Usage, "", "--labels: %w", err)
	}
	return set, nil
}

func (j *joining) chooseEndpoint() error {
	cfg := j.spoke.Config
	j.endpoint = endpoint{server: j.server, serverName: cfg.ServerName, authority: cfg.CAData}
	if j.server == "" {
		j.endpoint.server = cfg.Host
	}
	if cfg.Insecure {
		return exit.New(exit.Usage, "Put the certificate authority of the spoke into the context: kubectl config set-cluster --certificate-authority FILE --embed-certs",
			"%s skips the verification of the API server's certificate, which the hub refuses", j.spoke.Origin)
	}
	warning, err := checkServer(j.endpoint.server)
	if warning != "" {
		j.Say("Warning: %s", warning)
	}
	return err
}

func (j *joining) checkHub(ctx context.Context) error {
	var spokes v1alpha1.SpokeClusterList
	if err := permit(ctx, j.hub, onHub, hubRights(j.namespace, j.name, j.suspend || len(j.refs) > 0)); err != nil {
		return err
	}
	// Without the permission to read it, the namespace is not checked.
	if err := j.hub.Get(ctx, client.ObjectKey{Name: j.namespace}, &corev1.Namespace{}); apierrors.IsNotFound(err) {
		return exit.New(exit.Missing, "Name Rulefleet's own namespace with --namespace, or install Rulefleet: kubectl rulefleet install", "namespace %q not found on the hub", j.namespace)
	}
	if err := j.hub.List(ctx, &spokes); err != nil {
		return fmt.Errorf("listing the SpokeClusters: %w", err)
	}
	if i := slices.IndexFunc(spokes.Items, func(s v1alpha1.SpokeCluster) bool { return s.Name == j.name }); i >= 0 {
		j.present = &spokes.Items[i]
	}
	if j.present != nil && !j.present.DeletionTimestamp.IsZero() {
		return exit.New(exit.Failed, "Wait until it is gone: kubectl rulefleet spokes", "spoke %s is being deleted", j.name)
	}
	j.spokes = spokes.Items
	return j.checkSecret(ctx)
}

// isRegistration reports whether a Secret is the registration of a spoke. A registration can lack its kubeconfig or its label.
func isRegistration(s *corev1.Secret) bool {
	_, ok := s.Data[v1alpha1.KubeconfigKey]
	return ok || s.Labels[v1alpha1.RegistrationLabel] == "true"
}

// checkSecret refuses to overwrite a Secret that is not a registration, and keeps the labels and the kind of token of one
// that is.
func (j *joining) checkSecret(ctx context.Context) error {
	var s corev1.Secret
	err := j.hub.Get(ctx, client.ObjectKey{Namespace: j.namespace, Name: j.name}, &s)
	if apierrors.IsNotFound(err) {
		if len(j.labels) == 0 {
			j.labels = j.newLabels
		}
		return j.chooseCredential(nil)
	}
	if err != nil {
		return fmt.Errorf("reading Secret %s/%s on the hub: %w", j.namespace, j.name, err)
	}
	if !isRegistration(&s) {
		return exit.New(exit.Failed, "If it is used for something else, choose another name. If it is left from this spoke, delete it, and run the command again.",
			"Secret %s/%s exists on the hub, but is not the registration of a spoke: it has neither the key %s nor the label %s=true", j.namespace, j.name, v1alpha1.KubeconfigKey, v1alpha1.RegistrationLabel)
	}
	j.registered = &s
	if len(j.labels) == 0 {
		j.labels = s.Labels
	}
	return j.chooseCredential(s.Data[v1alpha1.KubeconfigKey])
}

func (j *joining) checkSpoke(ctx context.Context) error {
	const where = "in the spoke"
	if err := j.addPolicy(); err != nil {
		return err
	}
	if err := permit(ctx, j.spoke.Client, where, spokeRights(j.apply, j.removed, j.auth == authStatic)); err != nil {
		return err
	}
	granted, err := cluster.Grants(j.apply)
	if err != nil {
		return err
	}
	if err := permitGrants(ctx, j.spoke.Client, where, granted); err != nil {
		return err
	}
	uid, err := identity(ctx, j.spoke.Client)
	if err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	if err := checkIdentity(j.name, uid, j.spokes); err != nil {
		return err
	}
	return j.chooseEvaluators(ctx)
}

// addPolicy adds the policy to what is applied, if the spoke serves such policies.
func (j *joining) addPolicy() error {
	if j.noPolicy {
		return nil
	}
	served, err := servesPolicies(j.spoke.Client)
	if err != nil {
		return err
	}
	if !served {
		j.Say("Warning: the spoke does not serve ValidatingAdmissionPolicies, so its account can change every PrometheusRule there.")
		return nil
	}
	policy, err := policyObjects()
	j.apply = append(j.apply, policy...)
	return err
}

// show prints what would be written.
func (j *joining) show() error {
	token := "the token of ServiceAccount " + cluster.DefaultNamespace + "/" + account
	config, err := j.endpoint.kubeconfig("<" + token + ">")
	if err != nil {
		return err
	}
	s := secret(j.namespace, j.name, j.labels, j.renews())
	s.StringData = map[string]string{v1alpha1.KubeconfigKey: string(config)}
	objects := make([]runtime.Object, 0, len(j.apply)+3)
	for _, o := range j.apply {
		objects = append(objects, o)
	}
	if j.auth == authStatic {
		objects = append(objects, staticToken())
	} else {
		objects = append(objects, boundTo())
	}
	inSpoke := len(objects)
	if sc := j.wantedSpoke(); sc != nil {
		objects = append(objects, sc)
	}
	objects = append(objects, s)
	for i, o := range objects {
		where := "in the spoke, " + j.spoke.Origin
		if i >= inSpoke {
			where = onHub
		}
		if err := j.p.Document(where, o); err != nil {
			return err
		}
	}
	for _, o := range j.removed {
		j.Say("%s %s would be removed from the spoke.", o.GetKind(), o.GetName())
	}
	return nil
}

// wantedSpoke returns the SpokeCluster to create or change, or nil. A join without the flags leaves it as it
// is: to renew a token must not resume a spoke.
func (j *joining) wantedSpoke() *v1alpha1.SpokeCluster {
	if !j.suspend && len(j.refs) == 0 {
		return nil
	}
	s := &v1alpha1.SpokeCluster{}
	s.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("SpokeCluster"))
	s.Name = j.name
	if j.present != nil {
		j.present.Spec.DeepCopyInto(&s.Spec)
	}
	if j.suspend {
		s.Spec.Suspend = new(true)
	}
	if len(j.refs) > 0 {
		s.Spec.EvaluatorRefs = j.refs
	}
	return s
}

func (j *joining) run(ctx context.Context) error {
	j.Say("In the spoke (%s): ServiceAccount %s/%s and its permissions", j.spoke.Origin, cluster.DefaultNamespace, account)
	if err := j.grant(ctx); err != nil {
		return err
	}
	token, expires, err := j.credential(ctx)
	if err != nil {
		return err
	}
	rights, err := cluster.Grants(j.apply)
	if err != nil {
		return err
	}
	asAccount, err := j.spoke.As(token)
	if err != nil {
		return err
	}
	if err := verify(ctx, asAccount, rights, credentialTimeout); err != nil {
		return err
	}
	if err := j.configure(ctx); err != nil {
		return err
	}
	j.Say("On the hub: Secret %s/%s, server %s, token %s", j.namespace, j.name, j.endpoint.server, expires)
	config, err := j.endpoint.kubeconfig(token)
	if err != nil {
		return err
	}
	if err := j.register(ctx, config); err != nil {
		return err
	}
	if j.timeout == 0 {
		return nil
	}
	return j.await(ctx)
}

// describeLabels formats labels in a stable order.
func describeLabels(set map[string]string) string {
	set = maps.Clone(set)
	delete(set, v1alpha1.RegistrationLabel)
	return labels.FormatLabels(set)
}
