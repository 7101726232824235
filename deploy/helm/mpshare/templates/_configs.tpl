{{/* Which configs there are, and which one is the default. */}}

{{/* "true" where the chart makes the ConfigMap itself. */}}
{{- define "mpshare.ownsConfigs" -}}
{{ if not .Values.config.name }}true{{ end }}
{{- end }}

{{/*
The config of a node without label, as the values name it; may be empty. NVIDIA's name for it first,
then the TKE addon's. Without MPS the addon's values rest.
*/}}
{{- define "mpshare.namedDefault" -}}
{{- if .Values.config.default -}}
{{ .Values.config.default }}
{{- else if .Values.mps.enabled -}}
{{- if .Values.mps.default -}}
{{ .Values.mps.default }}
{{- else if .Values.mps.replicas -}}
mps-{{ .Values.mps.replicas }}x
{{- end -}}
{{- end -}}
{{- end }}

{{/* The fallbacks, with commas. An empty list is none at all; only what isn't given is the default. */}}
{{- define "mpshare.fallbackStrategies" -}}
{{- if kindIs "invalid" .Values.config.fallbackStrategies -}}
named,single
{{- else -}}
{{ join "," .Values.config.fallbackStrategies }}
{{- end -}}
{{- end }}

{{/*
What config-manager is told. The fallbacks `named` and `single` are decided here where config.map is
given: the presets stand beside it in the ConfigMap, and mustn't make it look as if there was a choice.
*/}}
{{- define "mpshare.defaultConfig" -}}
{{- $named := include "mpshare.namedDefault" . -}}
{{- $map := .Values.config.map | default dict -}}
{{- $strategies := include "mpshare.fallbackStrategies" . | splitList "," -}}
{{- if $named -}}
{{ $named }}
{{- else if .Values.config.name -}}
{{- else if $map -}}
{{- $found := "" -}}
{{- range $strategy := $strategies -}}
{{- if and (not $found) (eq $strategy "named") (hasKey $map "default") -}}
{{- $found = "default" -}}
{{- else if and (not $found) (eq $strategy "single") (eq (len $map) 1) -}}
{{- $found = keys $map | first -}}
{{- end -}}
{{- end -}}
{{ $found }}
{{- else -}}
mps-1x
{{- end -}}
{{- end }}

{{/*
What `NVIDIA_VISIBLE_DEVICES` says in containers whose cards are named in another way: with it in the spec
no ConfigMap or Secret of `envFrom` can name others.
*/}}
{{- define "mpshare.visibleDevices" -}}
{{- $strategy := .Values.deviceListStrategy | default "" | toString -}}
{{- if .Values.webhook.visibleDevices -}}
{{ .Values.webhook.visibleDevices }}
{{- else if eq $strategy "volume-mounts" -}}
/var/run/nvidia-container-devices
{{- else if hasPrefix "cdi-" $strategy -}}
void
{{- end -}}
{{- end }}

{{/* The `flags` that values give to every config, as YAML; `{}` when they give none. */}}
{{- define "mpshare.flags" -}}
{{- $plugin := dict -}}
{{- with .Values.deviceListStrategy -}}
{{- $strategies := kindIs "string" . | ternary (splitList "," (toString .)) . -}}
{{- $_ := set $plugin "deviceListStrategy" $strategies -}}
{{- end -}}
{{- with .Values.deviceIDStrategy }}{{ $_ := set $plugin "deviceIDStrategy" . }}{{ end -}}
{{- with .Values.sharedDevicesAllocationPolicy -}}
{{- $_ := set $plugin "sharedDevicesAllocationPolicy" . -}}
{{- end -}}
{{- with .Values.compatWithCPUManager }}{{ $_ := set $plugin "passDeviceSpecs" . }}{{ end -}}
{{- if $plugin -}}
{{ dict "plugin" $plugin | toYaml }}
{{- else -}}
{}
{{- end -}}
{{- end }}

{{/* A preset: each card as so many units. */}}
{{- define "mpshare.preset" -}}
version: v1
{{- if .flags }}
flags:
  {{- toYaml .flags | nindent 2 }}
{{- end }}
sharing:
  mps:
    resources:
    - name: nvidia.com/gpu
      replicas: {{ .replicas }}
{{- end }}

{{/*
The preset for `aliyun.com/gpu-mem`, which the node label ack.node.gpu.schedule=mps means too: units of
a GiB, one card filled after the other, as ACK does unless told otherwise.
*/}}
{{- define "mpshare.memoryPreset" -}}
{{- $packed := dict "plugin" (dict "sharedDevicesAllocationPolicy" "packed") -}}
version: v1
flags:
  {{- mergeOverwrite $packed (deepCopy .flags) | toYaml | nindent 2 }}
sharing:
  mps:
    resources:
    - name: aliyun.com/gpu-mem
      memoryUnit: 1Gi
{{- end }}

{{/*
All configs of the chart's own ConfigMap, as a JSON object: the presets, the one that mps.replicas
asks for, and config.map over them. Text that somebody gave stays as it is, comments included, so
that line and column in a message are right; only values that override it make it be written anew.
*/}}
{{- define "mpshare.configs" -}}
{{- $flags := include "mpshare.flags" . | fromYaml -}}
{{- $configs := dict -}}
{{- $replicas := list 1 -}}
{{- if .Values.mps.enabled -}}
{{- $replicas = list 1 2 4 -}}
{{- with .Values.mps.replicas }}{{ $replicas = append $replicas (int .) }}{{ end -}}
{{- end -}}
{{- range $n := $replicas -}}
{{- $text := include "mpshare.preset" (dict "replicas" $n "flags" $flags) -}}
{{- $_ := set $configs (printf "mps-%dx" (int $n)) (printf "%s\n" (trim $text)) -}}
{{- end -}}
{{- if .Values.mps.enabled -}}
{{- $text := include "mpshare.memoryPreset" (dict "flags" $flags) -}}
{{- $_ := set $configs "gpu-mem" (printf "%s\n" (trim $text)) -}}
{{- end -}}
{{- range $name, $text := .Values.config.map | default dict -}}
{{- if $flags -}}
{{- $parsed := fromYaml $text -}}
{{- /* What isn't YAML goes to the nodes as it is: their answer has line and column. */ -}}
{{- if not (hasKey $parsed "Error") -}}
{{- $text = mergeOverwrite $parsed (dict "flags" (deepCopy $flags)) | toYaml | printf "%s\n" -}}
{{- end -}}
{{- end -}}
{{- $_ := set $configs $name $text -}}
{{- end -}}
{{ toJson $configs }}
{{- end }}
