package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/rulefleet/rulefleet/pkg/testing/controlplane"
)

// completing has bash complete each of its arguments, as it does when a person presses the Tab key. The words of an argument
// are separated by commas. The first function is that of the package bash-completion.
const completing = `
_get_comp_words_by_ref() { words=("${COMP_WORDS[@]}"); cword=$COMP_CWORD; cur=${words[cword]}; prev=${words[cword-1]}; }
source <(kubectl completion bash)
for line; do
	IFS=, read -ra COMP_WORDS <<<"$line"
	if [[ $line == *, ]]; then COMP_WORDS+=(''); fi
	COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMP_TYPE=9 COMPREPLY=()
	__start_kubectl 2>/dev/null
	echo "${COMPREPLY[@]}"
done
`

// installed returns a folder with kubectl, the plugin and the program of docs/how-to/plugin.md, and a kubeconfig for the hub.
func installed(t *testing.T) (folder string, env []string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	folder = t.TempDir()
	programs, err := controlplane.DefaultBinDir()
	must(err)
	must(os.Symlink(filepath.Join(programs, "kubectl"), filepath.Join(folder, "kubectl")))
	self, err := os.Executable()
	must(err)
	must(os.WriteFile(filepath.Join(folder, "kubectl-rulefleet"), fmt.Appendf(nil, "#!/bin/sh\n%s=1 exec %q \"$@\"\n", asPlugin, self), 0o700))

	config := api.NewConfig()
	config.Clusters["hub"], config.CurrentContext = &api.Cluster{Server: hub(t)}, "hub"
	for _, name := range []string{"hub", "eu-prod-1"} {
		config.Contexts[name] = &api.Context{Cluster: "hub"}
	}
	must(clientcmd.WriteToFile(*config, filepath.Join(folder, "config")))
	env = []string{"PATH=" + folder + ":" + os.Getenv("PATH"), "HOME=" + folder, "KUBECONFIG=" + filepath.Join(folder, "config")}

	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "how-to", "plugin.md"))
	must(err)
	command := regexp.MustCompile(`(?m)^printf .* >(kubectl_complete-rulefleet)$`).FindSubmatch(page)
	if command == nil {
		t.Fatal("docs/how-to/plugin.md does not say how to complete")
	}
	install := exec.CommandContext(t.Context(), "bash", "-c", string(command[0])+" && chmod +x "+string(command[1]))
	install.Dir = folder
	must(install.Run())
	return folder, env
}

// TestCompletion completes names of the hub in bash, by kubectl's own script and as the page describes it.
func TestCompletion(t *testing.T) {
	folder, env := installed(t)
	bash := func(script string, args ...string) []string {
		cmd := exec.CommandContext(t.Context(), "bash", append([]string{"-c", script, "bash"}, args...)...)
		cmd.Dir, cmd.Env = folder, env
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	}
	var lines, want []string
	for _, tc := range [][2]string{
		{"spo", "spokes"},
		{"status,spoke/e", "spoke/eu-1"},
		{"status,art/", "art/deployment-down"},
		{"why,-n,shop,alertrule/hi", "alertrule/high-latency"},
		{"why,alertrule/x,--cluster,e", "eu-1"},
		{"unjoin,", "eu-1"},
		{"join,x,--auth,st", "static"},
		{"join,x,--spoke-context,eu", "eu-prod-1"},
		{"spokes,", ""},
	} {
		lines, want = append(lines, "kubectl,rulefleet,"+tc[0]), append(want, tc[1])
	}
	for i, got := range bash(completing, lines...) {
		if strings.TrimSpace(got) != want[i] {
			t.Errorf("%s is completed as %q, want %q", lines[i], got, want[i])
		}
	}
	// kubectl's scripts for other shells, such as zsh, show what this command prints.
	if got := bash("kubectl __complete rulefleet status spoke/ 2>/dev/null"); strings.Join(got, " ") != "spoke/eu-1 :4" {
		t.Errorf("kubectl offers %q", got)
	}
}
