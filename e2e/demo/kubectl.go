package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/rulefleet/rulefleet/pkg/testing/controlplane"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// kubeconfigName is the file with a context for each cluster of the fleet.
const kubeconfigName = "kubeconfig"

// writeKubeconfig writes one kubeconfig for the fleet. Each cluster has a context with its name; the default
// is the hub.
func (d *demo) writeKubeconfig() error {
	all := api.NewConfig()
	for _, m := range d.members() {
		one, err := clientcmd.Load(m.Kubeconfig())
		if err != nil {
			return fmt.Errorf("reading the kubeconfig of %s: %w", m.Name(), err)
		}
		kctx := one.Contexts[one.CurrentContext]
		all.Clusters[m.Name()] = one.Clusters[kctx.Cluster]
		all.AuthInfos[m.Name()] = one.AuthInfos[kctx.AuthInfo]
		all.Contexts[m.Name()] = &api.Context{Cluster: m.Name(), AuthInfo: m.Name()}
	}
	all.CurrentContext = d.fleet.Hub.Name()
	if err := clientcmd.WriteToFile(*all, filepath.Join(d.dir, kubeconfigName)); err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	return nil
}

// onHub and onSpoke run kubectl, and show the command line and what it printed.
func (d *demo) onHub(ctx context.Context, args ...string) error {
	return d.kubectl(ctx, args)
}

func (d *demo) onSpoke(ctx context.Context, m *fleet.Member, args ...string) error {
	return d.kubectl(ctx, append([]string{"--context", m.Name()}, args...))
}

func (d *demo) kubectl(ctx context.Context, args []string) error {
	line := commandLine(append([]string{"kubectl"}, args...))
	var output bytes.Buffer
	// A separate process group lets the demo handle Ctrl-C first. With a lifeline, the process does not outlive
	// the demo.
	p, err := controlplane.StartProcess(ctx, controlplane.ProcessOptions{
		Name: line, Path: filepath.Join(d.bin, "kubectl"), Args: args, Dir: d.dir, Lifeline: true,
		Env: []string{
			"KUBECONFIG=" + filepath.Join(d.dir, kubeconfigName),
			"KUBECACHEDIR=" + filepath.Join(d.dir, "cache"),
			"KUBERC=off", // ignores a person's own aliases and defaults
		},
		Stdout: &output, Stderr: &output,
	})
	if err != nil {
		return err
	}
	<-p.Done()
	if err := p.ExitErr(); err != nil {
		return errors.Join(fmt.Errorf("%s: %w", line, err), errors.New(strings.TrimSpace(output.String())))
	}
	d.out.command(line, output.String())
	return nil
}

// commandLine formats a command for a shell.
func commandLine(args []string) string {
	words := make([]string, len(args))
	for i, a := range args {
		if words[i] = a; a == "" || strings.ContainsAny(a, " \t\n\"'`$&|;<>(){}[]*?!\\#~") {
			words[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

// file writes a manifest into the work folder, and shows it.
func (d *demo) file(name, content string) error {
	if err := os.WriteFile(filepath.Join(d.dir, name), []byte(content), 0o600); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	d.out.command("cat "+name, content)
	return nil
}
