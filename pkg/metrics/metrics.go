// Package metrics holds the operator's own metrics. They are served beside
// controller-runtime's. docs/reference/metrics.md is generated from them.
//
// What can be counted when somebody asks is counted then (Fleet): nothing has to be kept in
// step, and a spoke that has left leaves no series behind. Every label has few values,
// whatever spokes answer: those that name a spoke are as many as there are spokes, and those
// that name an AlertRule as many as fire.
package metrics

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	buildInfo = gauge(Metric{
		Name: "rulefleet_build_info", Labels: []string{"version"},
		Help: "1, with the version of the manager. Every replica has it.",
		Use:  "Its absence means that no manager runs (alert `RulefleetAbsent`). Two versions side by side are an upgrade that is under way, or stuck.",
	})

	// SpokeRequests counts requests to spokes' API servers by Verb and by Code.
	SpokeRequests = counter(Metric{
		Name: "rulefleet_spoke_requests_total", Labels: []string{"verb", "code"},
		Help: "Requests to the API servers of spokes, by Kubernetes verb (probe: the operator asks whether the spoke is well; ask: its Prometheus is asked through it) and HTTP status code (error: no answer came; canceled: the operator gave up).",
		Use:  "A share of `error` and `5..` that grows, without `probe` and `ask`, is a network or API servers that struggle (alert `RulefleetSpokeRequestErrors`). Many `409` or `422` are rules that spokes refuse: see `rulefleet_rules`.",
	})

	// ParkedKeys is the number of keys that wait for their spoke, by controller.
	ParkedKeys = gauge(Metric{
		Name: "rulefleet_parked_keys", Labels: []string{"controller"},
		Help: "Keys that wait for their turn, by controller: their spoke, or their namespace in it, has as many in flight as it may, or the spoke's circuit is open.",
		Use:  "Many are normal while a spoke is away or was just engaged. `rulefleet_queue_depth` says whose they are.",
	})

	// OpenCircuits is the number of spokes whose circuit is open, or which throttle.
	OpenCircuits = gauge(Metric{
		Name: "rulefleet_open_circuits",
		Help: "Spokes whose circuit is open: they don't answer, or say 429, and are probed alone.",
		Use:  "More than 0: `kubectl get spokes` names them, with reason Unreachable or Throttled.",
	}).WithLabelValues()

	// EngagedSpokes is the number of spokes that are engaged.
	EngagedSpokes = gauge(Metric{
		Name: "rulefleet_engaged_spokes",
		Help: "Spokes that are connected and served.",
		Use:  "Fewer than are registered: some have never answered since the start, or are refused. See `rulefleet_spokes`.",
	}).WithLabelValues()

	// HeldDeletions is the number of deletions that the brake holds, by spoke and by
	// the controller that they are held of.
	HeldDeletions = gauge(Metric{
		Name: "rulefleet_held_deletions", Labels: []string{"cluster", "hop"},
		Help: "Deletions that are held, because they are many at once or may follow from a loss of the hub's objects, by spoke and by hop (generate: AlertRules, distribute: PrometheusRules).",
		Use:  "More than 0 is for a person to decide on while the time runs (alert `RulefleetDeletionsHeld`): bring back what is missing, or acknowledge.",
	})

	// BrakeFirings counts how often the brake began to hold deletions of a spoke, by hop.
	BrakeFirings = counter(Metric{
		Name: "rulefleet_brake_firings_total", Labels: []string{"hop"},
		Help: "How often deletions of a spoke came to be held, by hop (generate: AlertRules, distribute: PrometheusRules).",
		Use:  "Every firing is an Event DeletionsHeld on a SpokeCluster. Where they are routine, somebody's routine deletes in bulk: have it delete in smaller portions.",
	})

	// EvaluatorPolls counts polls of spokes' evaluators by what came of them.
	EvaluatorPolls = counter(Metric{
		Name: "rulefleet_evaluator_polls_total", Labels: []string{"outcome"},
		Help: "Polls of the Prometheus and ThanosRulers of spokes, by outcome (answered, failed, refused: the operator may not ask). A poll is all the requests that it takes to read all rules once.",
		Use:  "A share of `failed` that lasts is a Prometheus that is down or slow (alert `RulefleetEvaluatorUnreachable`). `refused` are spokes without the grant [evaluate](../how-to/register.md#the-permission-to-ask-prometheus), which may be what you want.",
	})
	// EvaluatorPollDuration is how long polls take that were answered.
	EvaluatorPollDuration = histogram(Metric{
		Name: "rulefleet_evaluator_poll_duration_seconds",
		Help: "Duration of polls of the Prometheus and ThanosRulers of spokes that were answered.",
		Use:  "It grows with the number of rules there, and ends at 10 s: a poll that takes longer fails. Poll less often (`--evaluator-poll-interval`) where that is a load.",
	}, []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20})

	propagated = histogram(Metric{
		Name: "rulefleet_propagation_duration_seconds", Labels: []string{"from", "interrupted"},
		Help: "Time from the event of a change (from: the AlertRule's on the hub, or the Deployment's in its spoke) until the PrometheusRule that follows from it was written to a spoke. interrupted tells whether the spoke did not answer in between.",
		Use:  "The quantiles of `interrupted=\"false\"` are how fast the operator is (alert `RulefleetPropagationSlow`). With `interrupted=\"true\"`, most of it is the spoke's outage. See below for what is measured.",
	}, []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600})

	// WebhookCertificateExpiry is when the certificate that is served ends, as Unix time.
	WebhookCertificateExpiry = gauge(Metric{
		Name: "rulefleet_webhook_certificate_expiry_timestamp_seconds",
		Help: "When the certificate that this replica's webhook serves with ends, as Unix time.",
		Use:  "It is replaced after about two thirds of its life. When one that is not ends, AlertRules and templates can't be changed on the hub (alert `RulefleetWebhookCertificateExpiring`).",
	})
	certificateBegin = gauge(Metric{
		Name: "rulefleet_webhook_certificate_begin_timestamp_seconds",
		Help: "When the certificate that this replica's webhook serves with began, as Unix time.",
		Use:  "Together with the end, it tells how much of its life is left.",
	})
)

func init() {
	metrics.Registry.MustRegister(
		buildInfo, SpokeRequests, ParkedKeys, OpenCircuits, EngagedSpokes, HeldDeletions, BrakeFirings, EvaluatorPolls, EvaluatorPollDuration, propagated,
		WebhookCertificateExpiry, certificateBegin, TheFleet,
	)
}

// SetVersion says which version of the manager runs.
func SetVersion(version string) {
	buildInfo.Reset()
	buildInfo.WithLabelValues(version).Set(1)
}

// SetWebhookCertificate says during which time the certificate that is served is valid.
func SetWebhookCertificate(begin, end time.Time) {
	certificateBegin.WithLabelValues().Set(float64(begin.Unix()))
	WebhookCertificateExpiry.WithLabelValues().Set(float64(end.Unix()))
}
