// Package metrics defines the operator's own metrics, which are served together with those of
// controller-runtime. docs/reference/metrics.md is generated from them.
//
// Everything that can be counted at a scrape is counted then (Fleet): no state has to be updated, and
// a spoke that has left leaves no series behind. Every label has few values, whatever spokes answer:
// labels with the name of a spoke have as many values as there are spokes, and labels with the name of
// an AlertRule as many as there are firing or pending ones.
package metrics

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	buildInfo = gauge(metric{
		Name: "rulefleet_build_info", Labels: []string{"version"},
		Help: "Always 1, with the version of the manager. Every replica has it.",
		Use:  "If it is absent, no manager runs (alert `RulefleetAbsent`). Two versions at the same time mean that an upgrade is in progress, or stuck.",
	})

	// SpokeRequests counts requests to spokes' API servers by Verb and by Code.
	SpokeRequests = counter(metric{
		Name: "rulefleet_spoke_requests_total", Labels: []string{"verb", "code"},
		Help: "Number of requests to the API servers of spokes, by Kubernetes verb (probe: health check of the spoke; ask: query to its Prometheus through the API server) and HTTP status code (error: no answer; canceled: the manager canceled the request).",
		Use:  "A growing share of the codes `error` and `5..` points to problems of the network or of API servers (alert `RulefleetSpokeRequestErrors`). Do not count the verbs `probe` and `ask`. Many `409` or `422` mean that spokes refuse rules: see `rulefleet_rules`.",
	})

	// ParkedKeys is the number of keys that wait for their spoke, by controller.
	ParkedKeys = gauge(metric{
		Name: "rulefleet_parked_keys", Labels: []string{"controller"},
		Help: "Number of objects that wait to be processed, by controller, because their spoke or namespace already has the maximum number of objects in progress, or because the spoke does not answer or answers 429.",
		Use:  "Many are normal while a spoke is unreachable, and just after Rulefleet has connected to a spoke. `rulefleet_queue_depth` shows the spokes.",
	})

	// OpenCircuits is the number of spokes whose circuit is open, or that throttle.
	OpenCircuits = gauge(metric{
		Name: "rulefleet_open_circuits",
		Help: "Number of spokes that don't answer, or answer 429. Rulefleet sends them only health checks.",
		Use:  "If it is above 0, `kubectl get spokes` lists these spokes with reason Unreachable or Throttled.",
	}).WithLabelValues()

	// EngagedSpokes is the number of spokes that are engaged.
	EngagedSpokes = gauge(metric{
		Name: "rulefleet_engaged_spokes",
		Help: "Number of spokes that are connected and whose rules are managed.",
		Use:  "If it is lower than the number of registered spokes, some have not answered since the manager started, or were refused. See `rulefleet_spokes`.",
	}).WithLabelValues()

	// HeldDeletions is the number of deletions that the brake holds, by spoke and by controller.
	HeldDeletions = gauge(metric{
		Name: "rulefleet_held_deletions", Labels: []string{"cluster", "hop"},
		Help: "Number of deletions that are held because there are many at once or because they may be caused by a loss of objects on the hub, by spoke and by the kind of the objects (label hop: generate counts AlertRules on the hub, distribute counts PrometheusRules in the spoke).",
		Use:  "If it is above 0, decide before the hold ends (alert `RulefleetDeletionsHeld`): restore the missing objects, or acknowledge the deletions.",
	})

	// DeletionHolds counts how often the brake started to hold deletions of a spoke, by hop.
	DeletionHolds = counter(metric{
		Name: "rulefleet_deletion_holds_total", Labels: []string{"hop"},
		Help: "Number of times that Rulefleet began to hold deletions for a spoke, by the kind of the objects (label hop: generate counts AlertRules on the hub, distribute counts PrometheusRules in the spoke).",
		Use:  "Each time, an Event DeletionsHeld is created on a SpokeCluster. If this happens regularly, some process deletes many objects at once: make it delete fewer at a time.",
	})

	// EvaluatorPolls counts polls of spokes' evaluators by outcome.
	EvaluatorPolls = counter(metric{
		Name: "rulefleet_evaluator_polls_total", Labels: []string{"outcome"},
		Help: "Number of polls of the Prometheus and ThanosRuler objects of spokes, by outcome (answered; failed; refused: Rulefleet is not allowed to query it). A poll consists of all requests that are needed to read all rules once.",
		Use:  "A persistent share of `failed` means that a Prometheus is down or slow (alert `RulefleetEvaluatorUnreachable`). `refused` means that the spoke does not grant the permission [evaluate](../how-to/register.md#the-permission-to-query-prometheus), which may be intended.",
	})
	// EvaluatorPollDuration is the duration of answered polls.
	EvaluatorPollDuration = histogram(metric{
		Name: "rulefleet_evaluator_poll_duration_seconds",
		Help: "Duration of the answered polls of the Prometheus and ThanosRuler objects of spokes, in seconds.",
		Use:  "It grows with the number of rules in the Prometheus. If an answer does not begin within 10 s, the poll fails. If the polls are too much load, poll less often (chart value `evaluatorPollInterval`).",
	}, []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20})

	propagated = histogram(metric{
		Name: "rulefleet_propagation_duration_seconds", Labels: []string{"from", "interrupted"},
		Help: "Time in seconds from a change until the resulting PrometheusRule was written to a spoke, by the kind of the changed object (label from: AlertRule or RulePack on the hub, or the kind of a workload in the spoke). The label interrupted is true if the spoke did not answer for some of that time.",
		Use:  "The quantiles of `interrupted=\"false\"` show how fast Rulefleet is (alert `RulefleetPropagationSlow`). With `interrupted=\"true\"`, most of the time is the spoke's outage. See below for what is measured.",
	}, []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600})

	// TokenRenewals counts attempts to renew tokens of spokes by result.
	TokenRenewals = counter(metric{
		Name: "rulefleet_token_renewals_total", Labels: []string{"result"},
		Help: "Number of attempts to renew the token of a spoke, by result (renewed; failed). Only the tokens of spokes that kubectl rulefleet join has registered are renewed.",
		Use:  "If `failed` grows, condition CredentialValid of the SpokeClusters says why (alert `RulefleetSpokeCredentialExpiring`).",
	})

	// WebhookCertificateExpiry is the expiry of the serving certificate, as Unix time.
	WebhookCertificateExpiry = gauge(metric{
		Name: "rulefleet_webhook_certificate_expiry_timestamp_seconds",
		Help: "Expiry of the serving certificate of this replica's webhook, as Unix time.",
		Use:  "The certificate is replaced after about two thirds of its lifetime. If it expires without being replaced, the API server can't call the webhook: with `webhook.failurePolicy` Fail, AlertRules, RulePacks and templates can't be changed on the hub (alert `RulefleetWebhookCertificateExpiring`).",
	})
	certificateBegin = gauge(metric{
		Name: "rulefleet_webhook_certificate_begin_timestamp_seconds",
		Help: "Beginning of the validity of the serving certificate of this replica's webhook, as Unix time.",
		Use:  "Together with the expiry, it shows how much of the lifetime is left.",
	})
)

// The results of attempts to renew a token.
const (
	TokenRenewed    = "renewed"
	TokenNotRenewed = "failed"
)

func init() {
	metrics.Registry.MustRegister(
		buildInfo, SpokeRequests, ParkedKeys, OpenCircuits, EngagedSpokes, HeldDeletions, DeletionHolds, EvaluatorPolls, EvaluatorPollDuration, propagated,
		TokenRenewals,
		WebhookCertificateExpiry, certificateBegin, TheFleet,
	)
}

// SetVersion sets the version of the manager.
func SetVersion(version string) {
	buildInfo.Reset()
	buildInfo.WithLabelValues(version).Set(1)
}

// SetWebhookCertificate sets the validity of the serving certificate.
func SetWebhookCertificate(begin, end time.Time) {
	certificateBegin.WithLabelValues().Set(float64(begin.Unix()))
	WebhookCertificateExpiry.WithLabelValues().Set(float64(end.Unix()))
}
