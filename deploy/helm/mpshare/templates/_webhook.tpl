{{/* The admission webhook: which pods reach it, and how. */}}

{{- define "mpshare.hasWebhook" -}}
{{ ternary "true" "" (and .Values.webhook.enabled .Values.mps.enabled) }}
{{- end }}

{{- define "mpshare.selector.webhook" -}}
app.kubernetes.io/name: mpshare
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: webhook
{{- end }}

{{/* Who writes the annotations that say where pods are. */}}
{{- define "mpshare.writers" -}}
{{- $ns := include "mpshare.namespace" . -}}
{{- $names := list "mpshare-config-manager" "mpshare-scheduler" "mpshare-scheduler-extender" -}}
{{- $accounts := list -}}
{{- range $names }}{{ $accounts = append $accounts (printf "system:serviceaccount:%s:%s" $ns .) }}{{ end -}}
{{ concat $accounts (.Values.webhook.annotationWriters | default list) | toJson }}
{{- end }}

{{/*
The namespaces of a mode: those with its label, and in the default mode also those that have none of
the other labels. `off` is a label of its own.
*/}}
{{- define "mpshare.webhookNamespaces" -}}
{{- $others := without (list "enforce" "warn" "audit" "off") .mode -}}
matchExpressions:
{{- if eq .mode .root.Values.webhook.mode }}
- {key: mpshare.io/admission, operator: NotIn, values: {{ $others | toJson }}}
{{- else }}
- {key: mpshare.io/admission, operator: In, values: [{{ .mode }}]}
{{- end }}
- {key: kubernetes.io/metadata.name, operator: NotIn, values: {{ append .root.Values.webhook.exemptNamespaces (include "mpshare.namespace" .root) | uniq | toJson }}}
{{- end }}

{{- define "mpshare.webhookClient" -}}
sideEffects: NoneOnDryRun
admissionReviewVersions: [v1]
failurePolicy: {{ .root.Values.webhook.failurePolicy }}
timeoutSeconds: {{ .root.Values.webhook.timeoutSeconds }}
clientConfig:
  service:
    name: mpshare-webhook
    namespace: {{ include "mpshare.namespace" .root }}
    path: /{{ .verb }}/{{ .mode }}
    port: 443
namespaceSelector:
  {{- include "mpshare.webhookNamespaces" . | nindent 2 }}
{{- end }}

{{/* API servers before 1.30 ask about each pod instead. */}}
{{- define "mpshare.hasConditions" -}}
{{ ternary "true" "" (semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version) }}
{{- end }}

{{- define "mpshare.asksForUnits" -}}
(object.spec.?containers.orValue([]) + object.spec.?initContainers.orValue([])).exists(it,
it.?resources.?limits.orValue({}).exists(name, name in {{ .Values.webhook.resourceNames | toJson }}))
{{- end }}

{{/* What of a pod without units could reach a GPU. Rather too much: the webhook looks closely. */}}
{{- define "mpshare.mayReachGpus" -}}
(object.spec.?containers.orValue([]) + object.spec.?initContainers.orValue([]) + object.spec.?ephemeralContainers.orValue([])).exists(it,
it.?env.orValue([]).exists(variable, variable.name == "NVIDIA_VISIBLE_DEVICES" || variable.name.startsWith("CUDA_MPS_")) ||
it.?volumeMounts.orValue([]).exists(mount, mount.mountPath.contains("nvidia-container-devices"))
{{- if eq .Values.webhook.privileged "all" }} || it.?securityContext.?privileged.orValue(false){{ end }}) ||
object.spec.?volumes.orValue([]).exists(it, it.?hostPath.?path.orValue("").contains("nvidia")
{{- range list (include "mpshare.driverRootOfPods" .) .Values.mps.root }}{{ with . }} || it.?hostPath.?path.orValue("").contains({{ last (splitList "/" .) | quote }}){{ end }}{{ end }})
{{- end }}

{{/* The driver root where it isn't `/`, for rules about pods. */}}
{{- define "mpshare.driverRootOfPods" -}}
{{- $root := .Values.nvidiaDriverRoot | default "/" | trimSuffix "/" -}}
{{ $root }}
{{- end }}

{{/* Aliyun's annotations, which are ours on pods that have ours: its own extender may be there too. */}}
{{- define "mpshare.aliyunAnnotations" -}}
["ALIYUN_COM_GPU_MEM_IDX", "ALIYUN_COM_GPU_MEM_POD", "ALIYUN_COM_GPU_MEM_DEV",
"ALIYUN_COM_GPU_MEM_ASSIGNED", "ALIYUN_COM_GPU_MEM_ASSUME_TIME", "scheduler.framework.gpushare.allocation",
"scheduler.framework.gpushare.assigned", "scheduler.framework.gpushare.assume-time"]
{{- end }}

{{- define "mpshare.ownAnnotationsDiffer" -}}
(oldObject == null ? "mpshare.io/allocation" in object.metadata.?annotations.orValue({}) :
object.metadata.?annotations[?"mpshare.io/allocation"] != oldObject.metadata.?annotations[?"mpshare.io/allocation"] ||
("mpshare.io/allocation" in oldObject.metadata.?annotations.orValue({}) && {{ include "mpshare.aliyunAnnotations" . }}.exists(key,
object.metadata.?annotations[?key] != oldObject.metadata.?annotations[?key])))
{{- end }}
