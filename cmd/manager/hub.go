package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/contest"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/webhook/certs"
)

// hubConfigMap stores the state of a hub: its id, its CustomResourceDefinitions (hub.Kinds), and the
// built-in templates that it created, so that deleted ones stay deleted.
const (
	hubConfigMap = "rulefleet-hub"
	hubIDKey     = "id"
	builtInsKey  = "builtins"
	// builtInsKindKey is the UID of the CustomResourceDefinition for which the templates were created.
	// Deleting the CustomResourceDefinition also deletes the templates, without a decision about each
	// of them.
	builtInsKindKey = "builtins-kind"
)

// startTimeout limits the time for reading and writing objects on the hub before the manager starts.
const startTimeout = 30 * time.Second

// hubConfig returns the configuration for connecting to the hub.
func hubConfig(o *options, identity string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the hub (--kubeconfig): %w", err)
	}
	// It identifies the replica in audit logs, and the operator in managedFields.
	cfg.UserAgent = contest.Manager + "/" + version + " (" + identity + ")"
	// The number of concurrent reconciles limits the requests, in addition to the API server's own
	// priority and fairness.
	cfg.QPS = -1
	// A host that is down does not refuse connections, so connecting needs a timeout.
	cfg.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext
	return cfg, nil
}

// prepareHub creates the objects that are needed on the hub, and reads the hub's id.
func prepareHub(ctx context.Context, cfg *rest.Config, scheme *runtime.Scheme, o *options) (*corev1.ConfigMap, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	httpClient, err := rest.HTTPClientFor(impatient(cfg))
	if err != nil {
		return nil, finalError{fmt.Errorf("connecting to the hub: %w", err)}
	}
	defer utilnet.CloseIdleConnectionsFor(httpClient.Transport) // it is only used for this attempt
	c, err := client.New(cfg, client.Options{Scheme: scheme, HTTPClient: httpClient, Mapper: hubMapper()})
	if err != nil {
		return nil, fmt.Errorf("connecting to the hub: %w", err)
	}
	if err := checkCRDs(ctx, c); err != nil {
		return nil, err
	}
	if err := ensureNamespace(ctx, c, o.generatedNamespace); err != nil {
		return nil, err
	}
	if o.ownCertificate() {
		if err := certs.Prepare(ctx, c, o.certificates()); err != nil {
			return nil, err
		}
	}
	state, err := hubState(ctx, c, o)
	if err != nil {
		return nil, err
	}
	// It is done before this replica takes the Lease, which shows until when there was a leader.
	if _, err := hub.NewKinds(c, c, o.recordKeys(), clock.RealClock{}, nil).Learn(ctx); err != nil {
		return nil, err //nolint:wrapcheck // it has all details
	}
	return state, nil
}

// noticeDeadConnections makes client-go detect within seconds that the other end of a connection is
// gone. Its defaults take 45 s, which is longer than the outage of a spoke may stay undetected.
func noticeDeadConnections() {
	for name, seconds := range map[string]string{
		"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "10",
		"HTTP2_PING_TIMEOUT_SECONDS":      "5",
	} {
		if os.Getenv(name) == "" {
			_ = os.Setenv(name, seconds)
		}
	}
}

// hubMapper knows the few kinds that are used on the hub. Discovery would send requests that fail
// while the hub is down, at a time when nothing retries them.
func hubMapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for kind, scope := range map[schema.GroupVersionKind]meta.RESTScope{
		v1alpha1.GroupVersion.WithKind("AlertRule"):                               meta.RESTScopeNamespace,
		v1alpha1.GroupVersion.WithKind("RulePack"):                                meta.RESTScopeNamespace,
		v1alpha1.GroupVersion.WithKind("AlertRuleTemplate"):                       meta.RESTScopeRoot,
		v1alpha1.GroupVersion.WithKind("SpokeCluster"):                            meta.RESTScopeRoot,
		corev1.SchemeGroupVersion.WithKind("ConfigMap"):                           meta.RESTScopeNamespace,
		corev1.SchemeGroupVersion.WithKind("Namespace"):                           meta.RESTScopeRoot,
		corev1.SchemeGroupVersion.WithKind("Secret"):                              meta.RESTScopeNamespace,
		admissionv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration"): meta.RESTScopeRoot,
		coordinationv1.SchemeGroupVersion.WithKind("Lease"):                       meta.RESTScopeNamespace,
		definition().GroupVersionKind():                                           meta.RESTScopeRoot,
	} {
		m.Add(kind, scope)
	}
	return m
}

// hubState reads the hub's ConfigMap, and creates it if it does not exist.
func hubState(ctx context.Context, c client.Client, o *options) (*corev1.ConfigMap, error) {
	key := client.ObjectKey{Namespace: o.namespace, Name: hubConfigMap}
	cm := &corev1.ConfigMap{}
	err := c.Get(ctx, key, cm)
	if apierrors.IsNotFound(err) {
		cm = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		cm.Data = map[string]string{hubIDKey: o.hubID}
		if o.hubID == "" {
			cm.Data[hubIDKey] = string(uuid.NewUUID())
		}
		err = c.Create(ctx, cm)
		if err == nil {
			return cm, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("storing the hub's id in ConfigMap %s: %w", key, err)
		}
		err = c.Get(ctx, key, cm) // another replica created it
	}
	if err != nil {
		return nil, fmt.Errorf("reading the hub's id from ConfigMap %s: %w", key, err)
	}
	if o.hubID == "" && cm.Data[hubIDKey] == "" {
		// With a new id, the hub would no longer own its objects in the spokes, so the user has to decide.
		return nil, finalError{fmt.Errorf("ConfigMap %s has no key %q; restore the hub's former id there (label rulefleet.io/hub of the PrometheusRules in a spoke), or set it in the chart value hubID (--hub-id). With another id, the hub does not recognize its rules in the spokes", key, hubIDKey)}
	}
	return cm, nil
}

// hubIDOf returns the hub's id: the one from the flag, or the one in the ConfigMap.
func (o *options) hubIDOf(state *corev1.ConfigMap) string {
	if o.hubID != "" {
		return o.hubID
	}
	return state.Data[hubIDKey]
}

// recordKeys are the objects that record the hub's history.
func (o *options) recordKeys() hub.RecordKeys {
	keys := hub.RecordKeys{ConfigMap: client.ObjectKey{Namespace: o.namespace, Name: hubConfigMap}}
	if o.leaderElect {
		keys.Lease = client.ObjectKey{Namespace: o.namespace, Name: leaseName}
	}
	return keys
}

// checkCRDs reports the first of the operator's own CustomResourceDefinitions that is missing on the
// hub.
func checkCRDs(ctx context.Context, c client.Client) error {
	for _, kind := range []string{"alertrules", "rulepacks", "alertruletemplates", "spokeclusters"} {
		crd := definition()
		name := kind + "." + v1alpha1.Group
		err := c.Get(ctx, client.ObjectKey{Name: name}, crd)
		switch {
		case apierrors.IsNotFound(err):
			return finalError{fmt.Errorf("CustomResourceDefinition %s not found on the hub; install it with the Helm chart (crds.enabled), or from charts/rulefleet/files/crds", name)}
		case err != nil:
			return fmt.Errorf("reading CustomResourceDefinition %s: %w", name, err)
		}
	}
	return nil
}

// definition returns an empty CustomResourceDefinition for reading its metadata.
func definition() *metav1.PartialObjectMetadata {
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	return crd
}

// ensureNamespace creates the namespace of generated AlertRules if it is missing.
func ensureNamespace(ctx context.Context, c client.Client, name string) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	err := c.Get(ctx, client.ObjectKeyFromObject(ns), ns)
	if err == nil {
		return nil
	}
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading namespace %s (--generated-namespace): %w", name, err)
	}
	if err := c.Create(ctx, ns); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating namespace %s (--generated-namespace): %w", name, err)
	}
	return nil
}
