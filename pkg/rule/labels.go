package rule

// The labels of a generated alert that tell which workload it is about.
const (
	NamespaceLabel  = "namespace"
	DeploymentLabel = "deployment"
)

const DeploymentKind = "Deployment"

// SeverityLabel is the alert's label for spec.severity.
const SeverityLabel = "severity"
