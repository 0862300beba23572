package join

import (
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestOfArgoCD reads the Secrets that Argo CD makes for clusters with each kind of access.
func TestOfArgoCD(t *testing.T) {
	for _, tc := range []struct {
		name, cluster, config string
		why                   string // "" if it can be used
		token                 string
		cert, authority       string
	}{
		{name: "token", config: `{"bearerToken":"t","tlsClientConfig":{"insecure":false,"caData":"Y2E="}}`, token: "t", authority: "ca"},
		{name: "certificate", config: `{"tlsClientConfig":{"caData":"Y2E=","certData":"Y2VydA==","keyData":"a2V5"}}`, cert: "cert", authority: "ca"},
		{name: "a certificate without its key", config: `{"tlsClientConfig":{"certData":"Y2VydA=="}}`, why: "neither a bearer token nor a client certificate"},
		{name: "a password", config: `{"username":"admin","password":"secret"}`, why: "neither a bearer token nor a client certificate"},
		{name: "nothing", config: `{}`, why: "neither a bearer token nor a client certificate"},
		{name: "a command", config: `{"execProviderConfig":{"command":"argocd-k8s-auth"}}`, why: "with a command (execProviderConfig)"},
		{name: "AWS", config: `{"awsAuthConfig":{"clusterName":"eu-1"},"tlsClientConfig":{"caData":"Y2E="}}`, why: "with AWS IAM (awsAuthConfig)"},
		{name: "a proxy", config: `{"bearerToken":"t","proxyUrl":"http://proxy:3128"}`, why: "through a proxy"},
		{name: "insecure", config: `{"bearerToken":"t","tlsClientConfig":{"insecure":true}}`, why: "insecure"},
		{name: "no JSON", config: `bearerToken: secret`, why: "the key config of the Secret is not valid"},
		{name: "a wrong type", config: `{"bearerToken":["secret"]}`, why: "the key config of the Secret is not valid"},
		{name: "a name that is an address", cluster: "https://k8s.eu-1.example.com", config: `{"bearerToken":"t"}`, why: "cannot be the name of a spoke"},
		{name: "no name", cluster: "-", config: `{"bearerToken":"t"}`, why: "cannot be the name of a spoke"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.cluster == "" {
				tc.cluster = "eu-1"
			}
			got, why := ofArgoCD(&corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
					"env": "prod", argoTypeLabel: argoTypeCluster, "app.kubernetes.io/instance": "clusters", "argocd.argoproj.io/auto-label-cluster-info": "true",
				}},
				Data: map[string][]byte{"name": []byte(tc.cluster), "server": []byte("https://k8s.eu-1.example.com"), "config": []byte(tc.config)},
			})
			if (why == "") != (tc.why == "") || !strings.Contains(why, tc.why) || strings.Contains(why, "secret") {
				t.Fatalf("got %q, want %q", why, tc.why)
			}
			if (got.config == nil) != (why != "") {
				t.Fatalf("the configuration is %v", got.config)
			}
			if got.config == nil {
				return
			}
			if got.name != "eu-1" || !maps.Equal(got.labels, map[string]string{"env": "prod"}) {
				t.Errorf("got name %q and labels %v", got.name, got.labels)
			}
			if c := got.config; c.Host != "https://k8s.eu-1.example.com" || c.BearerToken != tc.token || string(c.CertData) != tc.cert || string(c.CAData) != tc.authority || c.Insecure {
				t.Errorf("got %v", c)
			}
		})
	}
}
