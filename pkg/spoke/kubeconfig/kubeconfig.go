package kubeconfig

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Fields that are refused in more than one place.
const (
	fieldServer   = "cluster.server"
	fieldProxy    = "cluster.proxy-url"
	fieldInsecure = "cluster.insecure-skip-tls-verify"
)

// RefusedError says which field of a kubeconfig, or which other field with the address of a server in a spoke, is
// refused, and what to do. It never contains a field's value.
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

// RESTConfig creates a client configuration from a kubeconfig. A kubeconfig is untrusted input: it could name
// a program to run, a file of the operator to send, or an address that only the operator can reach. So only
// allowed fields are copied, and any other field that would change the connection is refused with a
// RefusedError. Host names are resolved and checked again when they are dialed.
func RESTConfig(kubeconfig []byte, allow Allowance) (*rest.Config, error) {
	cluster, user, err := currentContext(kubeconfig)
	if err != nil {
		return nil, err
	}
	server, err := checkCluster(cluster, allow)
	if err != nil {
		return nil, err
	}
	proxy, err := checkProxy(cluster.ProxyURL, allow)
	if err != nil {
		return nil, err
	}
	if err := checkUser(user); err != nil {
		return nil, err
	}
	if err := checkCredential(user); err != nil {
		return nil, err
	}
	cfg := &rest.Config{
		Host:        cluster.Server,
		BearerToken: user.Token,
		Username:    user.Username,
		Password:    user.Password,
		TLSClientConfig: rest.TLSClientConfig{
			Insecure:   cluster.InsecureSkipTLSVerify,
			ServerName: cluster.TLSServerName,
			CAData:     cluster.CertificateAuthorityData,
			CertData:   user.ClientCertificateData,
			KeyData:    user.ClientKeyData,
		},
		DisableCompression: cluster.DisableCompression,
	}
	// client-go does not share a transport that has its own proxy, so each connection has one and closes it.
	if proxy != nil {
		cfg.Proxy, cfg.Dial = http.ProxyURL(proxy), allow.dialer(fieldProxy)
	} else {
		cfg.Proxy, cfg.Dial = allow.route(fieldServer, server)
	}
	return cfg, nil
}

// currentContext returns the cluster and the user of the current context.
func currentContext(kubeconfig []byte) (*clientcmdapi.Cluster, *clientcmdapi.AuthInfo, error) {
	cfg, err := parse(kubeconfig)
	if err != nil {
		return nil, nil, err
	}
	kctx := cfg.Contexts[cfg.CurrentContext]
	if kctx == nil {
		return nil, nil, dangling("current-context", cfg.CurrentContext, "context", "set it with 'kubectl config use-context'")
	}
	cluster := cfg.Clusters[kctx.Cluster]
	if cluster == nil {
		return nil, nil, dangling("contexts[].context.cluster", kctx.Cluster, "cluster", "set it to the name of an entry in clusters")
	}
	user := cfg.AuthInfos[kctx.AuthInfo]
	if user == nil {
		return nil, nil, dangling("contexts[].context.user", kctx.AuthInfo, "user", "set it to the name of an entry in users")
	}
	return cluster, user, nil
}

// dangling refuses a field whose value is not the name of an entry of the kubeconfig.
func dangling(field, name, kind, todo string) error {
	if name == "" {
		return refuse(field, "is missing; "+todo)
	}
	return refuse(field, "names a "+kind+" that the kubeconfig does not have; "+todo)
}

// checkCluster checks the cluster except its proxy, and returns the server.
func checkCluster(c *clientcmdapi.Cluster, allow Allowance) (*url.URL, error) {
	server, err := url.Parse(c.Server)
	switch {
	case c.Server == "":
		return nil, refuse(fieldServer, "is missing; write it as https://host:port")
	case err != nil || server.Hostname() == "":
		return nil, refuse(fieldServer, "is not a valid URL; write it as https://host:port")
	case server.Scheme != "https" && (server.Scheme != "http" || !allow.HTTP):
		return nil, refuse(fieldServer, "must begin with https://: plain http would send the credential unencrypted"+orAllow(allowHTTP))
	case server.User != nil || server.RawQuery != "" || server.Fragment != "":
		// Errors quote the address, which must not contain a credential.
		return nil, refuse(fieldServer, "contains a credential, a query or a fragment; write it as https://host:port, and put a credential into the user")
	case c.InsecureSkipTLSVerify && !allow.InsecureTLS:
		return nil, refuse(fieldInsecure, "is not allowed; remove it, and put the CA into certificate-authority-data"+orAllow(allowInsecureTLS))
	case c.InsecureSkipTLSVerify && len(c.CertificateAuthorityData) > 0:
		return nil, refuse(fieldInsecure, "contradicts certificate-authority-data; remove one of the two")
	case c.CertificateAuthority != "":
		return nil, refuse("cluster.certificate-authority", "refers to a file; embed it as certificate-authority-data ('kubectl config view --raw --flatten --minify')")
	}
	return server, allow.checkHost(fieldServer, server.Hostname())
}

// checkProxy returns the proxy of a cluster, or nil. The operator dials it instead of the server, so the same
// addresses are refused.
func checkProxy(text string, allow Allowance) (*url.URL, error) {
	if text == "" {
		return nil, nil
	}
	if !allow.ProxyURL {
		return nil, refuse(fieldProxy, "is not allowed; remove it, and reach the spoke without a proxy"+orAllow(allowProxyURL))
	}
	proxy, err := url.Parse(text)
	if err != nil || proxy.Hostname() == "" || !slices.Contains([]string{"http", "https", "socks5"}, proxy.Scheme) {
		return nil, refuse(fieldProxy, "is not the URL of a proxy; write it as http://host:port, https://host:port or socks5://host:port")
	}
	return proxy, allow.checkHost(fieldProxy, proxy.Hostname())
}

func checkUser(u *clientcmdapi.AuthInfo) error {
	const embed = "refers to a file; embed it ('kubectl config view --raw --flatten --minify')"
	switch {
	case u.Exec != nil:
		return refuse("user.exec", "is not allowed, because it would run a program in the manager; use a ServiceAccount token or a client certificate")
	case u.AuthProvider != nil:
		return refuse("user.auth-provider", "is not allowed; use a ServiceAccount token or a client certificate")
	case u.TokenFile != "":
		return refuse("user.tokenFile", embed)
	case u.ClientCertificate != "":
		return refuse("user.client-certificate", embed)
	case u.ClientKey != "":
		return refuse("user.client-key", embed)
	case u.Impersonate != "" || u.ImpersonateUID != "" || len(u.ImpersonateGroups) > 0 || len(u.ImpersonateUserExtra) > 0:
		return refuse("user.as", "impersonation is not allowed; use a credential of the account itself")
	}
	return nil
}

// checkCredential finds mistakes that would otherwise look like a spoke that rejects anonymous requests or
// does not answer.
func checkCredential(u *clientcmdapi.AuthInfo) error {
	certificate, key := len(u.ClientCertificateData) > 0, len(u.ClientKeyData) > 0
	switch {
	case certificate && !key:
		return refuse("user.client-key-data", "is missing; add the key of the client certificate")
	case key && !certificate:
		return refuse("user.client-certificate-data", "is missing; add the certificate of the client key")
	case u.Token == "" && u.Username == "" && !certificate:
		return refuse("user", "has no credential; add a ServiceAccount token or a client certificate")
	case strings.ContainsFunc(u.Token, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return refuse("user.token", "has a line break or another character that is not valid in a token; copy the token again")
	}
	return nil
}
