package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
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

// completed are words after "kubectl rulefleet", separated by commas, and the last word after the Tab key.
var completed = [][2]string{
	{"spo", "spokes"},
	{"status,spoke/e", "spoke/eu-1"},
	{"status,art/", "art/deployment-down"},
	{"why,-n,shop,alertrule/hi", "alertrule/high-latency"},
	{"why,alertrule/x,--cluster,e", "eu-1"},
	{"reset,-n,shop,hi", "high-latency"},
	{"unjoin,", "eu-1"},
	{"join,x,--auth,st", "static"},
	{"join,x,--spoke-context,eu", "eu-prod-1"},
	{"spokes,", ""},
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
	var lines []string
	for _, tc := range completed {
		lines = append(lines, "kubectl,rulefleet,"+tc[0])
	}
	for i, got := range bash(completing, lines...) {
		if strings.TrimSpace(got) != completed[i][1] {
			t.Errorf("%s is completed as %q, want %q", lines[i], got, completed[i][1])
		}
	}
	// kubectl's scripts for other shells, such as fish, show what this command prints.
	if got := bash("kubectl __complete rulefleet status spoke/ 2>/dev/null"); strings.Join(got, " ") != "spoke/eu-1 :4" {
		t.Errorf("kubectl offers %q", got)
	}
}

// zshrc has the Tab key complete a line, write it into a file and clear it.
const zshrc = `
autoload -Uz compinit && compinit -u -D
source <(kubectl completion zsh)
finish() { zle expand-or-complete; print -r -- "$BUFFER" >>completed; BUFFER=; }
zle -N finish
bindkey '^I' finish
PROMPT='ready: '
`

// TestCompletionInZsh does the same in zsh, with its own completion system, on a pseudo-terminal.
func TestCompletionInZsh(t *testing.T) {
	if _, err := exec.LookPath("zsh"); err != nil {
		t.Skip("zsh is not installed; .ci/run installs it")
	}
	folder, env := installed(t)
	if err := os.WriteFile(filepath.Join(folder, ".zshrc"), []byte(zshrc), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "zsh", "-d", "-i") // without the configuration of the machine
	cmd.Dir, cmd.Env = folder, slices.Concat(env, []string{"ZDOTDIR=" + folder, "TERM=xterm"})
	shown := onTerminal(t, cmd, "ready: ", func(terminal io.Writer) {
		for _, tc := range completed {
			_, _ = io.WriteString(terminal, "kubectl rulefleet "+strings.ReplaceAll(tc[0], ",", " ")+"\t")
		}
		_, _ = io.WriteString(terminal, "exit\n")
	})
	out, err := os.ReadFile(filepath.Join(folder, "completed"))
	if err != nil {
		t.Fatalf("%v; the terminal shows\n%s", err, shown)
	}
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(lines) != len(completed) {
		t.Fatalf("zsh has completed %q; the terminal shows\n%s", lines, shown)
	}
	for i, tc := range completed {
		words := strings.Split(tc[0], ",")
		want := strings.Join(append([]string{"kubectl rulefleet"}, append(words[:len(words)-1], tc[1])...), " ")
		if got := strings.TrimSpace(lines[i]); got != strings.TrimSpace(want) {
			t.Errorf("%s is completed as %q, want %q", tc[0], got, want)
		}
	}
}
