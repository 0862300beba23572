package spoke

import "github.com/rulefleet/rulefleet/api/v1alpha1"

// Lifecycle lists who is told what happens to spokes, so that what is kept of a spoke is dropped when it is no
// longer true. The functions must return at once.
type Lifecycle struct {
	// Left is called when a spoke is no longer registered, and again when its SpokeCluster is gone, when no worker
	// has a key of the spoke any more.
	Left []func(name string)
	// Replaced is called before a spoke is engaged that is, or may be, another cluster than before, or that a person
	// confirmed. It must not call the Provider.
	Replaced []func(name string)
	// Restored is called before a spoke is engaged again after a restore from a backup. It must not call the
	// Provider.
	Restored []func(name string)
	// Evaluators is called when the Prometheus and ThanosRuler objects of an engaged spoke have changed.
	Evaluators []func(name string)
	// Kinds returns the kinds of workloads, beside Deployments, that are to be read in a spoke, in the order of
	// rule.WorkloadKinds; nil for none. Call KindsChanged when its answer may have changed.
	Kinds func(name string) []v1alpha1.WorkloadKind
}

// SetLifecycle sets who is told. Call it before Start.
func (p *Provider) SetLifecycle(l Lifecycle) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.life = l
}
