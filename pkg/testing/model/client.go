package model

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// Client is the client of a process on the hub: it reads the cache, and writes to the Server. Patches are conditional on
// a resourceVersion, so they stand for updates of the whole object.
type Client struct {
	client.Client // what is not needed

	Schedule *Schedule
	Process  *Process
}

// Get implements client.Reader.
func (c *Client) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return c.Process.OnHub.Get(ctx, key, o, opts...)
}

// List implements client.Reader.
func (c *Client) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.Process.OnHub.List(ctx, list, opts...)
}

// Reads returns a reader of a Server, past the caches. A read fails when a fault of the Schedule hits it.
func (s *Schedule) Reads(on *Server) client.Reader { return &reads{s, on} }

type reads struct {
	s  *Schedule
	on *Server
}

// Get implements client.Reader.
func (r *reads) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if err := r.s.ReadFault(); err != nil {
		return err
	}
	return r.on.Get(ctx, key, o, opts...)
}

// List implements client.Reader.
func (r *reads) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := r.s.ReadFault(); err != nil {
		return err
	}
	return r.on.List(ctx, list, opts...)
}

// ReadsFail reports whether the next read past the caches has to fail.
func (s *Schedule) ReadsFail() bool { return s.unread > 0 }

// ReadFault returns the error of a read past the caches, if it has to fail.
func (s *Schedule) ReadFault() error {
	if !s.ReadsFail() {
		return nil
	}
	s.unread--
	return apierrors.NewInternalError(errors.New("not read"))
}

// Patch implements client.Writer. Several parts of a process write SpokeClusters and statuses, each from its cache, so
// these writes may be refused.
func (c *Client) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
	s := c.Schedule
	if _, shared := o.(*v1alpha1.SpokeCluster); !shared {
		return s.Write(c.Process, "patching "+o.GetName(), func() error { return s.put(o, o.GetName(), s.Hub.Update) })
	}
	was := s.Hub.Find(RefOf(o))
	err := s.attempt(func() error { return s.put(o, o.GetName(), s.Hub.Update) })
	if sc, ok := was.(*v1alpha1.SpokeCluster); ok && acknowledges(sc) && !acknowledges(s.Hub.Find(RefOf(o))) {
		s.acknowledged(c.Process, sc)
	}
	return err
}

func acknowledges(o client.Object) bool {
	return o != nil && o.GetAnnotations()[v1alpha1.AcknowledgeDeletionsAnnotation] != ""
}

// Status implements client.StatusClient.
func (c *Client) Status() client.SubResourceWriter { return &statusClient{s: c.Schedule} }

type statusClient struct {
	client.SubResourceWriter // what is not needed

	s *Schedule
}

// Patch implements client.SubResourceWriter.
func (c *statusClient) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
	return c.s.attempt(func() error { return c.s.put(o, "the status of "+o.GetName(), c.s.Hub.UpdateStatus) })
}

// put makes a write of the manager, which counts by a name, and returns in the object what is stored.
func (s *Schedule) put(o client.Object, name string, write func(client.Object) (client.Object, error)) error {
	s.CountWrite(name)
	s.Hub.Writer = v1alpha1.FieldManager
	defer func() { s.Hub.Writer = "kubectl" }()
	out, err := write(o)
	if err != nil {
		return err
	}
	o.SetResourceVersion(out.GetResourceVersion())
	return nil
}
