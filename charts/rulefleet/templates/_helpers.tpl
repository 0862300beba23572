{{/* The name of the chart. */}}
{{- define "rulefleet.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* The prefix of the names of all objects. */}}
{{- define "rulefleet.fullname" -}}
{{- $name := include "rulefleet.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The labels that select the manager's pods. They never change, because the selector of a Deployment is immutable. */}}
{{- define "rulefleet.selectorLabels" -}}
app.kubernetes.io/name: {{ include "rulefleet.name" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: manager
{{- end -}}

{{/* The labels of every object. */}}
{{- define "rulefleet.labels" -}}
{{- with omit .Values.commonLabels "helm.sh/chart" "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/version" "app.kubernetes.io/part-of" "app.kubernetes.io/managed-by" "app.kubernetes.io/component" -}}
{{ toYaml . }}
{{ end -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/name: {{ include "rulefleet.name" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: rulefleet
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "rulefleet.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "rulefleet.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.create is false; set serviceAccount.name" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "rulefleet.image" -}}
{{- $registry := default .Values.global.imageRegistry .Values.image.registry -}}
{{- if $registry -}}
{{- trimSuffix "/" $registry }}/{{ regexReplaceAll "^[^/]*[.:][^/]*/" .Values.image.repository "" -}}
{{- else -}}
{{- .Values.image.repository -}}
{{- end -}}
{{- if .Values.image.digest -}}
@{{ .Values.image.digest }}
{{- else -}}
:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{/* Whether the manager creates the webhook's certificate itself. */}}
{{- define "rulefleet.ownCertificate" -}}
{{- if and .Values.webhook.enabled (not .Values.webhook.certManager.enabled) }}true{{ end -}}
{{- end -}}

{{/* Whether ValidatingAdmissionPolicies limit the account of the manager. */}}
{{- define "rulefleet.admissionPolicies" -}}
{{- $served := .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy" -}}
{{- if or (eq .Values.admissionPolicies "Enabled") (and (eq .Values.admissionPolicies "Auto") $served) }}true{{ end -}}
{{- end -}}

{{/* The security context of every pod and container: the restricted Pod Security Standard, and a read-only root. */}}
{{- define "rulefleet.podSecurityContext" -}}
runAsNonRoot: true
{{- if ne (toString .Values.runAsUser) "" }}
runAsUser: {{ .Values.runAsUser | int64 }}
runAsGroup: {{ .Values.runAsUser | int64 }}
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "rulefleet.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* Checks that the schema can't express. */}}
{{- define "rulefleet.validate" -}}
{{- if eq .Values.generatedNamespace .Release.Namespace -}}
{{- fail (printf "generatedNamespace must not be the namespace of the release (%s), whose AlertRules may write to any namespace" .Release.Namespace) -}}
{{- end -}}
{{- if and .Values.webhook.enabled .Values.metrics.enabled (eq (int .Values.webhook.port) (int .Values.metrics.port)) -}}
{{- fail (printf "webhook.port and metrics.port are both %d; set different ports" (int .Values.webhook.port)) -}}
{{- end -}}
{{- if and (not .Values.metrics.enabled) (or .Values.metrics.serviceMonitor.enabled .Values.metrics.prometheusRule.enabled .Values.metrics.dashboard.enabled) -}}
{{- fail "metrics.serviceMonitor, metrics.prometheusRule and metrics.dashboard need metrics.enabled" -}}
{{- end -}}
{{- if and .Values.metrics.serviceMonitor.enabled .Values.metrics.secure (not .Values.rbac.create) (not .Values.metrics.serviceMonitor.tokenSecret.name) -}}
{{- fail "rbac.create is false, so this chart creates no account for scraping; set metrics.serviceMonitor.tokenSecret.name" -}}
{{- end -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" (include "rulefleet.fullname" .)) -}}
{{- fail (printf "%q is not valid as the beginning of a Service name; set fullnameOverride to a name of a-z, 0-9 and - that begins with a letter" (include "rulefleet.fullname" .)) -}}
{{- end -}}
{{- if or (and .Values.webhook.enabled (eq (int .Values.webhook.port) 8081)) (and .Values.metrics.enabled (eq (int .Values.metrics.port) 8081)) -}}
{{- fail "port 8081 is used for the probes; set webhook.port and metrics.port to other ports" -}}
{{- end -}}
{{- end -}}

{{/* The names of the enabled built-in templates, comma-separated. */}}
{{- define "rulefleet.enabledTemplates" -}}
{{- $enabled := list -}}
{{- range $name, $state := .Values.builtInTemplates -}}
{{- if eq $state "Enabled" -}}{{- $enabled = append $enabled $name -}}{{- end -}}
{{- end -}}
{{- join "," $enabled -}}
{{- end -}}

{{/* The annotations of objects that run after an uninstallation, with the given weight. */}}
{{- define "rulefleet.releaseHook" -}}
helm.sh/hook: post-delete
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded,hook-failed
{{- end -}}
