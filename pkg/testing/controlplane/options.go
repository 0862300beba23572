package controlplane

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// The programs that a control plane is made of, as named in Options.BinDir.
const (
	etcdName              = "etcd"
	apiServerName         = "kube-apiserver"
	controllerManagerName = "kube-controller-manager"
	kubectlName           = "kubectl"
)

// Options describe the control plane that Start starts.
type Options struct {
	// Name names the cluster in its kubeconfig and in messages. The default is
	// "cluster".
	Name string

	// Dir is the work folder: certificates, data, logs and the kubeconfig. What
	// an earlier cluster left in it is removed. The default is a new temporary
	// folder, which Stop removes unless KeepLogs is set.
	Dir string

	// BinDir is the folder that holds the programs. The default is
	// $RULEFLEET_ASSETS, else $KUBEBUILDER_ASSETS, else bin/k8s of the Go module
	// that the working directory is in.
	BinDir string

	// ControllerManager starts kube-controller-manager too, so that Deployments
	// get ReplicaSets, namespaces are deleted for good, garbage is collected and
	// namespaces get their default ServiceAccount.
	ControllerManager bool

	// Audit writes an audit log: one line at level Metadata for each stage of
	// each request except RequestReceived, written before the response ends.
	Audit bool

	// OpenAPI publishes the OpenAPI documents of the API server, with which kubectl and helm check what they send. They
	// take a third of the CPU time of a start. Standard programs ($KUBEBUILDER_ASSETS) always publish them.
	OpenAPI bool

	// Port is the port of the API server on 127.0.0.1; 0 picks a free one.
	Port int

	// KeepLogs makes Stop leave a temporary work folder where it is.
	KeepLogs bool

	// Usage counts the cluster's processes; it may be nil.
	Usage *Usage

	// Output receives a line of progress for each step; nil discards them.
	Output io.Writer

	// seeding lets the administrator delete kube-system.
	seeding bool
}

// withDefaults returns the options with defaults for empty fields, except Dir and Port, which are chosen when
// the cluster starts.
func (o Options) withDefaults() (Options, error) {
	if o.Name == "" {
		o.Name = "cluster"
	}
	if o.Output == nil {
		o.Output = io.Discard
	}
	var err error
	if o.BinDir == "" {
		if o.BinDir, err = DefaultBinDir(); err != nil {
			return o, err
		}
	}
	// Children run in other folders than this process.
	if o.BinDir, err = filepath.Abs(o.BinDir); err != nil {
		return o, fmt.Errorf("resolving the folder of programs: %w", err)
	}
	return o, o.checkBinaries()
}

func (o Options) checkBinaries() error {
	names := []string{etcdName, apiServerName}
	if o.ControllerManager {
		names = append(names, controllerManagerName)
	}
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(o.BinDir, name)); err != nil {
			return fmt.Errorf("no usable %s in %s: run make controlplane first: %w", name, o.BinDir, err)
		}
	}
	return nil
}

// DefaultBinDir returns the folder in which the programs of a control plane are
// looked for when Options.BinDir is empty. It need not exist.
func DefaultBinDir() (string, error) {
	for _, variable := range []string{"RULEFLEET_ASSETS", "KUBEBUILDER_ASSETS"} {
		if dir := os.Getenv(variable); dir != "" {
			return dir, nil
		}
	}
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the module root: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		_, err := os.Stat(filepath.Join(dir, "go.mod"))
		if err == nil {
			return filepath.Join(dir, "bin", "k8s"), nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("finding the module root: %w", err)
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod in or above %s: set Options.BinDir or $RULEFLEET_ASSETS", start)
		}
	}
}
