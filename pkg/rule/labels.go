package rule

// The labels of a generated alert that tell which workload it is about.
const (
	NamespaceLabel  = "namespace"
	DeploymentLabel = "deployment"
)

// DeploymentKind is the only kind of a workload.
const DeploymentKind = "Deployment"

// SeverityLabel is the alert's label for spec.severity.
const SeverityLabel = "severity"
