package metrics

// others are metrics of the libraries that the dashboard and the alerts use: the manager
// serves them beside its own, and Help is ours.
var others = []Metric{
	{
		Name: "controller_runtime_reconcile_total", Type: Counter, Labels: []string{"controller", "result"},
		Help: "Reconciles by controller and result (success, requeue, requeue_after, error).",
		Use:  "How much is done. `distribute` works on pairs of an AlertRule and a spoke, `generate` on Deployments, `status` on AlertRules, `registrar` on SpokeClusters.",
	},
	{
		Name: "controller_runtime_reconcile_errors_total", Type: Counter, Labels: []string{"controller"},
		Help: "Reconciles that ended with an error and are tried again, by controller.",
		Use:  "Some are normal while a spoke is away. The logs have each, with the spoke.",
	},
	{
		Name: "controller_runtime_reconcile_time_seconds", Type: Histogram, Labels: []string{"controller"},
		Help: "Duration of a reconcile, by controller.",
		Use:  "That of `distribute` is mostly a spoke's answer, that of `generate` and `status` the hub's.",
	},
	{
		Name: "controller_runtime_webhook_requests_total", Type: Counter, Labels: []string{"webhook", "code"},
		Help: "Requests of the hub's API server to the webhook.",
		Use:  "Codes other than 200 are requests that could not be decided, which the hub refuses.",
	},
	{
		Name: "workqueue_depth", Type: Gauge, Labels: []string{"name", "controller", "priority"},
		Help: "Keys in a controller's queue that wait for a worker.",
		Use:  "Near 0 but for moments: what waits for its turn in its spoke is in `rulefleet_queue_depth`.",
	},
	{
		Name: "leader_election_master_status", Type: Gauge, Labels: []string{"name"},
		Help: "Whether a replica leads (1) or not (0); name is rulefleet-manager.",
		Use:  "A sum of 0 over all replicas means that nothing is done (alert `RulefleetNoLeader`).",
	},
	{
		Name: "rest_client_requests_total", Type: Counter, Labels: []string{"code", "host", "method"},
		Help: "Requests to the hub's API server, by method and code. Those to spokes are in `rulefleet_spoke_requests_total` alone.",
		Use:  "POST, PUT, PATCH and DELETE are writes on the hub. In a fleet where nothing changes, the leader's lease is the only one.",
	},
	{
		Name: "process_resident_memory_bytes", Type: Gauge,
		Help: "Memory of the process.", Use: "It grows with the number of Deployments and rules in all spokes.",
	},
	{
		Name: "process_cpu_seconds_total", Type: Counter,
		Help: "CPU time of the process.", Use: "More than a core for long: something changes all the time.",
	},
	{
		Name: "go_goroutines", Type: Gauge,
		Help: "Goroutines of the process.", Use: "Some dozens for each spoke. It is to fall when a spoke leaves.",
	},
}

// Others returns the libraries' metrics that the dashboard and the alerts use, by name.
func Others() []Metric { return byName(others) }
