package spoke

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// maxCount bounds what a spoke can say about a number of objects.
const maxCount = 1 << 30

// asMetadata requests only the metadata of objects.
const asMetadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

var errNoCount = errors.New("the spoke does not say how many there are")

// Count returns the number of workloads of a kind in all namespaces of the spoke. It sends one request, for one object,
// and does not use the cache.
func (s *Spoke) Count(ctx context.Context, kind v1alpha1.WorkloadKind) (int32, error) {
	ctx, cancel := s.patient(ctx)
	defer cancel()
	return count(ctx, s.counts, kind)
}

func count(ctx context.Context, c rest.Interface, kind v1alpha1.WorkloadKind) (int32, error) {
	gv := WorkloadMetadata(kind).GroupVersionKind()
	body, err := bodyOf(ctx, c.Get().AbsPath("apis", gv.Group, gv.Version, WorkloadResource(kind)).Param("limit", "1").SetHeader("Accept", asMetadata))
	if err != nil {
		return 0, fmt.Errorf("counting %ss: %w", kind, err)
	}
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(body, &list); err != nil {
		return 0, fmt.Errorf("counting %ss: %w", kind, errNotKubernetes)
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
