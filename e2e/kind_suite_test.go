package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
	"github.com/rulefleet/rulefleet/pkg/testing/helm"
)

// imageVariable names the image that kind.sh has loaded into the hub.
const imageVariable = "E2E_IMAGE"

// runOnKind takes the clusters of kind.sh for the shared fleet, installs the chart as the
// suite needs it, and runs the tests.
func runOnKind(ctx context.Context, m *testing.M) (code int, err error) {
	f, err := fleet.Kind(fleet.KindOptions{Spokes: []string{spokeA, spokeB}})
	if err != nil {
		return 1, err
	}
	startShared = func() *sharedFleet { return &sharedFleet{Fleet: f} }
	g, gctx := errgroup.WithContext(ctx)
	for _, member := range []*fleet.Member{shared().Hub, shared().Spoke(spokeA), shared().Spoke(spokeB)} {
		g.Go(func() error { return removeTestNamespaces(gctx, member) })
	}
	if err := g.Wait(); err != nil {
		return 1, err
	}
	r, err := operator()
	if err != nil {
		return 1, err
	}
	values, err := suiteValues()
	if err != nil {
		return 1, err
	}
	begin := time.Now()
	if _, err := r.Deploy(ctx, values); err != nil {
		return 1, err
	}
	fmt.Printf("e2e: the chart is installed after %.1f s\n", time.Since(begin).Seconds())
	if err := waitUnasked(ctx); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// waitUnasked waits until the API server has noticed that there is no webhook any more,
// where there was one before. Helm leaves the one of an upgrade that failed: then only new
// clusters help.
func waitUnasked(ctx context.Context) error {
	last := errors.New("never asked")
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		err := shared().Hub.Client.Create(ctx, alertRule("unasked", "unasked", onEvery()), client.DryRunAll)
		if err == nil || ctx.Err() == nil {
			last = err
		}
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for AlertRules to be taken without a webhook: %w", last)
	}
	return nil
}

// operator is the chart's release on the hub.
func operator() (*helm.Release, error) {
	kubeconfig, err := shared().Hub.KubeconfigFile()
	if err != nil {
		return nil, err
	}
	return &helm.Release{
		Kubeconfig: kubeconfig, Namespace: fleet.Namespace, Name: "rulefleet",
		Chart: filepath.Join("..", "charts", "rulefleet"),
	}, nil
}

// defaultValues are the chart's own but for the image.
func defaultValues() (map[string]any, error) {
	image := os.Getenv(imageVariable)
	colon := strings.LastIndexByte(image, ':')
	if colon < 0 {
		return nil, fmt.Errorf("$%s has to name the image with its tag; it is %q", imageVariable, image)
	}
	return map[string]any{
		"image": map[string]any{"repository": image[:colon], "tag": image[colon+1:]},
		"rbac":  map[string]any{"aggregate": true}, // a test of TestKind is a team
	}, nil
}

// suiteValues are as the manager runs on processes, too: tests write what the webhook would
// refuse, and what they delete side by side adds up to what the brake holds.
func suiteValues() (map[string]any, error) {
	values, err := defaultValues()
	if err == nil {
		values["deletionHold"] = "0s"
		values["webhook"] = map[string]any{"enabled": false}
	}
	return values, err
}

// removeTestNamespaces removes what earlier runs left in a cluster, and waits until it is gone.
func removeTestNamespaces(ctx context.Context, m *fleet.Member) error {
	var list corev1.NamespaceList
	if err := m.Client.List(ctx, &list, client.HasLabels{testLabel}); err != nil {
		return fmt.Errorf("looking for namespaces of earlier tests in %s: %w", m.Name(), err)
	}
	for i := range list.Items {
		if err := client.IgnoreNotFound(m.Client.Delete(ctx, &list.Items[i])); err != nil {
			return fmt.Errorf("removing a namespace of earlier tests from %s: %w", m.Name(), err)
		}
	}
	err := wait.PollUntilContextTimeout(ctx, time.Second, 3*time.Minute, true, func(ctx context.Context) (bool, error) {
		err := m.Client.List(ctx, &list, client.HasLabels{testLabel})
		return len(list.Items) == 0, err
	})
	if err != nil {
		return errors.Join(fmt.Errorf("waiting for %d namespaces of earlier tests in %s to be gone", len(list.Items), m.Name()), err)
	}
	return nil
}
