package cluster

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/pkg/plugin/exit"
)

// Spoke is a spoke, as the person who runs the plugin sees it.
type Spoke struct {
	// Origin says where the address and the credential are from, such as "context eu-1".
	Origin string
	Client client.Client
	// Config has the address and the certificate authority. Its credential is the person's.
	Config *rest.Config
}

// Spoke connects with a context of the kubeconfig that also has the hub.
func (h *Hub) Spoke(name string) (*Spoke, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	if h.Flags.KubeConfig != nil {
		rules.ExplicitPath = *h.Flags.KubeConfig
	}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: name})
	raw, err := loader.RawConfig()
	if err != nil {
		return nil, badKubeconfig(err)
	}
	if raw.Contexts[name] == nil {
		return nil, exit.New(exit.Usage, "List them: kubectl config get-contexts", "the kubeconfig has no context %q", name)
	}
	cfg, err := loader.ClientConfig()
	if err != nil {
		return nil, badKubeconfig(fmt.Errorf("context %s: %w", name, err))
	}
	return h.SpokeOf("context "+name, cfg)
}

// SpokeOf connects with an address and a credential. origin says where they are from.
func (h *Hub) SpokeOf(origin string, cfg *rest.Config) (*Spoke, error) {
	cfg = h.Flags.WrapConfigFn(cfg)
	c, err := newClient(cfg)
	if err != nil {
		return nil, err
	}
	if err := rest.LoadTLSFiles(cfg); err != nil {
		return nil, fmt.Errorf("reading the certificates of %s: %w", origin, err)
	}
	return &Spoke{Origin: origin, Client: c, Config: cfg}, nil
}

// As returns a client for the spoke with another credential: a token.
func (s *Spoke) As(token string) (client.Client, error) {
	cfg := rest.AnonymousClientConfig(s.Config)
	cfg.BearerToken = token
	return newClient(cfg)
}
