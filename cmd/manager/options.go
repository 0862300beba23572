package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	"github.com/prometheus/common/model"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/apimachinery/pkg/api/resource"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"github.com/rulefleet/rulefleet/pkg/controller/evaluate"
	"github.com/rulefleet/rulefleet/pkg/controller/generate"
	"github.com/rulefleet/rulefleet/pkg/interval"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/builtin"
	"github.com/rulefleet/rulefleet/pkg/rule/compat"
	"github.com/rulefleet/rulefleet/pkg/rule/validation"
	"github.com/rulefleet/rulefleet/pkg/spoke"
	"github.com/rulefleet/rulefleet/pkg/spoke/kubeconfig"
	"github.com/rulefleet/rulefleet/pkg/webhook/certs"
)

// maxIntervalScale limits --interval-scale, so that no interval is longer than a few hours.
const maxIntervalScale = 10

// minEvaluatorInterval is the minimum time between two polls of a spoke's Prometheus.
const minEvaluatorInterval = 5 * time.Second

// defaultTenantRules is half of the alerting rules that are supported for one Prometheus.
const defaultTenantRules = 1000

// options are the manager's flags.
type options struct {
	kubeconfig         string
	namespace          string
	generatedNamespace string
	ruleNamespace      string
	hubID              string
	clusterLabel       string
	kubeStateMetrics   string
	metricsAddress     string
	metricsSecure      bool
	metricsService     string
	healthAddress      string
	profileAddress     string
	leaderElect        bool
	deletionHold       time.Duration
	evaluatorInterval  time.Duration
	evaluatorSpaces    string
	operatorSpaces     string
	checkMetrics       bool
	intervals          interval.Scale
	leaveTimeout       time.Duration
	trackingLabels     string
	webhookPort        int
	webhookService     string
	webhookConfig      string
	webhookHosts       string
	webhookLifetime    time.Duration
	webhookCertDir     string
	logFormat          string
	logLevel           string
	version            bool
	releaseSpokes      bool
	renewTokens        bool
	renewalScale       float64

	builtInTemplates string
	enabledTemplates []string // its parsed value

	prometheusVersion, prometheusFeatures string
	evaluator                             *rule.Evaluator // their parsed values

	spokeMaxMemory string
	limits         spoke.Limits // the parsed values of the flags
	spokeMaxWrites int

	spokeNamespaceShare int

	allowKubeconfig string
	allow           kubeconfig.Allowances // its parsed value

	protectedLabels string
	tenantMaxRules  int
	tenancy         rule.Tenancy // the parsed values of the flags
}

// inClusterNamespace is the file in which a pod finds the name of its own namespace.
const inClusterNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// parse reads and validates the flags.
func parse(args []string, out io.Writer) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("rulefleet-manager", flag.ContinueOnError)
	f.SetOutput(out)
	o.define(f)
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil, flag.ErrHelp
		}
		return nil, fmt.Errorf("%w; see --help", err)
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q; see --help", f.Arg(0))
	}
	if err := o.validate(); err != nil {
		return nil, err
	}
	return o, nil
}

// define defines the flags.
func (o *options) define(f *flag.FlagSet) {
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig `file` of the hub; if empty, $KUBECONFIG, the pod's ServiceAccount or ~/.kube/config is used")
	f.StringVar(&o.namespace, "namespace", ownNamespace(), "the manager's own `namespace`, which holds the Secrets of the spokes; AlertRules and RulePacks in it can write to any namespace of the spokes")
	f.StringVar(&o.generatedNamespace, "generated-namespace", "rulefleet-generated", "hub `namespace` of the AlertRules that templates generate; created if missing")
	f.StringVar(&o.ruleNamespace, "rule-namespace", "monitoring", "`namespace` in the spokes for AlertRules and RulePacks in the manager's own namespace that set neither spec.ruleNamespace nor spec.workloadRef, if the spoke's Prometheus is not known; otherwise the namespace of that Prometheus is used")
	f.StringVar(&o.hubID, "hub-id", "", "`id` of this hub, a label value, set on every object that it writes to spokes; if empty, a random id is created and stored in ConfigMap "+hubConfigMap)
	f.StringVar(&o.clusterLabel, "cluster-label", "cluster", "`label` that identifies the cluster in every alert; its value is the external label cluster of the spoke's Prometheus or, without one, the spoke's name; empty for no label")
	f.StringVar(&o.kubeStateMetrics, "kube-state-metrics-selector", "", "PromQL `matchers`, such as job=\"kube-state-metrics\", with which the built-in templates select the series of kube-state-metrics; empty for none."+
		" The matchers must match in every spoke. A change updates the built-in templates that were not edited")
	f.StringVar(&o.builtInTemplates, "built-in-templates", strings.Join(builtin.Enabled(), ","), "comma-separated `names` of the built-in templates to enable, out of "+
		strings.Join(builtin.Names(), ", ")+". If you add or remove a template here, its state on the hub is replaced")
	f.StringVar(&o.prometheusVersion, "prometheus-version", "", "`version` of the oldest Prometheus in the fleet, such as 2.53; rules that it can't parse are refused; if empty, each rule is only checked against the version of the Prometheus in each spoke")
	f.StringVar(&o.prometheusFeatures, "prometheus-features", "", "comma-separated `names` of the features that every Prometheus in the fleet enables (--enable-feature), such as promql-experimental-functions")
	f.StringVar(&o.allowKubeconfig, "allow-kubeconfig", "", "comma-separated `names` of features that kubeconfigs of spokes can use although they are refused by default: loopback, link-local (addresses of the server),"+
		" http (plain http), insecure-tls (insecure-skip-tls-verify), proxy-url; SPOKE=NAME allows a feature for one spoke only. loopback and link-local also apply to spec.evaluatorRefs[].url of a SpokeCluster")
	f.StringVar(&o.protectedLabels, "protected-labels", "", "comma-separated `labels` of alerts, such as team, that decide who is notified; only AlertRules and RulePacks in the manager's own namespace can set them;"+
		" they are removed from all other alerts, whether the template, an override or the series set them. The label namespace is always protected in these alerts: it is the namespace of the workload or, without one, of the PrometheusRule")
	f.DurationVar(&o.tenancy.MinInterval, "tenant-min-interval", rule.DefaultMinInterval, "minimum `duration` in spec.interval of AlertRules, and in interval of the groups of RulePacks, outside of the manager's own namespace")
	f.IntVar(&o.tenantMaxRules, "tenant-max-rules", defaultTenantRules, "maximum `number` of rules (AlertRules, and the rules in RulePacks) in each hub namespace other than the manager's own and the one of generated AlertRules; later ones wait (reason LimitExceeded), and accepted ones stay. 0 for no limit")
	f.BoolVar(&o.tenancy.EnforceNamespace, "enforce-namespace", false, "restrict the expressions of AlertRules and RulePacks outside of the manager's own namespace to series whose label namespace is the namespace of the AlertRule or RulePack; generated AlertRules are not restricted")
	f.IntVar(&o.limits.Objects, "spoke-max-objects", spoke.DefaultMaxObjects, "maximum `number` of objects of each kind (workloads, namespaces, PrometheusRules) in a spoke; the rules of a spoke with more are not managed (reason TooLarge)")
	f.StringVar(&o.spokeMaxMemory, "spoke-max-memory", "48Mi", "maximum `quantity` of memory for the cached objects of a spoke, at least 36Mi, such as 48Mi; one page of a list can use at most a third of it, the metadata of one workload or namespace a quarter, and any other object a twenty-fourth")
	f.IntVar(&o.spokeMaxWrites, "spoke-max-writes", generate.DefaultWrites, "maximum `number` of writes a second that one spoke can cause. It applies to two kinds of writes, each on its own: updates of generated AlertRules after changes of its workloads, and status updates of rules that change back and forth. Short bursts of ten times this number are allowed, and new AlertRules are not limited")
	f.IntVar(&o.spokeNamespaceShare, "spoke-namespace-share", generate.DefaultNamespaceShare, "maximum `percentage` of spec.maxRules of a SpokeCluster that the workloads of one namespace of the spoke can use; the rest is for its other namespaces")
	f.StringVar(&o.metricsAddress, "metrics-bind-address", ":8080", "`address` of the metrics endpoint; 0 disables it")
	f.BoolVar(&o.metricsSecure, "metrics-secure", false, "serve metrics over https, and only to clients that are allowed to get /metrics on the hub")
	f.StringVar(&o.metricsService, "metrics-service", "rulefleet-metrics", "`name` of the Service in the manager's namespace through which metrics are scraped; with https, the webhook's certificate authority issues a certificate for it")
	f.StringVar(&o.healthAddress, "health-probe-bind-address", ":8081", "`address` of /healthz and /readyz; 0 disables them")
	f.StringVar(&o.profileAddress, "pprof-bind-address", "0", "loopback `address`, such as 127.0.0.1:6060, at which Go's profiles are served under /debug/pprof; 0 disables them. With kubectl port-forward, they can be read from outside the pod")
	f.BoolVar(&o.leaderElect, "leader-elect", true, "elect one of several replicas as leader, with a Lease in the manager's namespace")
	f.StringVar(&o.evaluatorSpaces, "evaluator-namespaces", allNamespaces, "comma-separated `namespaces` in each spoke from which Rulefleet can automatically choose a Prometheus or ThanosRuler object to evaluate the rules; * for all."+
		" spec.evaluatorRefs of a SpokeCluster can name objects in other namespaces")
	f.StringVar(&o.operatorSpaces, "prometheus-operator-namespaces", "", "comma-separated `namespaces` of the spokes to search for prometheus-operator if it does not run in the namespace of the Prometheus;"+
		" Rulefleet reads the flags of prometheus-operator to know from which namespaces it takes PrometheusRules")
	f.DurationVar(&o.evaluatorInterval, "evaluator-poll-interval", evaluate.DefaultInterval, "`duration` between two polls of a spoke's Prometheus for the rules that it evaluates and the alerts that fire; at least 5s")
	f.Float64Var((*float64)(&o.intervals), "interval-scale", 1, "`factor` by which the intervals of probes and polls of spokes, and most delays before a retry, are multiplied; for tests")
	f.BoolVar(&o.checkMetrics, "check-metrics", true, "check whether a spoke's Prometheus has series for every selector of the rules' expressions, and report selectors without series")
	f.DurationVar(&o.deletionHold, "deletion-hold", 10*time.Minute, "`duration` within which at most 20 rules of a spoke are deleted, or a quarter of its rules if that is more. Further deletions are held for this duration, and then carried out. After you confirm that another cluster replaces a spoke (reason IdentityChanged), every deletion in that spoke is held for this duration. 0 disables the limit and these holds. Deletions that may be caused by a loss of objects on the hub always wait for an acknowledgement")
	f.DurationVar(&o.leaveTimeout, "leave-timeout", 2*time.Minute, "`duration` for which the manager tries to reach a spoke to remove its rules after its SpokeCluster was deleted; rules that are left after that stay in the spoke")
	f.StringVar(&o.trackingLabels, "tracking-labels", "", "comma-separated `labels`, such as example.com/argocd-app, and domains, such as example.com, that are not copied from the Secret of a spoke to its SpokeCluster. A domain stands for all labels with this prefix, and with subdomains of it. Add the labels by which a GitOps tool tracks its objects: otherwise the tool may prune the SpokeCluster."+
		" Those of Kubernetes, Argo CD, Flux, Helm, kapp and Rancher Fleet are never copied")
	f.BoolVar(&o.renewTokens, "renew-tokens", true, "renew the tokens of spokes that kubectl rulefleet join has registered, when a third of their life is left")
	f.Float64Var(&o.renewalScale, "renewal-scale", 1, "`factor`, at most 1, for the age at which the tokens of spokes are renewed; for tests")
	f.IntVar(&o.webhookPort, "webhook-port", 9443, "`port` of the admission webhook; 0 disables it")
	f.StringVar(&o.webhookService, "webhook-service", "rulefleet-webhook", "`name` of the Service in the manager's namespace through which the hub's API server calls the webhook")
	f.StringVar(&o.webhookConfig, "webhook-config", "rulefleet", "`name` of the ValidatingWebhookConfiguration whose caBundle the manager maintains; it does not have to exist")
	f.StringVar(&o.webhookHosts, "webhook-hosts", "", "comma-separated additional host `names` and addresses of the webhook, if the API server calls it by URL")
	f.DurationVar(&o.webhookLifetime, "webhook-cert-lifetime", 90*24*time.Hour, "`duration` for which the webhook's serving certificate is valid; it is replaced after about two thirds of that time, and its authority is valid four times as long")
	f.StringVar(&o.webhookCertDir, "webhook-cert-dir", "", "`directory` with tls.crt and tls.key of the webhook and, with --metrics-secure, of the metrics, for use if another program, such as cert-manager, maintains these and the caBundle; if empty, the manager maintains them")
	f.StringVar(&o.logFormat, "log-format", "json", "`format` of the log: json or console")
	f.StringVar(&o.logLevel, "log-level", "info", "minimum `level` of log entries: debug, info, warn or error")
	f.BoolVar(&o.releaseSpokes, "release-spokes", false, "remove Rulefleet's finalizer from every SpokeCluster and exit; for use after Rulefleet was uninstalled. Nothing is changed in the spokes")
	f.BoolVar(&o.version, "version", false, "print the version and exit")
}

func (o *options) validate() error {
	var errs []error
	for flagName, ns := range map[string]string{"namespace": o.namespace, "generated-namespace": o.generatedNamespace, "rule-namespace": o.ruleNamespace} {
		if msgs := utilvalidation.IsDNS1123Label(ns); len(msgs) > 0 {
			errs = append(errs, fmt.Errorf("--%s: %q is not a valid namespace name: %s", flagName, ns, strings.Join(msgs, "; ")))
		}
	}
	errs = append(errs, o.validateNamespaces())
	if o.namespace == o.generatedNamespace {
		errs = append(errs, fmt.Errorf("--generated-namespace: must not be the same as --namespace (%s), whose AlertRules may write to any namespace", o.namespace))
	}
	if msgs := utilvalidation.IsValidLabelValue(o.hubID); len(msgs) > 0 {
		errs = append(errs, fmt.Errorf("--hub-id: %q is not a valid label value: %s", o.hubID, strings.Join(msgs, "; ")))
	}
	if o.clusterLabel != "" && !model.LegacyValidation.IsValidLabelName(o.clusterLabel) {
		errs = append(errs, fmt.Errorf("--cluster-label: %q is not a valid Prometheus label name", o.clusterLabel))
	}
	if slices.Contains([]string{"alertname", rule.SeverityLabel, rule.NamespaceLabel}, o.clusterLabel) || rule.NamesWorkload(o.clusterLabel) || strings.HasPrefix(o.clusterLabel, "__") {
		errs = append(errs, fmt.Errorf("--cluster-label: %q is reserved; use another label", o.clusterLabel))
	}
	errs = append(errs, o.validateDurations(), o.validateBuiltIns())
	if err := builtin.ValidateSelector(o.kubeStateMetrics); err != nil {
		errs = append(errs, fmt.Errorf("--kube-state-metrics-selector: %w", err))
	}
	errs = append(errs, o.validateKubeconfigs(), o.validateLimits(), o.validateTenancy(), o.validateWebhook(), o.validateProfiles())
	evaluator, err := compat.Parse(o.prometheusVersion, o.prometheusFeatures)
	if err != nil {
		errs = append(errs, fmt.Errorf("--prometheus-version: %w", err))
	}
	o.evaluator = evaluator
	if o.logFormat != "json" && o.logFormat != "console" {
		errs = append(errs, fmt.Errorf("--log-format: unknown format %q; use json or console", o.logFormat))
	}
	if _, err := zapcore.ParseLevel(o.logLevel); err != nil {
		errs = append(errs, fmt.Errorf("--log-level: unknown level %q; use debug, info, warn or error", o.logLevel))
	}
	return errors.Join(errs...)
}

func (o *options) validateDurations() error {
	var errs []error
	if !(o.intervals > 0 && o.intervals <= maxIntervalScale) { // false for NaN
		errs = append(errs, fmt.Errorf("--interval-scale: %v is out of range; use a value above 0, up to %v", o.intervals, maxIntervalScale))
	}
	if !(o.renewalScale > 0 && o.renewalScale <= 1) {
		errs = append(errs, fmt.Errorf("--renewal-scale: %v is out of range; use a value above 0, up to 1", o.renewalScale))
	}
	if o.evaluatorInterval < minEvaluatorInterval {
		errs = append(errs, fmt.Errorf("--evaluator-poll-interval: %v is too short; use at least %v", o.evaluatorInterval, minEvaluatorInterval))
	}
	for flagName, d := range map[string]time.Duration{"deletion-hold": o.deletionHold, "leave-timeout": o.leaveTimeout} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("--%s: %v is negative; use 0 or more", flagName, d))
		}
	}
	return errors.Join(errs...)
}

// allNamespaces is the value of --evaluator-namespaces for all namespaces.
const allNamespaces = "*"

func (o *options) validateNamespaces() error {
	var errs []error
	if o.evaluatorSpaces != allNamespaces && len(o.evaluatorNamespaces()) == 0 {
		errs = append(errs, errors.New("--evaluator-namespaces: must not be empty; list namespaces, or use * for all"))
	}
	for flagName, names := range map[string][]string{"evaluator-namespaces": o.evaluatorNamespaces(), "prometheus-operator-namespaces": fields(o.operatorSpaces)} {
		for _, ns := range names {
			if msgs := utilvalidation.IsDNS1123Label(ns); len(msgs) > 0 {
				errs = append(errs, fmt.Errorf("--%s: %q is not a valid namespace name: %s", flagName, ns, strings.Join(msgs, "; ")))
			}
		}
	}
	return errors.Join(errs...)
}

// evaluatorNamespaces returns the namespaces in the flag, or nil for all.
func (o *options) evaluatorNamespaces() []string {
	if o.evaluatorSpaces == allNamespaces {
		return nil
	}
	return fields(o.evaluatorSpaces)
}

func (o *options) validateBuiltIns() error {
	o.enabledTemplates = fields(o.builtInTemplates)
	for _, name := range o.enabledTemplates {
		if !slices.Contains(builtin.Names(), name) {
			return fmt.Errorf("--built-in-templates: unknown template %q; use %s", name, strings.Join(builtin.Names(), ", "))
		}
	}
	return nil
}

func (o *options) validateKubeconfigs() error {
	allow, err := kubeconfig.ParseAllowances(o.allowKubeconfig)
	if err != nil {
		return fmt.Errorf("--allow-kubeconfig: %w", err)
	}
	o.allow = allow
	return nil
}

func (o *options) validateTenancy() error {
	var errs []error
	o.tenancy.ProtectedLabels = fields(o.protectedLabels)
	if err := validation.ProtectedLabels(o.tenancy.ProtectedLabels, o.clusterLabel); err != nil {
		errs = append(errs, fmt.Errorf("--protected-labels: %w", err))
	}
	if o.tenantMaxRules < 0 {
		errs = append(errs, fmt.Errorf("--tenant-max-rules: %d is negative; use 0 or more", o.tenantMaxRules))
	}
	if d := o.tenancy.MinInterval; d < 0 || d%time.Millisecond != 0 {
		errs = append(errs, fmt.Errorf("--tenant-min-interval: %v is not valid; use 0 or more, in whole milliseconds", d))
	}
	return errors.Join(errs...)
}

// minSpokeMemory is the least value with which every Deployment and namespace that an API server accepts is within
// spoke.Limits: their metadata can have 9 MiB. Otherwise, anyone who can write one could end the session of the spoke.
const minSpokeMemory = 36 << 20

func (o *options) validateLimits() error {
	var errs []error
	if o.limits.Objects < 1 {
		errs = append(errs, fmt.Errorf("--spoke-max-objects: %d is too small; use at least 1", o.limits.Objects))
	}
	for _, label := range fields(o.trackingLabels) {
		if bad := utilvalidation.IsQualifiedName(label); len(bad) > 0 {
			errs = append(errs, fmt.Errorf("--tracking-labels: %q is neither a label nor a domain such as example.com: %s", label, strings.Join(bad, "; ")))
		}
	}
	if o.spokeMaxWrites < 1 {
		errs = append(errs, fmt.Errorf("--spoke-max-writes: %d is too small; use at least 1", o.spokeMaxWrites))
	}
	if o.spokeNamespaceShare < 1 || o.spokeNamespaceShare > 100 {
		errs = append(errs, fmt.Errorf("--spoke-namespace-share: %d is out of range; use 1 to 100", o.spokeNamespaceShare))
	}
	memory, err := resource.ParseQuantity(o.spokeMaxMemory)
	switch {
	case err != nil:
		errs = append(errs, fmt.Errorf("--spoke-max-memory: %q is not a quantity such as 48Mi: %w", o.spokeMaxMemory, err))
	case memory.Value() < minSpokeMemory:
		errs = append(errs, fmt.Errorf("--spoke-max-memory: %s is too small; use at least 36Mi", o.spokeMaxMemory))
	}
	o.limits.Memory = memory.Value()
	return errors.Join(errs...)
}

func (o *options) validateWebhook() error {
	if o.webhookPort == 0 {
		return nil
	}
	var errs []error
	if msgs := utilvalidation.IsValidPortNum(o.webhookPort); len(msgs) > 0 {
		errs = append(errs, fmt.Errorf("--webhook-port: %d is not a valid port: %s", o.webhookPort, strings.Join(msgs, "; ")))
	}
	if msgs := utilvalidation.IsDNS1035Label(o.webhookService); len(msgs) > 0 {
		errs = append(errs, fmt.Errorf("--webhook-service: %q is not a valid Service name: %s", o.webhookService, strings.Join(msgs, "; ")))
	}
	if msgs := utilvalidation.IsDNS1123Subdomain(o.webhookConfig); len(msgs) > 0 {
		errs = append(errs, fmt.Errorf("--webhook-config: %q is not a valid name of a ValidatingWebhookConfiguration: %s", o.webhookConfig, strings.Join(msgs, "; ")))
	}
	if msgs := utilvalidation.IsDNS1035Label(o.metricsService); len(msgs) > 0 {
		errs = append(errs, fmt.Errorf("--metrics-service: %q is not a valid Service name: %s", o.metricsService, strings.Join(msgs, "; ")))
	}
	if l := o.webhookLifetime; l < certs.MinLifetime || l > certs.MaxLifetime {
		errs = append(errs, fmt.Errorf("--webhook-cert-lifetime: %v is out of range; use %v to %v", l, certs.MinLifetime, certs.MaxLifetime))
	}
	for _, host := range o.furtherHosts() {
		if net.ParseIP(host) == nil && len(utilvalidation.IsDNS1123Subdomain(host)) > 0 {
			errs = append(errs, fmt.Errorf("--webhook-hosts: %q is not a DNS name or an IP address", host))
		}
	}
	return errors.Join(errs...)
}

// validateProfiles refuses to serve profiles to other machines: they show what is in memory.
func (o *options) validateProfiles() error {
	if o.profileAddress == "0" {
		return nil
	}
	host, _, err := net.SplitHostPort(o.profileAddress)
	if err != nil {
		return fmt.Errorf("--pprof-bind-address: %w", err)
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("--pprof-bind-address: %q is not a loopback address; use 127.0.0.1 or ::1", host)
	}
	return nil
}

func (o *options) furtherHosts() []string { return fields(o.webhookHosts) }

// ownCertificate reports whether the manager creates the webhook's certificate itself.
func (o *options) ownCertificate() bool { return o.webhookPort != 0 && o.webhookCertDir == "" }

// fields splits a comma-separated list.
func fields(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
}

func ownNamespace() string {
	if ns, err := os.ReadFile(inClusterNamespace); err == nil {
		return strings.TrimSpace(string(ns))
	}
	return "rulefleet-system"
}

// logger creates the zap logger behind logr.
func (o *options) logger() (logr.Logger, error) {
	level, err := zap.ParseAtomicLevel(o.logLevel)
	if err != nil {
		return logr.Logger{}, fmt.Errorf("--log-level: %w", err)
	}
	cfg := zap.NewProductionConfig()
	cfg.Level, cfg.Encoding = level, o.logFormat
	cfg.EncoderConfig.EncodeTime = zapcore.RFC3339TimeEncoder
	cfg.DisableStacktrace = true // errors are wrapped with the failed action
	cfg.Sampling = nil
	z, err := cfg.Build(zap.WrapCore(newClipped))
	if err != nil {
		return logr.Logger{}, fmt.Errorf("setting up the log: %w", err)
	}
	return zapr.NewLogger(z), nil
}
