{{/* What the pods of both DaemonSets have alike. */}}

{{/* Settings that decide where and how the pods run. */}}
{{- define "mpshare.placement" -}}
priorityClassName: {{ .Values.priorityClassName }}
{{- with .Values.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
# All roles end at once on a signal, and can be killed at any moment.
terminationGracePeriodSeconds: 10
{{- end }}

{{/*
No probes: no role has an answer to give yet that is more than "the process runs", which the kubelet
knows by itself. A supervisor that waits for a hung driver would be restarted for nothing, and what
isn't ready is in the node's condition MPSShareReady, per card and with the reason.
*/}}
{{- define "mpshare.container" -}}
image: {{ include "mpshare.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}

{{- define "mpshare.env" -}}
- {name: MPSHARE_LOG, value: {{ .Values.logs.level | quote }}}
- {name: MPSHARE_LOG_FORMAT, value: {{ .Values.logs.format | quote }}}
{{- end }}

{{/*
Root without any right of root: the sockets of the kubelet and the files in the MPS root belong to
root, and a capability can't stand in for that.
*/}}
{{- define "mpshare.unprivileged" -}}
{{- $context := dict
  "runAsUser" 0
  "allowPrivilegeEscalation" false
  "readOnlyRootFilesystem" true
  "capabilities" (dict "drop" (list "ALL"))
  "seccompProfile" (dict "type" "RuntimeDefault") -}}
{{ mergeOverwrite $context (deepCopy (.Values.securityContext | default dict)) | toYaml }}
{{- end }}

{{/*
Requests of one container; .own are the values for this one. A role has about 7 MiB of its own. No
limits: what would be killed first at a limit is what holds the node's shares.
*/}}
{{- define "mpshare.resources" -}}
{{- $resources := dict "requests" (dict "cpu" "10m" "memory" "16Mi") -}}
{{- $all := deepCopy (.root.Values.resources | default dict) -}}
{{ mergeOverwrite $resources $all (deepCopy (.own | default dict)) | toYaml }}
{{- end }}

{{/* The supervisor's arguments that don't depend on where it runs. */}}
{{- define "mpshare.supervisorArgs" -}}
- mps-control-daemon
- --mps-root={{ .Values.mps.root }}
{{- $env := include "mpshare.pluginEnv" . | fromJson }}
{{- with .Values.healthChecks.disable | default $env.DP_DISABLE_HEALTHCHECKS }}
- --disable-health-checks={{ . }}
{{- end }}
{{- with .Values.healthChecks.enable | default $env.DP_ENABLE_HEALTHCHECKS }}
- --enable-health-checks={{ . }}
{{- end }}
{{- end }}

{{/* The environment that NVIDIA's chart gives its plugin, as a JSON object. */}}
{{- define "mpshare.pluginEnv" -}}
{{- $env := dict -}}
{{- range dig "main" "env" list (.Values.devicePlugin.containers | default dict) -}}
{{- $_ := set $env .name (.value | default "") -}}
{{- end -}}
{{ toJson $env }}
{{- end }}
