package metrics

// others are metrics of libraries that the dashboard and the alerts use. The manager serves them
// together with its own. The Help texts here are ours.
var others = []metric{
	{
		Name: "controller_runtime_reconcile_total", Type: typeCounter, Labels: []string{"controller", "result"},
		Help: "Number of reconciles by controller and result (success, requeue, requeue_after, error).",
		Use:  "Shows the amount of work. `distribute` processes pairs of an AlertRule or RulePack and a spoke, `generate` workloads, `status` AlertRules and RulePacks, and `membership` SpokeClusters.",
	},
	{
		Name: "controller_runtime_reconcile_errors_total", Type: typeCounter, Labels: []string{"controller"},
		Help: "Number of reconciles that ended with an error and are retried, by controller.",
		Use:  "Some are normal while a spoke is unreachable. The logs contain each error, with the spoke.",
	},
	{
		Name: "controller_runtime_reconcile_time_seconds", Type: typeHistogram, Labels: []string{"controller"},
		Help: "Duration of a reconcile, by controller.",
		Use:  "For `distribute`, it is mostly the time that a spoke takes to answer; for `generate` and `status`, the time that the hub takes.",
	},
	{
		Name: "controller_runtime_webhook_requests_total", Type: typeCounter, Labels: []string{"webhook", "code"},
		Help: "Number of requests of the hub's API server to the webhook.",
		Use:  "Codes other than 200 are requests that the webhook could not decide. With `webhook.failurePolicy` Fail, the API server refuses them. With Ignore, it accepts them.",
	},
	{
		Name: "workqueue_depth", Type: typeGauge, Labels: []string{"name", "controller", "priority"},
		Help: "Number of objects in a controller's queue that wait for a worker.",
		Use:  "It is near 0 most of the time. Objects that wait because of their spoke are in `rulefleet_queue_depth`.",
	},
	{
		Name: "leader_election_master_status", Type: typeGauge, Labels: []string{"name"},
		Help: "1 if the replica is the leader, else 0. Its label is always name=rulefleet-manager.",
		Use:  "If the sum over all replicas is 0, no replica works (alert `RulefleetNoLeader`).",
	},
	{
		Name: "rest_client_requests_total", Type: typeCounter, Labels: []string{"code", "host", "method"},
		Help: "Number of requests to the hub's API server, by method and code. Requests to spokes are only in `rulefleet_spoke_requests_total`.",
		Use:  "POST, PUT, PATCH and DELETE are writes on the hub. If nothing changes in the fleet, only the leader's Lease is written.",
	},
	{
		Name: "process_resident_memory_bytes", Type: typeGauge,
		Help: "Resident memory of the process, in bytes.", Use: "It grows with the number of workloads and rules in all spokes.",
	},
	{
		Name: "process_cpu_seconds_total", Type: typeCounter,
		Help: "CPU time of the process, in seconds.", Use: "If it uses more than one core for a long time, something changes objects all the time.",
	},
	{
		Name: "go_goroutines", Type: typeGauge,
		Help: "Number of goroutines of the process.", Use: "There are some dozens for each spoke. The number has to decrease when a spoke leaves.",
	},
}
