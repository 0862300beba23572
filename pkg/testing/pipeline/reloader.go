package pipeline

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

const (
	// configKey is the key of the configuration in the Secret that is named after the Prometheus.
	configKey = "prometheus.yaml.gz"
	// mountedRules is the folder of rule files in a pod of Prometheus.
	mountedRules = "/etc/prometheus/rules/"
	// rulesPrefix is the prefix of the names of the ConfigMaps with rule files.
	rulesPrefix = "prometheus-" + Name + "-rulefiles-"
	// podName is the name of Prometheus' pod, which the configuration uses.
	podName = "prometheus-" + Name + "-0"
)

// reloader replaces a pod's mounts and its config-reloader: it writes the output of prometheus-operator into
// Prometheus' files, and reloads Prometheus when they change.
type reloader struct {
	client client.Client
	// dir has the configuration and the folder of rule files.
	dir       string
	reloadURL string
	// ruler is a ThanosRuler whose rules Prometheus evaluates as well; its name may be empty.
	ruler types.NamespacedName

	files   map[string]string // What is written, by path.
	pending bool              // It is still to be read.
}

func (r *reloader) configPath() string { return filepath.Join(r.dir, "prometheus.yaml") }

func (r *reloader) rulesDir() string { return filepath.Join(r.dir, "rules") }

// sync writes changes and reloads Prometheus. After a failure it retries the next time.
func (r *reloader) sync(ctx context.Context) error {
	if err := r.mount(ctx); err != nil {
		return err
	}
	if !r.pending {
		return nil
	}
	if err := ask(ctx, http.MethodPost, r.reloadURL); err != nil {
		return fmt.Errorf("reloading Prometheus: %w", err)
	}
	r.pending = false
	return nil
}

// mount writes changes.
func (r *reloader) mount(ctx context.Context) error {
	want, err := r.fetch(ctx)
	if err != nil {
		return err
	}
	if maps.Equal(want, r.files) {
		return nil
	}
	for path, content := range want {
		if err := os.MkdirAll(filepath.Dir(path), privateFolder); err != nil {
			return fmt.Errorf("creating the folder of %s: %w", path, err)
		}
		if err := os.WriteFile(path, []byte(content), privateFile); err != nil {
			return fmt.Errorf("writing %s: %w", path, err)
		}
	}
	for path := range r.files {
		if _, ok := want[path]; ok {
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing %s: %w", path, err)
		}
	}
	r.files, r.pending = want, true
	return nil
}

// fetch returns the files of Prometheus, by path.
func (r *reloader) fetch(ctx context.Context) (map[string]string, error) {
	secret := &corev1.Secret{}
	if err := r.client.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: "prometheus-" + Name}, secret); err != nil {
		return nil, fmt.Errorf("reading Prometheus' configuration: %w", err)
	}
	config, err := gunzip(secret.Data[configKey])
	if err != nil {
		return nil, fmt.Errorf("unpacking Prometheus' configuration: %w", err)
	}
	config = strings.NewReplacer("$(POD_NAME)", podName, mountedRules, r.rulesDir()+"/").Replace(config)
	files := map[string]string{}
	if err := r.addRules(ctx, files, Namespace, rulesPrefix); err != nil {
		return nil, err
	}
	if r.ruler.Name != "" {
		if err := r.addRules(ctx, files, r.ruler.Namespace, "thanos-ruler-"+r.ruler.Name+"-rulefiles-"); err != nil {
			return nil, err
		}
		if config, err = withRules(config, files); err != nil {
			return nil, err
		}
	}
	files[r.configPath()] = config
	return files, nil
}

// addRules adds the rule files in the ConfigMaps of a namespace whose names have a prefix.
func (r *reloader) addRules(ctx context.Context, files map[string]string, namespace, prefix string) error {
	configMaps := &corev1.ConfigMapList{}
	if err := r.client.List(ctx, configMaps, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("listing the ConfigMaps with rule files: %w", err)
	}
	for i := range configMaps.Items {
		cm := &configMaps.Items[i]
		if !strings.HasPrefix(cm.Name, prefix) {
			continue
		}
		for name, content := range cm.Data {
			files[filepath.Join(r.rulesDir(), cm.Name, name)] = content
		}
	}
	return nil
}

// withRules returns a configuration of Prometheus with other rule files.
func withRules(config string, files map[string]string) (string, error) {
	var c map[string]any
	if err := yaml.Unmarshal([]byte(config), &c); err != nil {
		return "", fmt.Errorf("reading Prometheus' configuration: %w", err)
	}
	c["rule_files"] = slices.Sorted(maps.Keys(files))
	out, err := yaml.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("writing Prometheus' configuration: %w", err)
	}
	return string(out), nil
}

func gunzip(data []byte) (string, error) {
	reader, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return "", err
	}
	out, err := io.ReadAll(reader)
	return string(out), err
}
