package hub

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

const namedIndex = "named"

// indexNamed adds the index of NamingWorkloads. It leaves out what workloadIndex has.
func indexNamed(ctx context.Context, indexer client.FieldIndexer, generatedNamespace string) error {
	err := indexer.IndexField(ctx, &v1alpha1.AlertRule{}, namedIndex, func(o client.Object) []string {
		ar := o.(*v1alpha1.AlertRule)
		if ar.Spec.WorkloadRef == nil || ar.Namespace == generatedNamespace && Generated(ar) {
			return nil
		}
		return []string{string(ar.Spec.WorkloadRef.Cluster)}
	})
	if err != nil {
		return fmt.Errorf("indexing AlertRules by the spoke of their workload: %w", err)
	}
	return nil
}

// NamingWorkloads returns all AlertRules that name a workload of a spoke, whoever made them.
func NamingWorkloads(ctx context.Context, reader client.Reader, cluster string) ([]v1alpha1.AlertRule, error) {
	out, err := GeneratedOn(ctx, reader, cluster)
	if err != nil {
		return nil, err
	}
	var list v1alpha1.AlertRuleList
	if err := reader.List(ctx, &list, client.MatchingFields{namedIndex: cluster}); err != nil {
		return nil, fmt.Errorf("listing the AlertRules that name workloads of spoke %s: %w", cluster, err)
	}
	return append(out, list.Items...), nil
}
