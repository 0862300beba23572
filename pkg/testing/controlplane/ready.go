package controlplane

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	// readyTimeout allows for a machine with ten times the load that it can handle: a start takes three seconds,
	// mostly of CPU time. A program that ends is detected at once.
	readyTimeout = 90 * time.Second
	readyPoll    = 50 * time.Millisecond

	// probeTimeout bounds each request, so that one without an answer does not use up the deadline.
	probeTimeout = 5 * time.Second
)

// awaitReady waits until the API server serves, and has made its namespaces.
func (c *Cluster) awaitReady(ctx context.Context, p *Process) error {
	client, err := c.probeClient()
	if err != nil {
		return err
	}
	if err := poll(ctx, p, func(ctx context.Context) error {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	}); err != nil {
		return err
	}
	for _, namespace := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem} {
		if err := poll(ctx, p, func(ctx context.Context) error {
			_, err := client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// awaitControllers waits for the first effect of the controller manager.
func (c *Cluster) awaitControllers(ctx context.Context, p *Process) error {
	client, err := c.probeClient()
	if err != nil {
		return err
	}
	return poll(ctx, p, func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

func (c *Cluster) probeClient() (kubernetes.Interface, error) {
	config := rest.CopyConfig(c.RESTConfig())
	config.Timeout = probeTimeout
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	return client, nil
}

// poll retries until there is no error. It fails when the process has ended, and returns the last error at the
// deadline.
func poll(ctx context.Context, p *Process, ask func(context.Context) error) error {
	last := errors.New("not asked yet")
	err := wait.PollUntilContextTimeout(ctx, readyPoll, readyTimeout, true, func(ctx context.Context) (bool, error) {
		if !p.Running() {
			return false, fmt.Errorf("%s has ended: %w", p.name, p.endedWith())
		}
		last = ask(ctx)
		return last == nil, nil
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("waiting for %s: %w: last: %w", p.name, err, last)
	}
	return err
}
