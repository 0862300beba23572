package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule/builtin"
)

// builtInsBackoff is the backoff for writing the built-in templates. It starts with a short delay,
// because the webhook of this process, which may still be starting, may refuse them.
var builtInsBackoff = wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 8, Cap: 30 * time.Second}

// builtIns maintains the built-in templates on the hub: it creates those that this hub never had, and
// updates those that were not edited to this version and its flags. Deleted templates stay deleted.
type builtIns struct {
	client client.Client
	// reader reads directly from the API server.
	reader    client.Reader
	templates []*v1alpha1.AlertRuleTemplate
	// configMap is the hub's ConfigMap, with the list of created templates.
	configMap client.ObjectKey
	backoff   wait.Backoff
	log       logr.Logger
}

// setupBuiltIns adds the upkeep of the built-in templates to the hub's manager.
func setupBuiltIns(mgr manager.Manager, state *corev1.ConfigMap, log logr.Logger, o *options) error {
	err := mgr.Add(&builtIns{
		client: mgr.GetClient(), reader: mgr.GetAPIReader(), backoff: builtInsBackoff, log: log,
		templates: builtin.Templates(builtin.Options{KubeStateMetrics: o.kubeStateMetrics, Enabled: o.enabledTemplates}),
		configMap: client.ObjectKeyFromObject(state),
	})
	if err != nil {
		return fmt.Errorf("setting up the built-in templates: %w", err)
	}
	return nil
}

// Start retries until all templates are applied, or ctx ends. It returns nil because the process also
// works without new templates. Each distinct failure is logged once.
func (b *builtIns) Start(ctx context.Context) error {
	backoff, logged := b.backoff, map[string]bool{}
	for {
		failures := b.ensure(ctx)
		for _, err := range failures {
			if text := err.Error(); !logged[text] && ctx.Err() == nil {
				logged[text] = true
				b.log.Error(err, "could not apply all built-in templates; trying again")
			}
		}
		if len(failures) == 0 {
			b.log.Info("applied the built-in templates")
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(backoff.Step()):
		}
	}
}

// ensure processes the templates once. A template that is refused does not block the others.
func (b *builtIns) ensure(ctx context.Context) []error {
	state, present, err := b.read(ctx)
	if err != nil {
		return []error{err}
	}
	kind, err := b.kind(ctx)
	if err != nil {
		return []error{err}
	}
	made := strings.Fields(state.Data[builtInsKey])
	if noted := state.Data[builtInsKindKey]; noted != "" && noted != kind {
		made = nil
	}
	var failures []error
	for _, t := range b.templates {
		known := slices.Contains(made, t.Name)
		if err := b.ensureOne(ctx, t, present[t.Name], known); err != nil {
			failures = append(failures, err)
		} else if !known {
			made = append(made, t.Name)
		}
	}
	if err := b.note(ctx, state, made, kind); err != nil {
		failures = append(failures, err)
	}
	return failures
}

// read returns the hub's ConfigMap, and the existing templates by name.
func (b *builtIns) read(ctx context.Context) (*corev1.ConfigMap, map[string]*v1alpha1.AlertRuleTemplate, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	// Another replica may have been the leader since this process started.
	state := &corev1.ConfigMap{}
	if err := b.reader.Get(ctx, b.configMap, state); err != nil {
		return nil, nil, fmt.Errorf("reading the list of created built-in templates from ConfigMap %s: %w", b.configMap, err)
	}
	var list v1alpha1.AlertRuleTemplateList
	if err := b.reader.List(ctx, &list); err != nil {
		return nil, nil, fmt.Errorf("reading the AlertRuleTemplates: %w", err)
	}
	present := map[string]*v1alpha1.AlertRuleTemplate{}
	for i := range list.Items {
		present[list.Items[i].Name] = &list.Items[i]
	}
	return state, present, nil
}

// ensureOne creates or updates one template, given the existing one or nil, and whether it was created
// before.
func (b *builtIns) ensureOne(ctx context.Context, t, present *v1alpha1.AlertRuleTemplate, known bool) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if present == nil {
		if known {
			return nil // it was deleted
		}
		if err := b.client.Create(ctx, t.DeepCopy()); err != nil {
			return fmt.Errorf("creating the built-in AlertRuleTemplate %s: %w", t.Name, err)
		}
		return nil
	}
	next := builtin.Follow(present, t)
	if next == nil {
		return nil
	}
	// An edit in the meantime makes the patch fail.
	patch := client.MergeFromWithOptions(present, client.MergeFromWithOptimisticLock{})
	if err := b.client.Patch(ctx, next, patch); err != nil {
		return fmt.Errorf("updating the built-in AlertRuleTemplate %s: %w", t.Name, err)
	}
	return nil
}

// kind returns the UID of the templates' CustomResourceDefinition.
func (b *builtIns) kind(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	crd := definition()
	if err := b.reader.Get(ctx, client.ObjectKey{Name: "alertruletemplates." + v1alpha1.Group}, crd); err != nil {
		return "", fmt.Errorf("reading the CustomResourceDefinition of AlertRuleTemplates: %w", err)
	}
	return string(crd.UID), nil
}

// note records in the hub's ConfigMap which templates were created, and for which
// CustomResourceDefinition.
func (b *builtIns) note(ctx context.Context, state *corev1.ConfigMap, made []string, kind string) error {
	text := strings.Join(made, " ")
	if text == state.Data[builtInsKey] && kind == state.Data[builtInsKindKey] {
		return nil
	}
	next := state.DeepCopy()
	if next.Data == nil {
		next.Data = map[string]string{}
	}
	next.Data[builtInsKey], next.Data[builtInsKindKey] = text, kind
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := b.client.Patch(ctx, next, client.MergeFrom(state)); err != nil {
		return fmt.Errorf("recording the built-in templates in ConfigMap %s: %w", b.configMap, err)
	}
	return nil
}
