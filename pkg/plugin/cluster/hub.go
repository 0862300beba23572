// Package cluster connects the plugin with the hub and with spokes, always as the person who runs it.
package cluster

import (
	"fmt"
	"io"
	"os"
	"strings"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/kube"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/plugin/exit"
)

// DefaultNamespace is Rulefleet's own namespace, on the hub and in the spokes, unless it was installed
// elsewhere.
const DefaultNamespace = "rulefleet-system"

// DefaultGeneratedNamespace is the namespace of generated AlertRules on the hub, unless the chart value
// generatedNamespace names another one.
const DefaultGeneratedNamespace = "rulefleet-generated"

// Scheme has the kinds that the plugin reads and writes.
var Scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(apiextensionsv1.AddToScheme(s))
	utilruntime.Must(v1alpha1.AddToScheme(s))
	return s
}()

// Hub is the hub that the usual flags of kubectl select.
type Hub struct {
	// Flags are these flags.
	Flags *genericclioptions.ConfigFlags
	// Connect returns a client for the hub. Tests replace it.
	Connect func() (client.Client, error)
	// Helm returns what Helm needs to read and write the releases of a namespace. Tests replace it.
	Helm func(namespace string) (*action.Configuration, error)
}

// NewHub returns the hub. Warnings of its API server are written to warnings.
func NewHub(version string, warnings io.Writer) *Hub {
	flags := genericclioptions.NewConfigFlags(true)
	flags.WrapConfigFn = func(cfg *rest.Config) *rest.Config { return prepare(cfg, version, warnings) }
	h := &Hub{Flags: flags}
	h.Connect = func() (client.Client, error) {
		cfg, err := flags.ToRESTConfig()
		if err != nil {
			return nil, badKubeconfig(err)
		}
		if err := checkSelected(flags, cfg); err != nil {
			return nil, err
		}
		return newClient(cfg)
	}
	h.Helm = func(namespace string) (*action.Configuration, error) { return newHelm(flags, namespace) }
	return h
}

func badKubeconfig(err error) error {
	return exit.New(exit.Usage, "Check the file and the flags that select from it. To list its contexts: kubectl config get-contexts", "reading the kubeconfig: %w", err)
}

// checkSelected refuses the address that client-go assumes where neither the kubeconfig nor a flag has one.
func checkSelected(flags *genericclioptions.ConfigFlags, cfg *rest.Config) error {
	assumed, loader := clientcmd.ClusterDefaults.Server, flags.ToRawKubeConfigLoader()
	if cfg.Host != assumed || *flags.APIServer == assumed || os.Getenv("KUBERNETES_MASTER") == assumed {
		return nil
	}
	raw, err := loader.RawConfig()
	if err != nil {
		return badKubeconfig(err)
	}
	for _, c := range raw.Clusters {
		if c.Server == assumed {
			return nil
		}
	}
	return exit.New(exit.Usage, "Select a context with --context, or another file with --kubeconfig or KUBECONFIG. To list the contexts: kubectl config get-contexts",
		"the kubeconfig does not say which cluster is the hub (file: %s)", strings.Join(loader.ConfigAccess().GetLoadingPrecedence(), ", "))
}

// newHelm sets up Helm's library. Releases are stored in Secrets, as the helm command does by default.
func newHelm(flags *genericclioptions.ConfigFlags, namespace string) (*action.Configuration, error) {
	c := &action.Configuration{}
	if err := c.Init(flags, namespace, "secret", func(string, ...any) {}); err != nil {
		return nil, fmt.Errorf("setting up Helm: %w", err)
	}
	if k, ok := c.KubeClient.(*kube.Client); ok {
		k.Namespace = namespace // not that of the kubeconfig
	}
	discovery, err := flags.ToDiscoveryClient()
	if err != nil {
		return nil, badKubeconfig(err)
	}
	discovery.Invalidate() // what kubectl has cached may be old
	version, err := discovery.ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("reading the version of the API server: %w", err)
	}
	served, err := action.GetVersionSet(discovery)
	if err != nil {
		return nil, fmt.Errorf("reading which APIs the API server serves: %w", err)
	}
	c.Capabilities = &chartutil.Capabilities{
		APIVersions: served, HelmVersion: chartutil.DefaultCapabilities.HelmVersion,
		KubeVersion: chartutil.KubeVersion{Version: version.GitVersion, Major: version.Major, Minor: version.Minor},
	}
	return c, nil
}

// prepare sets what kubectl sets as well. client-go's own limits are for controllers.
func prepare(cfg *rest.Config, version string, warnings io.Writer) *rest.Config {
	cfg.UserAgent = "kubectl-rulefleet/" + version
	cfg.QPS, cfg.Burst = 50, 300
	cfg.WarningHandler = rest.NewWarningWriter(warnings, rest.WarningWriterOptions{Deduplicate: true})
	return cfg
}

func newClient(cfg *rest.Config) (client.Client, error) {
	c, err := client.New(cfg, client.Options{Scheme: Scheme})
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", cfg.Host, err)
	}
	return c, nil
}

// Namespace returns the namespace that --namespace or the context selects.
func (h *Hub) Namespace() (string, error) {
	namespace, _, err := h.Flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", badKubeconfig(err)
	}
	return namespace, nil
}

// Scope returns the options to list objects of all namespaces, or of the selected one.
func (h *Hub) Scope(all bool) ([]client.ListOption, error) {
	if all {
		return nil, nil
	}
	namespace, err := h.Namespace()
	return []client.ListOption{client.InNamespace(namespace)}, err
}

// SystemNamespace returns Rulefleet's own namespace on the hub: --namespace, or the default one. The
// namespace of the context does not count, because it is for a person's own objects.
func (h *Hub) SystemNamespace() string {
	if h.Flags.Namespace != nil && *h.Flags.Namespace != "" && *h.Flags.Namespace != corev1.NamespaceAll {
		return *h.Flags.Namespace
	}
	return DefaultNamespace
}
