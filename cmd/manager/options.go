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
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rulefleet/rulefleet/pkg/controller/evaluate"
	"github.com/rulefleet/rulefleet/pkg/controller/generate"
	"github.com/rulefleet/rulefleet/pkg/interval"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/spoke"
	"github.com/rulefleet/rulefleet/pkg/webhook/certs"
)

// maxIntervalScale bounds --interval-scale: no interval is longer than a few hours.
const maxIntervalScale = 10

// minEvaluatorInterval is the least time between two polls of a spoke's Prometheus.
const minEvaluatorInterval = 5 * time.Second

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
	leaderElect        bool
	deletionHold       time.Duration
	evaluatorInterval  time.Duration
	evaluatorSpaces    string
	operatorSpaces     string
	checkMetrics       bool
	intervals          interval.Scale
	leaveTimeout       time.Duration
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

	builtInTemplates string
	enabledTemplates []string // what it says

	prometheusVersion, prometheusFeatures string
	evaluator                             *rule.Evaluator // what they say

	spokeMaxMemory string
	limits         spoke.Limits // what the flags say
	spokeMaxWrites int

	allowKubeconfig string
	allow           spoke.Allowances // what it says
}

// inClusterNamespace is where a pod finds the name of its own namespace.
const inClusterNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// parse reads the flags, and says what is wrong with them.
func parse(args []string, out io.Writer) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("rulefleet-manager", flag.ContinueOnError)
	f.SetOutput(out)
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "`file` to reach the hub with; $KUBECONFIG, the pod's ServiceAccount or ~/.kube/config when empty")
	f.StringVar(&o.namespace, "namespace", ownNamespace(), "the operator's own `namespace`: spokes' Secrets are read there, and AlertRules there may go anywhere")
	f.StringVar(&o.generatedNamespace, "generated-namespace", "rulefleet-generated", "hub `namespace` of the AlertRules that templates make; made when missing")
	f.StringVar(&o.ruleNamespace, "rule-namespace", "monitoring", "`namespace` in the spokes for AlertRules of the operator's own namespace that name none")
	f.StringVar(&o.hubID, "hub-id", "", "`id` of this hub, a label value, which marks what it pushes; when empty, random and kept in ConfigMap "+hubConfigMap)
	f.StringVar(&o.clusterLabel, "cluster-label", "cluster", "`label` with the spoke's name that every pushed alert carries; empty for none")
	f.StringVar(&o.kubeStateMetrics, "kube-state-metrics-selector", "", "PromQL `matchers`, such as job=\"kube-state-metrics\", that the built-in templates pick kube-state-metrics' series by; empty for none."+
		" It has to fit every spoke. Built-in templates that nobody edited follow a change")
	f.StringVar(&o.builtInTemplates, "built-in-templates", strings.Join(rule.EnabledBuiltIns(), ","), "`names`, between commas, of the built-in templates that are enabled, of "+
		strings.Join(rule.BuiltInNames(), ", ")+". Those that nobody edited follow a change")
	f.StringVar(&o.prometheusVersion, "prometheus-version", "", "`version` of the fleet's oldest Prometheus, such as 2.53: what it can't parse is refused; any is assumed when empty")
	f.StringVar(&o.prometheusFeatures, "prometheus-features", "", "`names` of the features that every Prometheus of the fleet is started with (--enable-feature), such as promql-experimental-functions")
	f.StringVar(&o.allowKubeconfig, "allow-kubeconfig", "", "`names`, between commas, of what a spoke's kubeconfig may have that is refused otherwise: loopback, link-local (addresses of the server),"+
		" http (plain http), insecure-tls (insecure-skip-tls-verify), proxy-url; with SPOKE= before it, that spoke's alone may have it")
	f.IntVar(&o.limits.Objects, "spoke-max-objects", spoke.DefaultMaxObjects, "`number` of Deployments, of namespaces and of PrometheusRules that a spoke may hold; one that holds more is not served (TooLarge)")
	f.StringVar(&o.spokeMaxMemory, "spoke-max-memory", "48Mi", "`quantity` of memory that what is cached of a spoke may take, such as 48Mi; a page of a list may have a third of it, and an object a twelfth")
	f.IntVar(&o.spokeMaxWrites, "spoke-max-writes", generate.DefaultWrites, "`number` of AlertRules a second that a spoke may have rewritten by changes to its Deployments, after ten times as many at once")
	f.StringVar(&o.metricsAddress, "metrics-bind-address", ":8080", "`address` of the metrics endpoint; 0 for none")
	f.BoolVar(&o.metricsSecure, "metrics-secure", false, "serve metrics by https, to those alone who may get /metrics on the hub")
	f.StringVar(&o.metricsService, "metrics-service", "rulefleet-metrics", "`name` of the Service, in the operator's namespace, that metrics are scraped by: https has a certificate for it, of the webhook's authority")
	f.StringVar(&o.healthAddress, "health-probe-bind-address", ":8081", "`address` of /healthz and /readyz; 0 for none")
	f.BoolVar(&o.leaderElect, "leader-elect", true, "let one of several replicas work at a time, by a Lease in the operator's namespace")
	f.StringVar(&o.evaluatorSpaces, "evaluator-namespaces", allNamespaces, "`namespaces` of the spokes, between commas, whose Prometheus and ThanosRulers may be chosen to evaluate the rules; * for all."+
		" spec.evaluatorRefs of a SpokeCluster may name others")
	f.StringVar(&o.operatorSpaces, "prometheus-operator-namespaces", "", "`namespaces` of the spokes, between commas, in which prometheus-operator is looked for, where there is none in that of the Prometheus:"+
		" its flags say which namespaces it takes no PrometheusRules from")
	f.DurationVar(&o.evaluatorInterval, "evaluator-poll-interval", evaluate.DefaultInterval, "`duration` between two times that a spoke's Prometheus is asked which rules it evaluates and what fires; at least 5s")
	f.Float64Var((*float64)(&o.intervals), "interval-scale", 1, "`factor` that scales the time between two looks at a spoke or its Prometheus, and most delays before a retry; for tests")
	f.BoolVar(&o.checkMetrics, "check-metrics", true, "ask a spoke's Prometheus whether it has series for all that the rules' expressions select, and show what is missing")
	f.DurationVar(&o.deletionHold, "deletion-hold", 10*time.Minute, "`duration` for which deletions are held that are more than a quarter of a spoke's rules, and more than 20, within as long; 0 holds none of those. Deletions that may follow from a loss of the hub's objects wait for an acknowledgement whatever this is")
	f.DurationVar(&o.leaveTimeout, "leave-timeout", 2*time.Minute, "`duration` for which a spoke whose SpokeCluster is deleted is tried to be reached, to remove its rules; what is left then stays there")
	f.IntVar(&o.webhookPort, "webhook-port", 9443, "`port` of the admission webhook; 0 for none")
	f.StringVar(&o.webhookService, "webhook-service", "rulefleet-webhook", "`name` of the Service, in the operator's namespace, that the hub's API server reaches the webhook by")
	f.StringVar(&o.webhookConfig, "webhook-config", "rulefleet", "`name` of the ValidatingWebhookConfiguration to keep the caBundle of; there need not be one")
	f.StringVar(&o.webhookHosts, "webhook-hosts", "", "further `names` and addresses of the webhook, between commas, where the API server reaches it by a URL")
	f.DurationVar(&o.webhookLifetime, "webhook-cert-lifetime", 90*24*time.Hour, "how long the webhook's serving certificate is valid; it is replaced after about two thirds of that, and its authority lives four times as long")
	f.StringVar(&o.webhookCertDir, "webhook-cert-dir", "", "`folder` with tls.crt and tls.key for the webhook, which somebody else keeps, such as cert-manager, and the caBundle too; when empty, the manager does")
	f.StringVar(&o.logFormat, "log-format", "json", "json or console")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	f.BoolVar(&o.releaseSpokes, "release-spokes", false, "take the operator's finalizer off every SpokeCluster and exit: for when the operator is gone for good. It changes nothing in the spokes")
	f.BoolVar(&o.version, "version", false, "print the version and exit")
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

func (o *options) validate() error {
	var errs []error
	for flagName, ns := range map[string]string{"namespace": o.namespace, "generated-namespace": o.generatedNamespace, "rule-namespace": o.ruleNamespace} {
		if msgs := validation.IsDNS1123Label(ns); len(msgs) > 0 {
			errs = append(errs, fmt.Errorf("--%s: %q is no name of a namespace: %s", flagName, ns, strings.Join(msgs, "; ")))
		}
	}
	errs = append(errs, o.validateNamespaces())
	if o.namespace == o.generatedNamespace {
		errs = append(errs, fmt.Errorf("--generated-namespace: has to be another namespace than --namespace (%s), whose AlertRules may go anywhere", o.namespace))
	}
	if msgs := validation.IsValidLabelValue(o.hubID); len(msgs) > 0 {
		errs = append(errs, fmt.Errorf("--hub-id: %q is no label value: %s", o.hubID, strings.Join(msgs, "; ")))
	}
	if o.clusterLabel != "" && !model.LegacyValidation.IsValidLabelName(o.clusterLabel) {
		errs = append(errs, fmt.Errorf("--cluster-label: %q is no name of a Prometheus label", o.clusterLabel))
	}
	if slices.Contains([]string{"alertname", "severity", "namespace", "deployment"}, o.clusterLabel) || strings.HasPrefix(o.clusterLabel, "__") {
		errs = append(errs, fmt.Errorf("--cluster-label: %q means something else already", o.clusterLabel))
	}
	errs = append(errs, o.validateDurations(), o.validateBuiltIns())
	if err := rule.ValidateSelector(o.kubeStateMetrics); err != nil {
		errs = append(errs, fmt.Errorf("--kube-state-metrics-selector: %w", err))
	}
	errs = append(errs, o.validateKubeconfigs(), o.validateLimits(), o.validateWebhook())
	evaluator, err := rule.ParseEvaluator(o.prometheusVersion, o.prometheusFeatures)
	if err != nil {
		errs = append(errs, fmt.Errorf("--prometheus-version: %w", err))
	}
	o.evaluator = evaluator
	if o.logFormat != "json" && o.logFormat != "console" {
		errs = append(errs, fmt.Errorf("--log-format: %q is neither json nor console", o.logFormat))
	}
	if _, err := zapcore.ParseLevel(o.logLevel); err != nil {
		errs = append(errs, fmt.Errorf("--log-level: %q is none of debug, info, warn and error", o.logLevel))
	}
	return errors.Join(errs...)
}

func (o *options) validateDurations() error {
	var errs []error
	if !(o.intervals > 0 && o.intervals <= maxIntervalScale) { // NaN is neither
		errs = append(errs, fmt.Errorf("--interval-scale: %v is not between 0 and %v", o.intervals, maxIntervalScale))
	}
	if o.evaluatorInterval < minEvaluatorInterval {
		errs = append(errs, fmt.Errorf("--evaluator-poll-interval: %v is less than %v", o.evaluatorInterval, minEvaluatorInterval))
	}
	for flagName, d := range map[string]time.Duration{"deletion-hold": o.deletionHold, "leave-timeout": o.leaveTimeout} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("--%s: %v is negative", flagName, d))
		}
	}
	return errors.Join(errs...)
}

// allNamespaces is what --evaluator-namespaces says for all of them.
const allNamespaces = "*"

func (o *options) validateNamespaces() error {
	var errs []error
	if o.evaluatorSpaces != allNamespaces && len(o.evaluatorNamespaces()) == 0 {
		errs = append(errs, errors.New("--evaluator-namespaces: is empty; name namespaces, or * for all"))
	}
	for flagName, names := range map[string][]string{"evaluator-namespaces": o.evaluatorNamespaces(), "prometheus-operator-namespaces": fields(o.operatorSpaces)} {
		for _, ns := range names {
			if msgs := validation.IsDNS1123Label(ns); len(msgs) > 0 {
				errs = append(errs, fmt.Errorf("--%s: %q is no name of a namespace: %s", flagName, ns, strings.Join(msgs, "; ")))
			}
		}
	}
	return errors.Join(errs...)
}

// evaluatorNamespaces are those that the flag names; none for all.
func (o *options) evaluatorNamespaces() []string {
	if o.evaluatorSpaces == allNamespaces {
		return nil
	}
	return fields(o.evaluatorSpaces)
}

func (o *options) validateBuiltIns() error {
	o.enabledTemplates = fields(o.builtInTemplates)
	for _, name := range o.enabledTemplates {
		if !slices.Contains(rule.BuiltInNames(), name) {
			return fmt.Errorf("--built-in-templates: %q is none of %s", name, strings.Join(rule.BuiltInNames(), ", "))
		}
	}
	return nil
}

func (o *options) validateKubeconfigs() error {
	allow, err := spoke.ParseAllowances(o.allowKubeconfig)
	if err != nil {
		return fmt.Errorf("--allow-kubeconfig: %w", err)
	}
	o.allow = allow
	return nil
}

// minSpokeMemory leaves 1 MiB to each object: an API server takes objects of 1.5 MiB at most.
const minSpokeMemory = 12 << 20

func (o *options) validateLimits() error {
	var errs []error
	if o.limits.Objects < 1 {
		errs = append(errs, fmt.Errorf("--spoke-max-objects: %d is less than 1", o.limits.Objects))
	}
	if o.spokeMaxWrites < 1 {
		errs = append(errs, fmt.Errorf("--spoke-max-writes: %d is less than 1", o.spokeMaxWrites))
	}
	memory, err := resource.ParseQuantity(o.spokeMaxMemory)
	switch {
	case err != nil:
		errs = append(errs, fmt.Errorf("--spoke-max-memory: %q is no quantity, such as 48Mi: %w", o.spokeMaxMemory, err))
	case memory.Value() < minSpokeMemory:
		errs = append(errs, fmt.Errorf("--spoke-max-memory: %s is less than 12Mi", o.spokeMaxMemory))
	}
	o.limits.Memory = memory.Value()
	return errors.Join(errs...)
}

func (o *options) validateWebhook() error {
	if o.webhookPort == 0 {
		return nil
	}
	var errs []error
	if msgs := validation.IsValidPortNum(o.webhookPort); len(msgs) > 0 {
		errs = append(errs, fmt.Errorf("--webhook-port: %d is no port: %s", o.webhookPort, strings.Join(msgs, "; ")))
	}
	if msgs := validation.IsDNS1035Label(o.webhookService); len(msgs) > 0 {
		errs = append(errs, fmt.Errorf("--webhook-service: %q is no name of a Service: %s", o.webhookService, strings.Join(msgs, "; ")))
	}
	if msgs := validation.IsDNS1123Subdomain(o.webhookConfig); len(msgs) > 0 {
		errs = append(errs, fmt.Errorf("--webhook-config: %q is no name of a ValidatingWebhookConfiguration: %s", o.webhookConfig, strings.Join(msgs, "; ")))
	}
	if msgs := validation.IsDNS1035Label(o.metricsService); len(msgs) > 0 {
		errs = append(errs, fmt.Errorf("--metrics-service: %q is no name of a Service: %s", o.metricsService, strings.Join(msgs, "; ")))
	}
	if l := o.webhookLifetime; l < certs.MinLifetime || l > certs.MaxLifetime {
		errs = append(errs, fmt.Errorf("--webhook-cert-lifetime: %v is not between %v and %v", l, certs.MinLifetime, certs.MaxLifetime))
	}
	for _, host := range o.furtherHosts() {
		if net.ParseIP(host) == nil && len(validation.IsDNS1123Subdomain(host)) > 0 {
			errs = append(errs, fmt.Errorf("--webhook-hosts: %q is neither a DNS name nor an address", host))
		}
	}
	return errors.Join(errs...)
}

func (o *options) furtherHosts() []string { return fields(o.webhookHosts) }

// ownCertificate tells whether the manager makes the webhook's certificate itself.
func (o *options) ownCertificate() bool { return o.webhookPort != 0 && o.webhookCertDir == "" }

// fields are what is between the commas of a flag.
func fields(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
}

func ownNamespace() string {
	if ns, err := os.ReadFile(inClusterNamespace); err == nil {
		return strings.TrimSpace(string(ns))
	}
	return "rulefleet-system"
}

// logger makes the zap logger behind logr.
func (o *options) logger() (logr.Logger, error) {
	level, err := zap.ParseAtomicLevel(o.logLevel)
	if err != nil {
		return logr.Logger{}, fmt.Errorf("--log-level: %w", err)
	}
	cfg := zap.NewProductionConfig()
	cfg.Level, cfg.Encoding = level, o.logFormat
	cfg.EncoderConfig.EncodeTime = zapcore.RFC3339TimeEncoder
	cfg.DisableStacktrace = true // errors are wrapped with what was being done
	z, err := cfg.Build()
	if err != nil {
		return logr.Logger{}, fmt.Errorf("setting up the log: %w", err)
	}
	return zapr.NewLogger(z), nil
}
