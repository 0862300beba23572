{{- /* Placeholders as code: else a $ begins a formula, where there are formulas. */ -}}
{{- define "prose" -}}
{{ regexReplaceAll "\\$+\\(([A-Za-z.…]*\\))?" (trim .) "`${0}`" }}
{{ end -}}

{{- define "cell" -}}
{{ regexReplaceAll "\\$+\\(([A-Za-z.…]*\\))?" (trim .) "`${0}`" | replace "\n" " " | replace "|" "\\|" }}
{{- end -}}

{{- /* The comment of a constant, without the constant's name. */ -}}
{{- define "sentence" -}}
{{- $text := regexReplaceAll "^[A-Z][A-Za-z]+ ((is|means that) )?" (trim .) "" | replace "\n" " " | replace "|" "\\|" -}}
{{ with $text }}{{ upper (substr 0 1 .) }}{{ substr 1 (len .) . }}{{ end }}
{{- end -}}

{{- /* What a type's markers refuse beside the bounds of each field: rules of the type and of its fields. */ -}}
{{- define "rules" -}}
{{- $rules := list -}}
{{- $type := .Name -}}
{{- range index .Markers "kubebuilder:validation:XValidation" }}{{ $rules = append $rules .Message }}{{ end -}}
{{- if not .IsAlias -}}
{{- range .Members -}}
{{- $name := .Name -}}
{{- if not .Type.Members -}}
{{- range index .Markers "kubebuilder:validation:XValidation" }}{{ $rules = append $rules (printf "`%s`: %s" $name .Message) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with $rules }}
The API server rejects an invalid {{ $type }} with one of these messages:
{{ range . }}
- {{ template "cell" . }}
{{- end }}
{{ end }}
{{- end -}}
