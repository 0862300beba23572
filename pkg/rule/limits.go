package rule

import (
	"regexp"
)

// Limits of an AlertSpec's texts in the API, in characters.
const (
	MaxExpr = 16384
	MaxText = 8192
)

// MaxValue limits the value of one placeholder, in bytes.
const MaxValue = 1024

// MaxAdjustment limits an annotation that adjusts the AlertRules of a workload, in bytes.
const MaxAdjustment = 8 << 10

// Limits of the API for labels, annotations and durations.
const (
	MaxLabelName = 1024
	MaxTexts     = 64
	MaxDuration  = 32
)

// SeverityPattern matches the severities that the API accepts.
var SeverityPattern = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9_.-]{0,61}[a-zA-Z0-9])?$`)

// MaxObject limits a PrometheusRule, in bytes of JSON, because prometheus-operator writes several of
// them into one ConfigMap of at most 1 MiB. It also limits the texts of an AlertRule, including
// overrides.
const MaxObject = 256 << 10

// MaxPackRules limits the rules of a RulePack. MaxPack limits its spec and its PrometheusRule, in bytes: prometheus-operator
// refuses a larger PrometheusRule, because it writes each into one ConfigMap (pkg/operator/rules.go, MaxConfigMapDataSize).
const (
	MaxPackRules = 500
	MaxPack      = 512 << 10
)
