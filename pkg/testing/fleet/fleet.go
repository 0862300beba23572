// Package fleet starts the environment of Rulefleet for tests and the demo: a hub and spokes as real control
// planes, and the manager as a process with only the permissions that the operator needs.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/controlplane"
)

// Namespace is the operator's own namespace on the hub.
const Namespace = "rulefleet-system"

// GeneratedNamespace is the hub's namespace of generated AlertRules.
const GeneratedNamespace = "rulefleet-generated"

// Scheme has every kind that tests use.
var Scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(apiextensionsv1.AddToScheme(s))
	utilruntime.Must(monitoringv1.AddToScheme(s))
	utilruntime.Must(v1alpha1.AddToScheme(s))
	return s
}()

// Options describe the fleet to start.
type Options struct {
	// Spokes are the names of the spokes to start beside the hub. They are not
	// registered yet.
	Spokes []string
	// Bare leaves the hub without access for the manager, for callers that install the chart.
	Bare bool
	// Audit keeps audit logs.
	Audit bool
	// OpenAPI has the clusters publish their OpenAPI documents, which kubectl needs for objects that it sends.
	OpenAPI bool
	// ControllerManager runs kube-controller-manager in the spokes.
	ControllerManager bool
	// Intervals is the --interval-scale of managers; 0 is the default.
	Intervals float64
	// Dir is the parent of the clusters' folders; "" means temporary ones.
	Dir string
	// Output gets a line for each step; it may be nil.
	Output io.Writer
}

// Member is a cluster of the fleet, with an administrator's client that bypasses caches.
type Member struct {
	// Cluster has the processes of the cluster; nil for a kind cluster.
	*controlplane.Cluster
	Client client.Client

	access access
}

// access is the interface of every cluster, wherever it runs.
type access interface {
	Name() string
	RESTConfig() *rest.Config
	Kubectl(ctx context.Context, args ...string) *exec.Cmd
}

func newMember(a access) (*Member, error) {
	cfg := a.RESTConfig()
	cfg.WarningHandlerWithContext = rest.NoWarnings{} // nobody reads them
	direct, err := client.New(cfg, client.Options{Scheme: Scheme})
	if err != nil {
		return nil, fmt.Errorf("creating a client for %s: %w", a.Name(), err)
	}
	return &Member{Client: direct, access: a}, nil
}

// Name returns the cluster's name; a spoke has the same name in the fleet.
func (m *Member) Name() string { return m.access.Name() }

// RESTConfig returns a new configuration for clients that act as an administrator.
func (m *Member) RESTConfig() *rest.Config { return m.access.RESTConfig() }

// stop ends the processes of the cluster. It does not end a kind cluster.
func (m *Member) stop() error {
	if m.Cluster == nil {
		return nil
	}
	return m.Stop()
}

// Kubectl returns a command, not yet started, that runs kubectl as an administrator.
func (m *Member) Kubectl(ctx context.Context, args ...string) *exec.Cmd {
	return m.access.Kubectl(ctx, args...)
}

// Fleet is a hub with its spokes.
type Fleet struct {
	// Hub is the hub.
	Hub *Member

	// Usage counts all processes of the fleet.
	Usage controlplane.Usage

	opts Options
	root string

	mu       sync.Mutex
	spokes   map[string]*Member
	managers []*Manager
}

// Start starts a hub and spokes, with the CRDs and accounts that they need: Rulefleet's on the hub,
// prometheus-operator's in the spokes.
func Start(ctx context.Context, o Options) (*Fleet, error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	f := &Fleet{opts: o, root: root, spokes: map[string]*Member{}}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return f.startHub(gctx) })
	for _, name := range o.Spokes {
		g.Go(func() error {
			_, err := f.StartSpoke(gctx, name, "prometheusrules")
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, errors.Join(err, f.Stop())
	}
	return f, nil
}

func (f *Fleet) startHub(ctx context.Context) error {
	hub, err := f.startMember(ctx, "hub", false)
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.Hub = hub
	f.mu.Unlock()
	if f.opts.Bare {
		return nil
	}
	crds, access, err := hubObjects(f.root)
	if err != nil {
		return err
	}
	if err := hub.create(ctx, append(crds, access...)...); err != nil {
		return err
	}
	for _, crd := range crds {
		if err := hub.waitEstablished(ctx, crd.GetName()); err != nil {
			return err
		}
	}
	return nil
}

// StartSpoke starts another spoke, with the CRDs of prometheus-operator that crds names by plural.
func (f *Fleet) StartSpoke(ctx context.Context, name string, crds ...string) (*Member, error) {
	m, err := f.startMember(ctx, name, f.opts.ControllerManager)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.spokes[name] = m
	f.mu.Unlock()
	for _, crd := range crds {
		if err := f.InstallMonitoringCRD(ctx, m, crd); err != nil {
			return nil, err
		}
	}
	if err := m.create(ctx, spokeAccess()...); err != nil {
		return nil, err
	}
	return m, nil
}

// InstallMonitoringCRD installs one of prometheus-operator's CRDs, by its plural.
func (f *Fleet) InstallMonitoringCRD(ctx context.Context, m *Member, plural string) error {
	bin, err := controlplane.DefaultBinDir()
	if err != nil {
		return err
	}
	return m.InstallCRDs(ctx, filepath.Join(bin, "crds"), "monitoring.coreos.com_"+plural+".yaml")
}

func (f *Fleet) startMember(ctx context.Context, name string, controllerManager bool) (*Member, error) {
	o := controlplane.Options{
		Name: name, Audit: f.opts.Audit, OpenAPI: f.opts.OpenAPI, ControllerManager: controllerManager,
		Usage: &f.Usage, Output: f.opts.Output,
	}
	if f.opts.Dir != "" {
		o.Dir = filepath.Join(f.opts.Dir, name)
	}
	c, err := controlplane.Start(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	m, err := newMember(c)
	if err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	m.Cluster = c
	return m, nil
}

// Spoke returns a spoke that was started.
func (f *Fleet) Spoke(name string) *Member {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.spokes[name]
}

// Register registers a spoke on the hub by a Secret, whose labels become the spoke's.
func (f *Fleet) Register(ctx context.Context, name string, labels map[string]string) error {
	kubeconfig, err := f.Spoke(name).UserKubeconfig(SpokeUser)
	if err != nil {
		return fmt.Errorf("creating a kubeconfig for %s: %w", name, err)
	}
	return f.RegisterKubeconfig(ctx, name, kubeconfig, labels)
}

// RegisterKubeconfig registers a spoke with any kubeconfig.
func (f *Fleet) RegisterKubeconfig(ctx context.Context, name string, kubeconfig []byte, labels map[string]string) error {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: name, Labels: map[string]string{v1alpha1.RegistrationLabel: "true"}},
		Data:       map[string][]byte{v1alpha1.KubeconfigKey: kubeconfig},
	}
	maps.Copy(secret.Labels, labels)
	if err := f.Hub.Client.Create(ctx, secret); err != nil {
		return fmt.Errorf("registering %s: %w", name, err)
	}
	return nil
}

// Stop ends everything that the fleet started.
func (f *Fleet) Stop() error {
	f.mu.Lock()
	managers, spokes, hub := f.managers, f.spokes, f.Hub
	f.managers, f.spokes = nil, map[string]*Member{}
	f.mu.Unlock()
	var errs []error
	for _, m := range managers {
		errs = append(errs, m.process.Kill())
	}
	for _, s := range spokes {
		errs = append(errs, s.stop())
	}
	if hub != nil {
		errs = append(errs, hub.stop())
	}
	return errors.Join(errs...)
}

// Dump writes the ends of all logs, for a test that has failed.
func (f *Fleet) Dump(w io.Writer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.managers {
		_, _ = fmt.Fprintf(w, "---- manager %s\n%s\n", m.LogPath, tail(m.LogPath))
	}
}

// InstallCRDs applies the CRDs in a folder's files that match a pattern, and waits
// until they are served.
func (m *Member) InstallCRDs(ctx context.Context, dir, pattern string) error {
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no CRDs %s in %s: run 'make controlplane' and 'make generate' first", pattern, dir)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("reading a CRD: %w", err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(data, crd); err != nil {
			return fmt.Errorf("reading the CRD %s: %w", file, err)
		}
		if err := m.Client.Create(ctx, crd); err != nil {
			return fmt.Errorf("installing the CRD %s in %s: %w", crd.Name, m.Name(), err)
		}
		if err := m.waitEstablished(ctx, crd.Name); err != nil {
			return err
		}
	}
	return nil
}

// waitEstablished waits until the API server serves the kind of a CRD. That can be shortly after the CRD is established.
func (m *Member) waitEstablished(ctx context.Context, name string) error {
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 90*time.Second, true, func(ctx context.Context) (bool, error) {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := m.Client.Get(ctx, client.ObjectKey{Name: name}, crd); err != nil {
			return false, err
		}
		for _, c := range crd.Status.Conditions {
			if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
				return m.serves(ctx, crd)
			}
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the CRD %s in %s: %w", name, m.Name(), err)
	}
	return nil
}

func (m *Member) serves(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) (bool, error) {
	i := slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Served })
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: crd.Spec.Group, Version: crd.Spec.Versions[i].Name, Kind: crd.Spec.Names.ListKind})
	err := m.Client.List(ctx, list, client.Limit(1))
	if apierrors.IsNotFound(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) || meta.IsNoMatchError(err) {
		return false, nil
	}
	return err == nil, err
}

func (m *Member) create(ctx context.Context, objects ...client.Object) error {
	for _, o := range objects {
		if err := m.Client.Create(ctx, o); err != nil {
			return fmt.Errorf("creating %T %s in %s: %w", o, o.GetName(), m.Name(), err)
		}
	}
	return nil
}

// moduleRoot returns the folder of the root module's go.mod, which has the CRDs and the manager.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the module: %w", err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "charts", "rulefleet")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("the working directory is not within Rulefleet's source")
		}
	}
}
