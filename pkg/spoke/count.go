package spoke

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// maxCount bounds what a spoke can say about a number of objects.
const maxCount = 1 << 30

var errNoCount = errors.New("the spoke does not say how many there are")

// Count returns the number of workloads of a kind in all namespaces of the spoke. It sends one request, for one object,
// and does not use the cache.
func (s *Spoke) Count(ctx context.Context, kind v1alpha1.WorkloadKind) (int32, error) {
	ctx, cancel := s.patient(ctx)
	defer cancel()
	return count(ctx, s.past, kind)
}

func count(ctx context.Context, reader client.Reader, kind v1alpha1.WorkloadKind) (int32, error) {
	list, err := listOne(ctx, reader, WorkloadMetadata(kind).GroupVersionKind())
	if err != nil {
		return 0, err
	}
	n := int64(len(list.Items))
	switch {
	case list.RemainingItemCount != nil:
		n += min(max(*list.RemainingItemCount, 0), maxCount)
	case list.Continue != "":
		return 0, fmt.Errorf("counting %ss: %w", kind, errNoCount)
	}
	return int32(min(n, maxCount)), nil
}
