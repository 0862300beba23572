package controlplane

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// Identities of this package's clients. RBAC never restricts the administrators' group.
const (
	adminUser             = "admin"
	adminGroup            = "system:masters"
	controllerManagerUser = "system:kube-controller-manager"
)

// RESTConfig returns a new configuration for clients that act as an
// administrator, without client-side rate limiting.
func (c *Cluster) RESTConfig() *rest.Config {
	return &rest.Config{
		Host: c.URL(),
		QPS:  -1,
		TLSClientConfig: rest.TLSClientConfig{
			CAData:   c.ca.cert,
			CertData: c.admin.cert,
			KeyData:  c.admin.key,
		},
	}
}

// Kubeconfig returns the kubeconfig of an administrator, with all credentials
// inline.
func (c *Cluster) Kubeconfig() []byte { return c.adminKubeconfig }

// KubeconfigPath returns the file that holds Kubeconfig.
func (c *Cluster) KubeconfigPath() string { return c.path(kubeconfigFile) }

// UserKubeconfig returns a kubeconfig with a client certificate of a user in these groups. RBAC determines the
// permissions.
func (c *Cluster) UserKubeconfig(user string, groups ...string) ([]byte, error) {
	pair, err := c.ca.client(user, groups...)
	if err != nil {
		return nil, err
	}
	return c.kubeconfigFor(user, pair)
}

func (c *Cluster) kubeconfigFor(user string, pair keyPair) ([]byte, error) {
	server := &api.Cluster{Server: c.URL(), CertificateAuthorityData: c.ca.cert}
	return EncodeKubeconfig(c.Name(), server, user, &api.AuthInfo{ClientCertificateData: pair.cert, ClientKeyData: pair.key})
}

// EncodeKubeconfig returns a kubeconfig for a server with a user's credential.
func EncodeKubeconfig(cluster string, server *api.Cluster, user string, credential *api.AuthInfo) ([]byte, error) {
	config := api.NewConfig()
	config.Clusters[cluster], config.AuthInfos[user] = server, credential
	config.Contexts[cluster] = &api.Context{Cluster: cluster, AuthInfo: user}
	config.CurrentContext = cluster
	content, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("writing the kubeconfig of %q: %w", user, err)
	}
	return content, nil
}

// Kubectl returns a command, not yet started, that runs kubectl as an
// administrator of this cluster.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) *exec.Cmd {
	// kubectl caches an API by address, and another cluster may have had the same address.
	own := []string{"--kubeconfig=" + c.KubeconfigPath(), "--cache-dir=" + c.path(cacheDir)}
	return exec.CommandContext(ctx, filepath.Join(c.opts.BinDir, kubectlName), append(own, args...)...)
}
