{{- /* A type: what it is, its rules, and its fields or values. */ -}}
{{- define "type" -}}
{{ template "prose" .Doc }}
{{- if and .IsAlias (not .EnumValues) }}
A string: {{ template "bounds" .Validation }}.
{{ end }}
{{- template "rules" . }}
{{- if .EnumValues }}
| Value | Description |
| --- | --- |
{{ range .EnumValues -}}
| `{{ .Name }}` | {{ template "sentence" .Doc }} |
{{ end -}}
{{ end }}
{{- if and .Members (not .IsAlias) }}
| Field | Type | Default | Bounds | Description |
| --- | --- | --- | --- | --- |
{{ range .Members -}}
| {{ template "name" . }} | {{ template "typeName" . }} | {{ template "default" . }} | {{ template "fieldBounds" . }} | {{ template "cell" .Doc }} |
{{ end -}}
{{ end }}
{{- end -}}

{{- define "name" -}}
{{ if index .Markers "required" }}**`{{ .Name }}`**{{ else }}`{{ .Name }}`{{ end }}
{{- end -}}

{{- define "typeName" -}}
{{- $type := markdownRenderType .Type -}}
{{- $type = regexReplaceAll "^object \\(keys:string, values:(.*)\\)$" $type "map of ${1}" -}}
{{ regexReplaceAll "^(.*) array$" $type "list of ${1}" | replace "list of string" "list of strings" }}
{{- end -}}

{{- define "default" -}}
{{ with .Default }}`{{ if hasPrefix "[" . }}{{ replace " " ", " . }}{{ else }}{{ . }}{{ end }}`{{ end }}
{{- end -}}

{{- /* A field's own bounds and rules. Those of its type, or of its items' type, are told there. */ -}}
{{- define "fieldBounds" -}}
{{- $list := index .Markers "kubebuilder:validation:MaxItems" -}}
{{- $own := list -}}
{{- if not .Type.IsAlias -}}
{{- range .Validation -}}
{{- if not (and $list (regexMatch "^(MinLength|MaxLength|Pattern|Enum)" .)) }}{{ $own = append $own . }}{{ end -}}
{{- end -}}
{{- end -}}
{{- template "bounds" $own -}}
{{- end -}}

{{- /* The markers of validation, in words. */ -}}
{{- define "bounds" -}}
{{- $words := list -}}
{{- range . -}}
{{- $word := . -}}
{{- $word = regexReplaceAll "^Min(Length|Items|Properties): 1$" $word "not empty" -}}
{{- $word = regexReplaceAll "^MinLength: (.*)$" $word "at least ${1} characters" -}}
{{- $word = regexReplaceAll "^MaxLength: (.*)$" $word "at most ${1} characters" -}}
{{- $word = regexReplaceAll "^MaxItems: (.*)$" $word "at most ${1} items" -}}
{{- $word = regexReplaceAll "^items:MaxLength: (.*)$" $word "of at most ${1} characters each" -}}
{{- $word = regexReplaceAll "^MaxProperties: (.*)$" $word "at most ${1} entries" -}}
{{- $word = regexReplaceAll "^Minimum: (.*)$" $word "at least ${1}" -}}
{{- $word = regexReplaceAll "^Maximum: (.*)$" $word "at most ${1}" -}}
{{- $word = regexReplaceAll "^Pattern: (.*)$" $word "matches ${1}" -}}
{{- if hasPrefix "Enum: " $word -}}
{{- $word = printf "`%s`" (regexReplaceAll "^Enum: \\[(.*)\\]$" $word "${1}" | replace " " "`, `") -}}
{{- end -}}
{{- if regexMatch "^(not empty|at least)" $word -}}
{{- $words = prepend $words $word -}}
{{- else if not (regexMatch "^(Optional|Required|items:MinLength: 1$)" $word) -}}
{{- $words = append $words $word -}}
{{- end -}}
{{- end -}}
{{- join ", " $words -}}
{{- end -}}
