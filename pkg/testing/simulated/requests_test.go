package simulated_test

import (
	"fmt"
	"net/http"
	"strings"
)

// request is sent to both API servers. Its path and its body refer to earlier answers as ${name.version}, ${name.uid} and
// ${name.continue}.
type request struct {
	name, method, path        string
	accept, contentType, body string
	// anonymous means without a valid credential.
	anonymous bool
	// meanwhile changes Deployments while the answer is awaited.
	meanwhile bool
}

const (
	jsonType = "application/json"
	anyType  = "application/json, */*"
	metadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
	metalist = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
	protobuf = "application/vnd.kubernetes.protobuf"

	group       = "/apis/monitoring.coreos.com/v1"
	rules       = group + "/prometheusrules"
	benchRules  = group + "/namespaces/" + namespace + "/prometheusrules"
	deployments = "/apis/apps/v1/deployments"
	// reviewed is an encoded SelfSubjectRulesReview of the namespace that the manager names.
	reviewed = "k8s\x00\n1\n\x17authorization.k8s.io/v1\x12\x16SelfSubjectRulesReview\x127\n\x10\n\x00\x12\x00\x1a\x00\"\x00*\x002\x008\x00B\x00" +
		"\x12\x1d\n\x1brulefleet-no-such-namespace\x1a\x04\x18\x00\"\x00\x1a\x00\"\x00"
)

// requests are sent in this order.
func requests() []request {
	read := func(name, path, accept string) request {
		return request{name: name, method: http.MethodGet, path: path, accept: accept}
	}
	write := func(name, method, path, body string) request {
		return request{name: name, method: method, path: path, accept: anyType, contentType: jsonType, body: body}
	}
	watch := "?allowWatchBookmarks=true&timeoutSeconds=4&watch=true&timeout=4s&resourceVersion="
	live := read("events of Deployments", deployments+strings.ReplaceAll(watch, "4", "10")+"${page.version}", metadata) // time for some writes
	live.meanwhile = true
	unknown := read("without a credential", "/version", anyType)
	unknown.anonymous = true
	return []request{
		read("version", "/version", anyType),
		unknown,
		read("identity", "/api/v1/namespaces/kube-system", jsonType),
		{name: "review", method: http.MethodPost, path: "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", accept: jsonType, contentType: protobuf, body: reviewed},
		read("discovery", group, anyType),
		read("prometheuses", group+"/prometheuses?limit=200", anyType),
		read("thanosrulers", group+"/thanosrulers?limit=200", anyType),

		read("one namespace", "/api/v1/namespaces?limit=1", metalist),
		read("namespaces", "/api/v1/namespaces?limit=100", metalist),
		read("one Deployment", deployments+"?limit=1", metalist),
		read("no StatefulSet", "/apis/apps/v1/statefulsets?limit=1", metalist),
		read("no DaemonSet", "/apis/apps/v1/daemonsets?limit=1", metalist),
		read("no CronJob", "/apis/batch/v1/cronjobs?limit=1", metalist),
		read("page", deployments+"?limit=100", metalist),
		read("rest", deployments+"?limit=200&continue=${page.continue}", metalist),
		read("large page", deployments+"?limit=500", metalist),
		read("a Deployment", "/apis/apps/v1/namespaces/"+namespace+"/deployments/d-000", metadata),
		read("no Deployment", "/apis/apps/v1/namespaces/"+namespace+"/deployments/none", metadata),
		live,
		read("past events of Deployments", deployments+watch+"${page.version}", metadata),
		read("rest as of the first page", deployments+"?limit=200&continue=${page.continue}", metalist),
		read("streamed Deployments", deployments+"?allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&timeoutSeconds=4&watch=true", metadata),
		read("events of namespaces", "/api/v1/namespaces"+watch+"${namespaces.version}", metadata),

		read("no rule", rules+"?limit=1", metalist),
		read("no rules", rules+"?limit=100", anyType),
		write("create", http.MethodPost, benchRules, rule(namespace, "a", "", "up == 0")),
		write("create again", http.MethodPost, benchRules, rule(namespace, "a", "", "up == 1")),
		write("create more", http.MethodPost, benchRules, rule(namespace, "b", "", "up > 1 and up < 2")),
		write("create without a namespace", http.MethodPost, group+"/namespaces/none/prometheusrules", rule("none", "a", "", "up == 0")),
		write("update", http.MethodPut, benchRules+"/a", rule(namespace, "a", `"uid":"${create.uid}","resourceVersion":"${create.version}",`, "up == 2")),
		write("update to the same", http.MethodPut, benchRules+"/a", rule(namespace, "a", `"uid":"${update.uid}","resourceVersion":"${update.version}",`, "up == 2")),
		write("update of an old version", http.MethodPut, benchRules+"/a", rule(namespace, "a", `"uid":"${create.uid}","resourceVersion":"${create.version}",`, "up == 3")),
		write("update of another one", http.MethodPut, benchRules+"/a", rule(namespace, "a", `"uid":"${create more.uid}","resourceVersion":"${update.version}",`, "up == 3")),
		write("update without a version", http.MethodPut, benchRules+"/a", rule(namespace, "a", "", "up == 3")),
		write("update of none", http.MethodPut, benchRules+"/none", rule(namespace, "none", `"resourceVersion":"${update.version}",`, "up == 3")),
		write("update of labels", http.MethodPut, benchRules+"/b", strings.Replace(rule(namespace, "b", `"uid":"${create more.uid}","resourceVersion":"${create more.version}",`, "up > 1 and up < 2"), `"l":"m"`, `"l":"n"`, 1)),
		read("one rule", rules+"?limit=1", metalist),
		read("rules", rules+"?limit=100", anyType),
		read("a page of rules", rules+"?limit=1", anyType),
		write("delete an old version", http.MethodDelete, benchRules+"/a", deletion(`"uid":"${create.uid}","resourceVersion":"${create.version}"`)),
		write("delete another one", http.MethodDelete, benchRules+"/a", deletion(`"uid":"${create more.uid}","resourceVersion":"${update.version}"`)),
		write("delete", http.MethodDelete, benchRules+"/a", deletion(`"uid":"${update.uid}","resourceVersion":"${update.version}"`)),
		write("delete again", http.MethodDelete, benchRules+"/a", deletion(`"uid":"${update.uid}","resourceVersion":"${update.version}"`)),
		read("events of rules", strings.Replace(rules+watch+"${no rules.version}", "&timeout=4s", "", 1), anyType),
		read("rest of the rules", rules+"?limit=200&continue=${a page of rules.continue}", anyType),
	}
}

// rule is a PrometheusRule as the manager sends it. more are further fields of its metadata.
func rule(namespace, name, more, expr string) string {
	return fmt.Sprintf(`{"kind":"PrometheusRule","apiVersion":"monitoring.coreos.com/v1","metadata":{"name":%q,"namespace":%q,%s`+
		`"labels":{"l":"m","rulefleet.io/hub":"h"},"annotations":{"rulefleet.io/alertrule":"n/a"}},`+
		`"spec":{"groups":[{"name":"n/a","interval":"30s","limit":3,"labels":{"a":"b"},"rules":[{"alert":"A","expr":%[4]q,"for":"1m","labels":{"c":"d"}}]}]}}`,
		name, namespace, more, expr)
}

func deletion(preconditions string) string {
	return `{"kind":"DeleteOptions","apiVersion":"monitoring.coreos.com/v1","preconditions":{` + preconditions + `}}`
}
