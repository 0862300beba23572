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
	// readyTimeout is for a machine with ten times more to do than it can: a
	// start takes three seconds, most of it of processor time. A program that
	// ends is noticed at once.
	readyTimeout = 90 * time.Second
	readyPoll    = 50 * time.Millisecond

	// probeTimeout bounds each question: one that is never answered must not
	// use up the whole deadline.
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

// awaitControllers waits until the controller manager has done something.
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
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return client, nil
}

// poll asks until there is no error. It gives up when the process that is to
// make it so has ended, and tells the last error when the time is up.
func poll(ctx context.Context, p *Process, ask func(context.Context) error) error {
	last := errors.New("not asked yet")
	err := wait.PollUntilContextTimeout(ctx, readyPoll, readyTimeout, true, func(ctx context.Context) (bool, error) {
		if !p.running() {
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
