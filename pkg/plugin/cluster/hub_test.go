package cluster

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rulefleet/rulefleet/pkg/plugin/exit"
)

// TestKubeconfig has kubeconfigs that do not say which cluster is the hub. Nothing assumes one on this machine.
func TestKubeconfig(t *testing.T) {
	const noContext = `{kind: Config, apiVersion: v1, clusters: [{name: a, cluster: {server: "https://a"}}], contexts: [{name: a, context: {cluster: a}}, {name: b, context: {cluster: b}}]}`
	const proxy = `{kind: Config, apiVersion: v1, clusters: [{name: a, cluster: {server: "http://localhost:8080"}}], contexts: [{name: a, context: {cluster: a}}], current-context: a}`
	for _, tc := range []struct {
		name, content string
		context       string
		server        string
		want          string // "" if it is good
	}{
		{name: "nothing in it", content: "{}", want: "does not say which cluster is the hub (file: "},
		{name: "no current context", content: noContext, want: "does not say which cluster is the hub (file: "},
		{name: "a context", content: noContext, context: "a"},
		{name: "a context without its cluster", content: noContext, context: "b", want: "does not say which cluster is the hub (file: "},
		{name: "no such context", content: noContext, context: "c", want: `context "c" does not exist`},
		{name: "a server", content: "{}", server: "https://a"},
		{name: "the server that client-go assumes", content: "{}", server: "http://localhost:8080"},
		{name: "a proxy on this machine", content: proxy},
		{name: "not YAML", content: "clusters: {", want: "reading the kubeconfig: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config")
			if err := os.WriteFile(file, []byte(tc.content), 0o600); err != nil {
				t.Fatal(err)
			}
			h := NewHub("test", io.Discard)
			*h.Flags.KubeConfig, *h.Flags.Context, *h.Flags.APIServer = file, tc.context, tc.server
			_, err := h.Connect()
			if code, next := exit.Of(err); err == nil != (tc.want == "") || err != nil && (code != exit.Usage || next == "" || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%d, %v, %q; want %q", code, err, next, tc.want)
			}
		})
	}
}
