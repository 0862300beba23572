package spoke

import (
	"fmt"
	"net/url"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// maxKubeconfigBytes bounds what is parsed. A kubeconfig with one context, its CA
// and a client certificate takes less than 16 KiB.
const maxKubeconfigBytes = 256 << 10

// RefusedError says which field of a kubeconfig is not accepted, and what to put
// there instead. It never holds a field's content.
type RefusedError struct {
	Field   string
	Message string
}

// Error implements error.
func (e *RefusedError) Error() string {
	if e.Field == "" {
		return e.Message
	}
	return e.Field + ": " + e.Message
}

func refuse(field, message string) error { return &RefusedError{Field: field, Message: message} }

// RESTConfig makes a client configuration out of a kubeconfig. A kubeconfig is
// untrusted input: it could name a program to run, a file of the operator's to send
// away, or a proxy. So the configuration is built anew, from the fields that are
// allowed; any other field that would change the connection is refused with a
// RefusedError.
func RESTConfig(kubeconfig []byte) (*rest.Config, error) {
	cluster, user, err := currentContext(kubeconfig)
	if err != nil {
		return nil, err
	}
	if err := checkCluster(cluster); err != nil {
		return nil, err
	}
	if err := checkUser(user); err != nil {
		return nil, err
	}
	if err := checkCredential(user); err != nil {
		return nil, err
	}
	return &rest.Config{
		Host:        cluster.Server,
		BearerToken: user.Token,
		Username:    user.Username,
		Password:    user.Password,
		TLSClientConfig: rest.TLSClientConfig{
			ServerName: cluster.TLSServerName,
			CAData:     cluster.CertificateAuthorityData,
			CertData:   user.ClientCertificateData,
			KeyData:    user.ClientKeyData,
		},
		DisableCompression: cluster.DisableCompression,
	}, nil
}

// currentContext returns the cluster and the user of the current context.
func currentContext(kubeconfig []byte) (*clientcmdapi.Cluster, *clientcmdapi.AuthInfo, error) {
	if len(kubeconfig) == 0 {
		return nil, nil, refuse("", "the kubeconfig is empty")
	}
	if len(kubeconfig) > maxKubeconfigBytes {
		return nil, nil, refuse("", fmt.Sprintf("the kubeconfig has %d bytes; at most %d are read", len(kubeconfig), maxKubeconfigBytes))
	}
	cfg, err := clientcmd.Load(kubeconfig)
	if err != nil {
		// The parser's message may quote the content, which may be a credential.
		return nil, nil, refuse("", "the kubeconfig can't be parsed as YAML of kind Config")
	}
	kctx := cfg.Contexts[cfg.CurrentContext]
	if kctx == nil {
		return nil, nil, refuse("current-context", "names no context of the kubeconfig; set it with 'kubectl config use-context'")
	}
	cluster := cfg.Clusters[kctx.Cluster]
	if cluster == nil {
		return nil, nil, refuse("contexts[].context.cluster", "names no cluster of the kubeconfig")
	}
	user := cfg.AuthInfos[kctx.AuthInfo]
	if user == nil {
		return nil, nil, refuse("contexts[].context.user", "names no user of the kubeconfig")
	}
	return cluster, user, nil
}

func checkCluster(c *clientcmdapi.Cluster) error {
	server, err := url.Parse(c.Server)
	switch {
	case err != nil || server.Hostname() == "":
		return refuse("cluster.server", "is no URL; give it as https://host:port")
	case server.Scheme != "https":
		return refuse("cluster.server", "has to begin with https://")
	case server.User != nil || server.RawQuery != "" || server.Fragment != "":
		// Errors quote the address.
		return refuse("cluster.server", "holds more than an address; give it as https://host:port, and the credential in the user")
	case c.InsecureSkipTLSVerify:
		return refuse("cluster.insecure-skip-tls-verify", "is not accepted; give the CA in certificate-authority-data")
	case c.CertificateAuthority != "":
		return refuse("cluster.certificate-authority", "names a file; embed it as certificate-authority-data ('kubectl config view --flatten --minify')")
	case c.ProxyURL != "":
		return refuse("cluster.proxy-url", "is not accepted")
	}
	return nil
}

func checkUser(u *clientcmdapi.AuthInfo) error {
	const embed = "names a file; embed it ('kubectl config view --flatten --minify')"
	switch {
	case u.Exec != nil:
		return refuse("user.exec", "would run a program in the operator; use a ServiceAccount's token or a client certificate")
	case u.AuthProvider != nil:
		return refuse("user.auth-provider", "is not accepted; use a ServiceAccount's token or a client certificate")
	case u.TokenFile != "":
		return refuse("user.tokenFile", embed)
	case u.ClientCertificate != "":
		return refuse("user.client-certificate", embed)
	case u.ClientKey != "":
		return refuse("user.client-key", embed)
	case u.Impersonate != "" || u.ImpersonateUID != "" || len(u.ImpersonateGroups) > 0 || len(u.ImpersonateUserExtra) > 0:
		return refuse("user.as", "impersonation is not accepted; use a credential of the account itself")
	}
	return nil
}

// checkCredential finds the mistakes that would otherwise show as the spoke refusing
// an anonymous request, or as a spoke that does not answer.
func checkCredential(u *clientcmdapi.AuthInfo) error {
	certificate, key := len(u.ClientCertificateData) > 0, len(u.ClientKeyData) > 0
	switch {
	case certificate && !key:
		return refuse("user.client-key-data", "is missing; the client certificate is of no use without it")
	case key && !certificate:
		return refuse("user.client-certificate-data", "is missing; the client key is of no use without it")
	case u.Token == "" && u.Username == "" && !certificate:
		return refuse("user", "holds no credential; use a ServiceAccount's token or a client certificate")
	case strings.ContainsFunc(u.Token, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return refuse("user.token", "holds a line break or another character that no token has")
	}
	return nil
}
