package join

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/pkg/plugin/cluster"
	"github.com/rulefleet/rulefleet/pkg/plugin/env"
	"github.com/rulefleet/rulefleet/pkg/plugin/exit"
	"github.com/rulefleet/rulefleet/pkg/plugin/output"
)

// argoTypeLabel marks the Secrets in which Argo CD keeps its clusters, with the value argoTypeCluster.
const (
	argoTypeLabel, argoTypeCluster = "argocd.argoproj.io/secret-type", "cluster"
	argoGroup                      = "argocd.argoproj.io"
)

// argoCluster is a cluster that Argo CD knows. Source: https://argo-cd.readthedocs.io, "Declarative Setup", section "Clusters".
type argoCluster struct {
	name   string
	labels map[string]string
	config *rest.Config
}

// ofArgoCD reads the Secret of a cluster. why says why join cannot use it, or is "".
func ofArgoCD(secret *corev1.Secret) (c argoCluster, why string) {
	var in struct {
		Username    string          `json:"username"`
		BearerToken string          `json:"bearerToken"`
		AWS         json.RawMessage `json:"awsAuthConfig"`
		Exec        json.RawMessage `json:"execProviderConfig"`
		ProxyURL    string          `json:"proxyUrl"`
		TLS         struct {
			Insecure   bool   `json:"insecure"`
			ServerName string `json:"serverName"`
			CAData     []byte `json:"caData"`
			CertData   []byte `json:"certData"`
			KeyData    []byte `json:"keyData"`
		} `json:"tlsClientConfig"`
	}
	c.name, c.labels = string(secret.Data["name"]), maps.Clone(secret.Labels)
	maps.DeleteFunc(c.labels, func(key, _ string) bool {
		domain, _, _ := strings.Cut(key, "/")
		return domain == argoGroup || strings.HasSuffix(domain, "."+argoGroup) || domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io")
	})
	if !nameable(c.name) {
		return c, fmt.Sprintf("its name in Argo CD, %q, cannot be the name of a spoke", c.name)
	}
	if json.Unmarshal(secret.Data["config"], &in) != nil {
		return c, "the key config of the Secret is not valid" // the error may quote a credential
	}
	switch {
	case len(in.Exec) > 0:
		return c, "Argo CD logs in with a command (execProviderConfig)"
	case len(in.AWS) > 0:
		return c, "Argo CD logs in with AWS IAM (awsAuthConfig)"
	case in.ProxyURL != "":
		return c, "Argo CD connects through a proxy (proxyUrl), which join cannot put into a kubeconfig"
	case in.TLS.Insecure:
		return c, "Argo CD skips the verification of the API server's certificate (insecure), which the hub refuses"
	case in.BearerToken == "" && (len(in.TLS.CertData) == 0 || len(in.TLS.KeyData) == 0):
		return c, "Argo CD has neither a bearer token nor a client certificate for it"
	}
	c.config = &rest.Config{
		Host: string(secret.Data["server"]), BearerToken: in.BearerToken,
		TLSClientConfig: rest.TLSClientConfig{ServerName: in.TLS.ServerName, CAData: in.TLS.CAData, CertData: in.TLS.CertData, KeyData: in.TLS.KeyData},
	}
	return c, ""
}

// joinArgoCD joins the clusters of Argo CD that a selector selects, one after the other. A cluster that cannot be joined
// does not prevent the others.
func joinArgoCD(ctx context.Context, e *env.Env, o *options, p *output.Printer) error {
	if o.context != "" || o.server != "" {
		return exit.New(exit.Usage, "", "--from-argocd cannot be used with --spoke-context or --server: Argo CD has the addresses")
	}
	secrets, err := argoSecrets(ctx, e, o)
	if err != nil {
		return err
	}
	var left []string
	for i := range secrets {
		s := &secrets[i]
		c, why := ofArgoCD(s)
		if why == "" {
			e.Say("Cluster %s, from Secret %s/%s:", c.name, s.Namespace, s.Name)
			why = one(ctx, e, *o, p, s, c)
		}
		if why != "" {
			_, _ = fmt.Fprintln(e.ErrOut, output.CleanLines(fmt.Sprintf("Not registered: cluster %s (Secret %s/%s): %s", c.name, s.Namespace, s.Name, why)))
			left = append(left, s.Name)
		}
	}
	if len(left) > 0 {
		return exit.New(exit.Failed, "Run the command again when the causes are removed, or register each with: kubectl rulefleet join NAME --spoke-context CONTEXT",
			"%d of %d clusters are not registered. Their Secrets: %s", len(left), len(secrets), strings.Join(left, ", "))
	}
	return nil
}

// one joins a cluster, and returns why that failed.
func one(ctx context.Context, e *env.Env, o options, p *output.Printer, s *corev1.Secret, c argoCluster) string {
	spoke, err := e.Hub.SpokeOf("Secret "+s.Namespace+"/"+s.Name+" of Argo CD", c.config)
	if err == nil {
		o.name, o.access, o.newLabels = c.name, spoke, c.labels
		err = join(ctx, e, &o, p)
	}
	if err == nil {
		return ""
	}
	why := output.Clean(err.Error())
	switch _, next := exit.Of(err); {
	case next == "":
		return why
	case strings.HasSuffix(why, ":"): // a list follows
		return why + "\n" + next
	default:
		return why + ". " + next
	}
}

// argoSecrets lists the Secrets of the clusters.
func argoSecrets(ctx context.Context, e *env.Env, o *options) ([]corev1.Secret, error) {
	selector, err := labels.Parse(o.argocd)
	if err != nil {
		return nil, exit.New(exit.Usage, "", "--from-argocd: %w", err)
	}
	ofType, err := labels.NewRequirement(argoTypeLabel, selection.Equals, []string{argoTypeCluster})
	if err != nil {
		return nil, fmt.Errorf("selecting the clusters of Argo CD: %w", err)
	}
	hub, err := e.Hub.Connect()
	if err != nil {
		return nil, err
	}
	if err := permit(ctx, hub, onHub, []cluster.Right{{Verb: "list", Resource: "secrets", Namespace: o.argocdNamespace}}); err != nil {
		return nil, err
	}
	var list corev1.SecretList
	if err := hub.List(ctx, &list, client.InNamespace(o.argocdNamespace), client.MatchingLabelsSelector{Selector: selector.Add(*ofType)}); err != nil {
		return nil, fmt.Errorf("listing the clusters of Argo CD: %w", err)
	}
	if len(list.Items) == 0 {
		return nil, exit.New(exit.Missing, fmt.Sprintf("List them: kubectl -n %s get secrets -l %s=%s --show-labels", o.argocdNamespace, argoTypeLabel, argoTypeCluster),
			"Argo CD has no cluster in namespace %s that --from-argocd selects", o.argocdNamespace)
	}
	return list.Items, nil
}

// argoFlags adds the flags of --from-argocd, with which there is no argument.
func argoFlags(cmd *cobra.Command, o *options) {
	f := cmd.Flags()
	f.StringVar(&o.argocd, "from-argocd", "", "register the clusters of Argo CD on the hub whose Secrets match this label `selector`, and use Argo CD's credentials to create the account; '' selects all. A new spoke gets the name that the cluster has in Argo CD and, without --labels, the labels of the Secret, except those of Argo CD and of kubernetes.io")
	f.StringVar(&o.argocdNamespace, "argocd-namespace", "argocd", "the `namespace` of Argo CD on the hub")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if o.fromArgoCD = cmd.Flags().Changed("from-argocd"); o.fromArgoCD {
			return cobra.NoArgs(cmd, args)
		}
		return cobra.ExactArgs(1)(cmd, args)
	}
}
