{{/* Names, labels and the image. */}}

{{- define "mpshare.namespace" -}}
{{ .Values.namespaceOverride | default .Release.Namespace }}
{{- end }}

{{/* The ConfigMap that config-manager reads: the chart's own, or an existing one. */}}
{{- define "mpshare.configMap" -}}
{{ .Values.config.name | default .Values.names.configMap }}
{{- end }}

{{- define "mpshare.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* Labels of every object. */}}
{{- define "mpshare.labels" -}}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
app.kubernetes.io/name: mpshare
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* Labels of pods that stay the same from version to version: a new chart alone restarts nothing. */}}
{{- define "mpshare.podLabels" -}}
{{- with .Values.podLabels }}
{{- toYaml . }}
{{ end -}}
app.kubernetes.io/name: mpshare
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/*
What selects the pods of a DaemonSet. Two DaemonSets with one selector would take each other's pods
(as in NVIDIA's chart, k8s-device-plugin#982); the label is the one of the TKE document's commands.
*/}}
{{- define "mpshare.selector.devicePlugin" -}}
qcloud-app: {{ .Values.names.devicePlugin }}
{{- end }}
{{- define "mpshare.selector.mpsControlDaemon" -}}
qcloud-app: {{ .Values.names.mpsControlDaemon }}
{{- end }}
