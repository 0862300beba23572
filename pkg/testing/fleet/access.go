package fleet

import (
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/webhook/certs"
)

const (
	// HubUser is who the manager is on the hub.
	HubUser = "rulefleet-manager"
	// SpokeUser is who the manager is in the spokes.
	SpokeUser = "rulefleet-spoke"
)

// hubAccess is all that the manager may do on the hub: its own kinds, of Secrets those
// of its own namespace, and the configuration of its webhook.
func hubAccess() []client.Object {
	read := []string{"get", "list", "watch"}
	return append([]client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}},
		&rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: HubUser},
			Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: read},
				// The webhook's certificates. What does not exist yet has no name to be allowed by.
				{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create"}},
				// The registration label of a spoke that has left.
				{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"patch"}},
				{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{certs.SecretName}, Verbs: []string{"update"}},
				{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "create", "patch"}},
				{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update"}},
			},
		},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: HubUser},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: HubUser}},
			RoleRef:    rbacv1.RoleRef{Kind: "Role", Name: HubUser},
		},
	}, clusterAccess(HubUser,
		rbacv1.PolicyRule{APIGroups: []string{v1alpha1.Group}, Resources: []string{"alertrules"}, Verbs: append([]string{"patch", "create", "delete"}, read...)},
		rbacv1.PolicyRule{APIGroups: []string{v1alpha1.Group}, Resources: []string{"alertruletemplates"}, Verbs: append([]string{"create", "patch"}, read...)},
		rbacv1.PolicyRule{APIGroups: []string{v1alpha1.Group}, Resources: []string{"spokeclusters"}, Verbs: append([]string{"create", "patch"}, read...)},
		rbacv1.PolicyRule{APIGroups: []string{v1alpha1.Group}, Resources: []string{"alertrules/status", "alertruletemplates/status", "spokeclusters/status"}, Verbs: []string{"patch"}},
		rbacv1.PolicyRule{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}, Verbs: []string{"get"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", "create"}},
		rbacv1.PolicyRule{
			APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"validatingwebhookconfigurations"},
			ResourceNames: []string{webhookConfig}, Verbs: append([]string{"patch"}, read...),
		},
		rbacv1.PolicyRule{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
	)...)
}

// spokeAccess is all that the manager may do in a spoke (DESIGN §3.9).
func spokeAccess() []client.Object {
	read := []string{"get", "list", "watch"}
	return clusterAccess(SpokeUser,
		rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: read},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: read},
		rbacv1.PolicyRule{APIGroups: []string{"monitoring.coreos.com"}, Resources: []string{"prometheuses", "thanosrulers"}, Verbs: read},
		rbacv1.PolicyRule{
			APIGroups: []string{"monitoring.coreos.com"}, Resources: []string{"prometheusrules"},
			Verbs: []string{"get", "list", "watch", "create", "update", "delete"},
		},
	)
}

func clusterAccess(user string, rules ...rbacv1.PolicyRule) []client.Object {
	return []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: rules},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: user},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: user}},
			RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: user},
		},
	}
}
