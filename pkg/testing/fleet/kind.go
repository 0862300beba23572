package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/rulefleet/rulefleet/pkg/testing/controlplane"
)

// KindOptions describe existing kind clusters, which kind/up created and e2e/kind.sh registered.
type KindOptions struct {
	// Dir is the folder of their kubeconfigs, NAME.kubeconfig; "" is $KIND_DIR, else bin/kind.
	Dir string
	// Prefix is the prefix of the clusters' names; "" is $KIND_PREFIX, else rulefleet.
	Prefix string
	// Spokes are the names of the spokes.
	Spokes []string
}

// Kind returns the fleet of kind/up. The fleet neither starts nor stops its clusters and their contents.
func Kind(o KindOptions) (*Fleet, error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	bin, err := controlplane.DefaultBinDir()
	if err != nil {
		return nil, err
	}
	o.Dir = cmp.Or(o.Dir, os.Getenv("KIND_DIR"), filepath.Join(root, "bin", "kind"))
	o.Prefix = cmp.Or(o.Prefix, os.Getenv("KIND_PREFIX"), "rulefleet")
	f := &Fleet{root: root, spokes: map[string]*Member{}}
	if f.Hub, err = kindMember("hub", bin, o); err != nil {
		return nil, err
	}
	for _, name := range o.Spokes {
		if f.spokes[name], err = kindMember(name, bin, o); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func kindMember(name, bin string, o KindOptions) (*Member, error) {
	c := &kindCluster{name: name, node: o.Prefix + "-" + name + "-control-plane", bin: bin, kubeconfig: filepath.Join(o.Dir, name+".kubeconfig")}
	var err error
	if c.config, err = clientcmd.BuildConfigFromFlags("", c.kubeconfig); err != nil {
		return nil, fmt.Errorf("reading the kubeconfig of %s ('make e2e-start' makes the clusters): %w", name, err)
	}
	c.config.QPS = -1
	return newMember(c)
}

// kindCluster is a kind cluster with one node, a container.
type kindCluster struct {
	name, node, bin, kubeconfig string

	config *rest.Config
}

func (c *kindCluster) Name() string { return c.name }

func (c *kindCluster) RESTConfig() *rest.Config { return rest.CopyConfig(c.config) }

func (c *kindCluster) Kubectl(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, filepath.Join(c.bin, "kubectl"), append([]string{"--kubeconfig=" + c.kubeconfig}, args...)...)
}

// KubeconfigFile returns the file with an administrator's kubeconfig of a kind cluster.
func (m *Member) KubeconfigFile() (string, error) {
	c, ok := m.access.(*kindCluster)
	if !ok {
		return "", errNotKind
	}
	return c.kubeconfig, nil
}

// PauseNode freezes the node of a kind cluster, with everything on it.
func (m *Member) PauseNode(ctx context.Context) error { return m.docker(ctx, "pause") }

// UnpauseNode resumes it.
func (m *Member) UnpauseNode(ctx context.Context) error { return m.docker(ctx, "unpause") }

var errNotKind = errors.New("the cluster is not one of kind")

func (m *Member) docker(ctx context.Context, verb string) error {
	c, ok := m.access.(*kindCluster)
	if !ok {
		return errNotKind
	}
	if out, err := exec.CommandContext(ctx, "docker", verb, c.node).CombinedOutput(); err != nil {
		return fmt.Errorf("docker %s %s: %w: %s", verb, c.node, err, out)
	}
	return nil
}
