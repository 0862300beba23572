package model

import (
	"context"

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

// Patch implements client.Writer.
func (c *Client) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
	was := c.Schedule.Hub.Find(RefOf(o))
	err := c.write("patching "+o.GetName(), o.GetName(), o, c.Schedule.Hub.Update)
	if sc, ok := was.(*v1alpha1.SpokeCluster); ok && acknowledges(sc) && !acknowledges(c.Schedule.Hub.Find(RefOf(o))) {
		c.Schedule.acknowledged(c.Process, sc)
	}
	return err
}

func acknowledges(o client.Object) bool {
	return o != nil && o.GetAnnotations()[v1alpha1.AcknowledgeDeletionsAnnotation] != ""
}

// Status implements client.StatusClient.
func (c *Client) Status() client.SubResourceWriter { return &statusClient{c: c} }

type statusClient struct {
	client.SubResourceWriter // what is not needed

	c *Client
}

// Patch implements client.SubResourceWriter.
func (s *statusClient) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
	return s.c.write("writing the status of "+o.GetName(), "the status of "+o.GetName(), o, s.c.Schedule.Hub.UpdateStatus)
}

func (c *Client) write(what, counted string, o client.Object, write func(client.Object) (client.Object, error)) error {
	s := c.Schedule
	if _, shared := o.(*v1alpha1.SpokeCluster); shared { // several parts of a process write it, each from its cache
		was := s.Disturbed
		s.Disturbed = true
		defer func() { s.Disturbed = was }()
	}
	return s.Write(c.Process, what, func() error {
		s.CountWrite(counted)
		s.Hub.Writer = v1alpha1.FieldManager
		defer func() { s.Hub.Writer = "kubectl" }()
		out, err := write(o)
		if err != nil {
			return err
		}
		o.SetResourceVersion(out.GetResourceVersion())
		return nil
	})
}
