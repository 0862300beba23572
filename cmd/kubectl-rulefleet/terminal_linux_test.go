package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// asPlugin is set for processes of the test program that are the plugin.
const asPlugin = "TEST_RUNS_THE_PLUGIN"

func TestMain(m *testing.M) {
	if os.Getenv(asPlugin) != "" {
		os.Exit(run())
	}
	os.Exit(m.Run())
}

// pseudoTerminal returns both ends of a pseudo-terminal, 80 columns wide: what a person has, and what a program has.
func pseudoTerminal(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = person.Close() })
	fd := int(person.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Close() })
	if err := unix.IoctlSetWinsize(int(program.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}); err != nil {
		t.Fatal(err)
	}
	return person, program
}

// answers is a hub with a spoke whose deletions are held.
var answers = map[string]string{
	"/api":  `{"kind": "APIVersions", "versions": ["v1"]}`,
	"/apis": `{"kind": "APIGroupList", "apiVersion": "v1", "groups": [` + group + `]}`,
	"/apis/rulefleet.io/v1alpha1": `{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "rulefleet.io/v1alpha1", "resources": [
		{"name": "spokeclusters", "singularName": "spokecluster", "namespaced": false, "kind": "SpokeCluster", "verbs": ["get", "list"]},
		{"name": "alertruletemplates", "singularName": "alertruletemplate", "namespaced": false, "kind": "AlertRuleTemplate", "verbs": ["get", "list"]},
		{"name": "alertrules", "singularName": "alertrule", "namespaced": true, "kind": "AlertRule", "verbs": ["get", "list"]}]}`,
	"/apis/rulefleet.io":                                     group,
	"/apis/rulefleet.io/v1alpha1/spokeclusters":              `{"kind": "SpokeClusterList", "apiVersion": "rulefleet.io/v1alpha1", "metadata": {}, "items": [` + spoke + `]}`,
	"/apis/rulefleet.io/v1alpha1/spokeclusters/eu-1":         spoke,
	"/apis/rulefleet.io/v1alpha1/alertrules":                 `{"kind": "AlertRuleList", "apiVersion": "rulefleet.io/v1alpha1", "metadata": {}, "items": []}`,
	"/apis/rulefleet.io/v1alpha1/namespaces/shop/alertrules": `{"kind": "AlertRuleList", "apiVersion": "rulefleet.io/v1alpha1", "metadata": {}, "items": [{"metadata": {"name": "high-latency"}}]}`,
	"/apis/rulefleet.io/v1alpha1/alertruletemplates":         `{"kind": "AlertRuleTemplateList", "apiVersion": "rulefleet.io/v1alpha1", "metadata": {}, "items": [{"metadata": {"name": "deployment-down"}}]}`,
}

const (
	group = `{"kind": "APIGroup", "apiVersion": "v1", "name": "rulefleet.io", "versions": [{"groupVersion": "rulefleet.io/v1alpha1", "version": "v1alpha1"}],
		"preferredVersion": {"groupVersion": "rulefleet.io/v1alpha1", "version": "v1alpha1"}}`
	spoke = `{"kind": "SpokeCluster", "apiVersion": "rulefleet.io/v1alpha1", "metadata": {"name": "eu-1", "resourceVersion": "1"}, "status": {
		"pendingDeletions": {"count": 60, "held": 60}, "conditions": [
		{"type": "Ready", "status": "False", "reason": "DeletionsHeld", "message": "60 deletions are held", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}`
)

// hub starts that hub, and returns its address. A request to write fails the test.
func hub(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, ok := answers[r.URL.Path]
		if r.Method != http.MethodGet {
			t.Errorf("the hub was asked for %s %s", r.Method, r.URL)
		}
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// kubectlRulefleet returns the command kubectl rulefleet for that hub.
func kubectlRulefleet(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	cmd := exec.CommandContext(t.Context(), self, append([]string{"--server", hub(t)}, args...)...)
	cmd.Env = append([]string{asPlugin + "=1", "HOME=" + home, "KUBECONFIG=" + filepath.Join(home, "none"), "TERM=xterm", "PATH=" + os.Getenv("PATH")}, env...)
	return cmd
}

// onTerminal runs a command as a person does, who types something after it has printed what they wait for. It returns what
// the terminal has shown.
func onTerminal(t *testing.T, cmd *exec.Cmd, await string, then func(terminal io.Writer)) string {
	t.Helper()
	person, program := pseudoTerminal(t)
	cmd.Stdin, cmd.Stdout = program, program
	if cmd.Stderr == nil {
		cmd.Stderr = program
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true} // so that Ctrl-C reaches it
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = program.Close() // its end is that of the output
	var shown bytes.Buffer
	buffer := make([]byte, 4096)
	for {
		n, err := person.Read(buffer)
		shown.Write(buffer[:n])
		if await != "" && strings.Contains(shown.String(), await) {
			await = ""
			then(person)
		}
		if err != nil { // EIO, when the program has ended
			break
		}
	}
	if await != "" {
		t.Errorf("it has not shown %q", await)
	}
	_ = cmd.Wait()
	return shown.String()
}

// TestTerminal runs the plugin on a pseudo-terminal, and without one: colors, a cleared screen and questions are only for
// a terminal.
func TestTerminal(t *testing.T) {
	const red, cleared = "\x1b[31mFalse\x1b[0m", "\x1b[H\x1b[2J"
	spokes := []string{"spokes"}
	for _, tc := range []struct {
		name  string
		env   []string
		args  []string
		await string // what the person waits for
		types string // what they type then
		code  int
		// has and lacks are about the output on the terminal, elsewhere about that in a file.
		has, lacks string
		elsewhere  string
		fails      int // the exit code elsewhere
	}{
		{name: "colors", args: spokes, has: red, elsewhere: "False"},
		{name: "NO_COLOR", env: []string{"NO_COLOR=1"}, args: spokes, has: "False", lacks: "\x1b", elsewhere: "False"},
		{name: "a dumb terminal", env: []string{"TERM=dumb"}, args: spokes, has: "False", lacks: "\x1b", elsewhere: "False"},
		{name: "json", args: []string{"spokes", "-o", "json"}, has: `"DeletionsHeld"`, lacks: "\x1b", elsewhere: `"DeletionsHeld"`},
		{name: "an error", args: []string{"spokes", "--none"}, code: 2, has: "\x1b[31merror:\x1b[0m unknown flag", elsewhere: "error: unknown flag", fails: 2},
		{
			name: "a question", args: []string{"ack", "eu-1"}, await: "[y/N] ", types: "n\n", code: 1, has: "not confirmed; nothing was changed",
			elsewhere: "the input is not a terminal", fails: 2,
		},
		{name: "watch", args: []string{"firing", "-A", "--watch"}, await: "\n", types: "\x03", has: cleared},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cmd := kubectlRulefleet(t, tc.env, tc.args...)
			shown := onTerminal(t, cmd, tc.await, func(terminal io.Writer) { _, _ = io.WriteString(terminal, tc.types) })
			if code := cmd.ProcessState.ExitCode(); code != tc.code {
				t.Errorf("exit code %d on a terminal, want %d", code, tc.code)
			}
			if !strings.Contains(shown, tc.has) || tc.lacks != "" && strings.Contains(shown, tc.lacks) {
				t.Errorf("on a terminal, it shows %q", shown)
			}
			if tc.elsewhere == "" {
				return
			}
			cmd = kubectlRulefleet(t, tc.env, tc.args...)
			out, err := cmd.CombinedOutput()
			if failed := (*exec.ExitError)(nil); err != nil && !errors.As(err, &failed) || cmd.ProcessState.ExitCode() != tc.fails {
				t.Errorf("%v, want exit code %d", err, tc.fails)
			}
			if !bytes.Contains(out, []byte(tc.elsewhere)) || bytes.Contains(out, []byte("\x1b")) {
				t.Errorf("without a terminal, it prints %q", out)
			}
		})
	}
}

// TestErrorInAFile checks that errors written to a file have no colors, even if the output is a terminal.
func TestErrorInAFile(t *testing.T) {
	cmd := kubectlRulefleet(t, nil, "spokes", "--none")
	var file bytes.Buffer
	cmd.Stderr = &file
	shown := onTerminal(t, cmd, "", nil)
	if code := cmd.ProcessState.ExitCode(); shown != "" || !strings.HasPrefix(file.String(), "error: unknown flag") || code != 2 {
		t.Errorf("exit code %d: it shows %q, and writes %q", code, shown, file.String())
	}
}

// TestColumns has the width of a terminal, which progress is shown on. Everything else has none.
func TestColumns(t *testing.T) {
	_, program := pseudoTerminal(t)
	t.Setenv("TERM", "xterm")
	if width := columns(program); width == nil || width() != 80 {
		t.Error("the width of the terminal is not known")
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if columns(file) != nil {
		t.Error("a file has a width")
	}
	t.Setenv("TERM", "dumb")
	if columns(program) != nil {
		t.Error("progress is shown on a terminal that cannot clear a line")
	}
}
