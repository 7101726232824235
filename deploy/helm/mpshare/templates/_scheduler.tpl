{{/* What decides for pods with units of memory, and how it is asked. */}}

{{/* The mode in force: without MPS there are no shares, and nothing to decide. */}}
{{- define "mpshare.schedulerMode" -}}
{{ ternary .Values.scheduler.mode "none" .Values.mps.enabled }}
{{- end }}

{{/*
A kube-scheduler must not be newer than the API server, and at most one minor version older. Versions
of clouds (v1.30.4-gke.1, v1.31.2+k3s1) are those of Kubernetes with something behind.
*/}}
{{- define "mpshare.kubeSchedulerImage" -}}
{{- $version := regexFind "[0-9]+[.][0-9]+[.][0-9]+" .Capabilities.KubeVersion.Version -}}
{{ .Values.scheduler.image.repository }}:{{ .Values.scheduler.image.tag | default (print "v" $version) }}
{{- end }}

{{- define "mpshare.selector.scheduler" -}}
app.kubernetes.io/name: mpshare
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: {{ ternary "scheduler" "scheduler-extender" (eq .Values.scheduler.mode "second") }}
{{- end }}

{{/* The pods' metadata, the settings that decide where they run, and how. */}}
{{- define "mpshare.schedulerPod" -}}
priorityClassName: {{ .Values.scheduler.priorityClassName }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.scheduler.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
# The API server is asked with it, by each container.
automountServiceAccountToken: true
terminationGracePeriodSeconds: 10
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "mpshare.schedulerContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* kube-scheduler's configuration; docs/memory-mode.md has the part about the extender for others. */}}
{{- define "mpshare.schedulerConfig" -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: true
  resourceName: mpshare-scheduler
  resourceNamespace: {{ include "mpshare.namespace" . }}
# All nodes are looked at. Else, in a cluster of more than 100, the extender would be asked about a part
# of them only, maybe one without a GPU, since kube-scheduler passes over the resource of memory.
percentageOfNodesToScore: 100
profiles:
- schedulerName: mpshare-scheduler
  {{- if eq .Values.scheduler.nodeScores "scheduler" }}
  plugins:
    score:
      enabled:
      # At most 100 points each: from 12 on the fullest node outweighs all of kube-scheduler's other scores.
      - {name: NodeResourcesFit, weight: 12}
  pluginConfig:
  - name: NodeResourcesFit
    args:
      scoringStrategy:
        type: MostAllocated
        resources:
        - {name: aliyun.com/gpu-mem, weight: 1}
        - {name: nvidia.com/gpu, weight: 1}
  {{- end }}
extenders:
- urlPrefix: http://127.0.0.1:{{ .Values.scheduler.port }}/gpushare-scheduler
  filterVerb: filter
  {{- if eq .Values.scheduler.nodeScores "extender" }}
  prioritizeVerb: prioritize
  # From 13 on ten points of the extender outweigh kube-scheduler's own scores.
  weight: 13
  {{- end }}
  bindVerb: bind
  # The extender gives the API server less time than this, so that it knows how a bind ended.
  httpTimeout: 5s
  nodeCacheCapable: true
  managedResources:
  # The extender counts it, per card, and its words with the numbers reach the Event.
  - {name: aliyun.com/gpu-mem, ignoredByScheduler: true}
  # kube-scheduler counts it, and the extender sees that several units fit on one card.
  - {name: nvidia.com/gpu, ignoredByScheduler: false}
{{- end }}
