package spoke

import (
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

func allowed(groups, resources, verbs string, names ...string) authorizationv1.ResourceRule {
	return authorizationv1.ResourceRule{
		APIGroups: strings.Split(groups, " "), Resources: strings.Split(resources, " "), Verbs: strings.Split(verbs, " "), ResourceNames: names,
	}
}

func TestGranted(t *testing.T) {
	const monitoring = "monitoring.coreos.com"
	var (
		reviews    = allowed("authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews", "create")
		workloads  = allowed("apps", "deployments", "get list watch")
		namespaces = allowed("", "namespaces", "watch list get")
		rules      = allowed(monitoring, "prometheusrules", "get list watch create update delete")
	)
	type list = []authorizationv1.ResourceRule
	for name, tc := range map[string]struct {
		rules      list
		incomplete bool
		unknown    bool
		missing    string
		reads      bool // workloads
		readsRules bool
		writes     bool
	}{
		"all":               {rules: list{reviews, workloads, namespaces, rules}, reads: true, readsRules: true, writes: true},
		"all, and more":     {rules: list{workloads, namespaces, rules, allowed("", "pods", "get")}, reads: true, readsRules: true, writes: true},
		"an administrator":  {rules: list{allowed("*", "*", "*")}, reads: true, readsRules: true, writes: true},
		"all verbs":         {rules: list{allowed("apps", "deployments", "*"), namespaces, rules}, reads: true, readsRules: true, writes: true},
		"all resources":     {rules: list{allowed("apps", "*", "get list watch"), namespaces, rules}, reads: true, readsRules: true, writes: true},
		"in pieces":         {rules: list{allowed("apps", "deployments", "get"), allowed("apps extensions", "replicasets deployments", "list watch"), namespaces, rules}, reads: true, readsRules: true, writes: true},
		"one write":         {rules: list{workloads, namespaces, allowed(monitoring, "prometheusrules", "get list watch create delete")}, missing: "update prometheusrules.monitoring.coreos.com", reads: true, readsRules: true},
		"one read of rules": {rules: list{workloads, namespaces, allowed(monitoring, "prometheusrules", "get list create update delete")}, missing: "watch prometheusrules.monitoring.coreos.com", reads: true, writes: true},
		"one read":          {rules: list{allowed("apps", "deployments", "get list"), namespaces, rules}, missing: "watch deployments.apps", readsRules: true, writes: true},
		"two resources":     {rules: list{allowed("apps", "deployments", "get watch"), allowed("", "namespaces", "get"), rules}, missing: "list deployments.apps, list/watch namespaces;", readsRules: true, writes: true},
		"another group":     {rules: list{allowed("extensions", "deployments", "get list watch"), namespaces, rules}, missing: "get/list/watch deployments.apps;", readsRules: true, writes: true},
		"a subresource":     {rules: list{allowed("apps", "deployments/status", "get list watch"), namespaces, rules}, missing: "get/list/watch deployments.apps;", readsRules: true, writes: true},
		"one object":        {rules: list{workloads, allowed("", "namespaces", "get list watch", "kube-system"), rules}, missing: "get/list/watch namespaces;", readsRules: true, writes: true},

		"no list at all":         {unknown: true},
		"not all is known":       {rules: list{reviews, workloads}, incomplete: true, unknown: true},
		"what is known is all":   {rules: list{workloads, namespaces, rules}, incomplete: true, reads: true, readsRules: true, writes: true},
		"nothing but the review": {rules: list{reviews}, missing: "get/list/watch deployments.apps, get/list/watch namespaces, get/list/watch/create/update/delete prometheusrules.monitoring.coreos.com;"},
	} {
		t.Run(name, func(t *testing.T) {
			got := granted(&authorizationv1.SubjectRulesReviewStatus{ResourceRules: tc.rules, Incomplete: tc.incomplete}, nil)
			if got.known == tc.unknown {
				t.Fatalf("known: %v", got.known)
			}
			if tc.unknown {
				tc.reads, tc.readsRules, tc.writes = true, true, true
			}
			for what, c := range map[string]struct {
				needs []need
				want  bool
			}{"workloads": {readsWorkloads, tc.reads}, "rules": {readsRules, tc.readsRules}, "writes": {writesRules, tc.writes}} {
				err := got.lack(c.needs)
				if (err == nil) != c.want {
					t.Errorf("%s: %v", what, err)
				}
				if err == nil {
					continue
				}
				f := disconnected(err)
				if f.Reason != v1alpha1.ReasonForbidden || !strings.Contains(f.Message, tc.missing) || !strings.Contains(f.Message, "spoke-access.yaml") {
					t.Errorf("%s: %+v", what, f)
				}
			}
			if f := got.writes(); (f == Finding{}) != tc.writes || (!tc.writes && (f.Status != metav1.ConditionFalse || f.Reason != v1alpha1.ReasonForbidden)) {
				t.Errorf("writes: %+v", f)
			}
		})
	}
}

// All that can be missing fits, with what to do about it.
func TestGrantErrorFits(t *testing.T) {
	if f := disconnected((grants{missing: append(append(append([]need{}, readsWorkloads...), readsRules...), writesRules...)}).lack(writesRules)); !strings.HasSuffix(f.Message, "to leave out the optional permissions)") {
		t.Errorf("the message is cut: %s", f.Message)
	}
}
