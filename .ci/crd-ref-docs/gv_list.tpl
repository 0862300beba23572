{{- define "gvList" -}}
<!-- Made by `make generate` from api/v1alpha1: change the comments there, not this file. -->

# API reference
{{ range . }}
{{ template "gvDetails" . }}
{{- end }}
{{- end -}}
