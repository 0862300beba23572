{{- define "gvDetails" -}}
{{- $gv := . -}}
Group `{{ .Group }}`, version `{{ .Version }}`. For how to write alerts, see [Write an alert](../how-to/write-alerts.md).

**Kinds:**
{{- range $i, $kind := .SortedKinds }}{{ if $i }},{{ end }} {{ $gv.TypeForKind $kind | markdownRenderTypeLink }}{{ end }}.
**Also:** [types](#types), [conditions and reasons](#conditions-and-reasons),
[labels, annotations and other names](#labels-annotations-and-other-names).

A field in **bold** is required.
{{ range .SortedKinds }}
{{- $kind := $gv.TypeForKind . }}
## {{ $kind.Name }}

{{ range index $kind.Markers "kubebuilder:resource" }}_{{ if eq .Scope "Cluster" }}Cluster-scoped{{ else }}Namespaced{{ end }}; short: `{{ join "`, `" .ShortName }}`._
{{ end }}
{{ template "prose" $kind.Doc }}
{{ template "rules" $kind }}
{{- range $kind.Members }}
{{- if has .Name (list "spec" "status") }}
### {{ .Type.Name }}

{{ template "type" .Type }}
{{- end }}
{{- end }}
{{- end }}
## Types
{{ range .SortedTypes }}
{{- if and (not .GVK) (not (regexMatch "^(AlertSpec|RuleStatus|(AlertRule|AlertRuleTemplate|RulePack|SpokeCluster)(Spec|Status))$" .Name)) (markdownShouldRenderType .) }}
### {{ .Name }}

{{ template "type" . }}
{{- end }}
{{- end }}
{{- end -}}
