{{/*
Values that are well-formed and can't be done. To pass over them in silence would leave somebody
with another cluster than they asked for.
*/}}
{{- define "mpshare.refuse" -}}
{{- $v := .Values -}}
{{- if has ($v.migStrategy | default "none") (list "single" "mixed") -}}
{{- fail (printf "migStrategy `%s`: mpshare offers no MIG devices, because MIG and MPS exclude each other on a card; hint: leave it out, and serve nodes with MIG by NVIDIA's plugin" $v.migStrategy) -}}
{{- end -}}
{{- range $key := list "gdrcopyEnabled" "gdsEnabled" "mofedEnabled" -}}
{{- if get $v $key -}}
{{- fail (printf "%s: mpshare injects no such devices; hint: leave it out" $key) -}}
{{- end -}}
{{- end -}}
{{- if has ($v.deviceDiscoveryStrategy | default "auto") (list "tegra" "vfio") -}}
{{- fail (printf "deviceDiscoveryStrategy `%s`: mpshare finds cards by NVML; hint: leave it out" $v.deviceDiscoveryStrategy) -}}
{{- end -}}
{{- range $key := list "nameOverride" "fullnameOverride" -}}
{{- if get $v $key -}}
{{- fail (printf "%s: names are fixed, so that the documents' commands work; hint: set names.devicePlugin, names.mpsControlDaemon and names.configMap" $key) -}}
{{- end -}}
{{- end -}}
{{- if $v.selectorLabelsOverride -}}
{{- fail "selectorLabelsOverride: each DaemonSet has a selector of its own; hint: podLabels adds labels to the pods" -}}
{{- end -}}
{{- if and (not (kindIs "invalid" $v.devicePlugin.enabled)) (not $v.devicePlugin.enabled) -}}
{{- fail "devicePlugin.enabled=false: nothing would be left to install; hint: for GPU feature discovery alone use NVIDIA's chart" -}}
{{- end -}}
{{- range $name, $_ := include "mpshare.pluginEnv" . | fromJson -}}
{{- if not (or (hasPrefix "NVIDIA_" $name) (has $name (list "DP_DISABLE_HEALTHCHECKS" "DP_ENABLE_HEALTHCHECKS"))) -}}
{{- fail (printf "devicePlugin.containers.main.env: `%s` means nothing to mpshare; hint: what NVIDIA's plugin takes from its environment is in flags of a config, see config.map" $name) -}}
{{- end -}}
{{- end -}}
{{- if and (not (kindIs "invalid" $v.mps.enableHostPID)) (not $v.mps.enableHostPID) -}}
{{- fail "mps.enableHostPID=false: MPS clients are told apart by their PIDs on the node; hint: leave it out, or set mps.enabled=false" -}}
{{- end -}}
{{- if hasPrefix "nvcr.io/nvidia/" $v.image.repository -}}
{{- fail (printf "image.repository `%s` is NVIDIA's own image, which has no mpshare in it; hint: leave it out, or name your copy of mpshare's" $v.image.repository) -}}
{{- end -}}
{{- if and (eq $v.scheduler.mode "second") (eq (int $v.scheduler.port) (int $v.scheduler.statusPort)) -}}
{{- fail (printf "scheduler.port and scheduler.statusPort are both %d: at the one pods can be bound, the other is for everybody; hint: change one" (int $v.scheduler.port)) -}}
{{- end -}}
{{- if and $v.scheduler.podMonitor (ne $v.scheduler.mode "second") -}}
{{- fail (printf "scheduler.podMonitor: with scheduler.mode `%s` nothing has metrics that Prometheus could reach; hint: leave it out" $v.scheduler.mode) -}}
{{- end -}}
{{- if and $v.webhook.enabled (eq $v.webhook.failurePolicy "Fail") (not (include "mpshare.hasConditions" .)) -}}
{{- fail "webhook.failurePolicy=Fail: API servers before 1.30 ask the webhook about each pod of the cluster, so that none could be created while it is away; hint: leave it out" -}}
{{- end -}}
{{- include "mpshare.refuseConfigs" . -}}
{{- end }}

{{- define "mpshare.refuseConfigs" -}}
{{- $v := .Values -}}
{{- if and $v.config.name $v.config.map -}}
{{- fail "config.name and config.map are both set: either an existing ConfigMap or one that the chart makes; hint: remove one" -}}
{{- end -}}
{{- if and $v.mps.enabled $v.mps.default $v.mps.replicas (ne $v.mps.default (printf "mps-%dx" (int $v.mps.replicas))) -}}
{{- fail (printf "mps.default `%s` and mps.replicas %d name different configs; hint: remove one" $v.mps.default (int $v.mps.replicas)) -}}
{{- end -}}
{{- $flags := include "mpshare.flags" . | fromYaml -}}
{{- if and $v.config.name $flags -}}
{{- fail (printf "config.name `%s` is a ConfigMap of yours, which the chart doesn't change; hint: write deviceListStrategy, deviceIDStrategy, compatWithCPUManager (passDeviceSpecs) and sharedDevicesAllocationPolicy under flags.plugin there" $v.config.name) -}}
{{- end -}}
{{- if include "mpshare.ownsConfigs" . -}}
{{- $known := include "mpshare.configs" . | fromJson | keys | sortAlpha -}}
{{- $default := include "mpshare.defaultConfig" . -}}
{{- if and $default (not (has $default $known)) -}}
{{- fail (printf "no config is called `%s`, which nodes without a label would get; there are `%s`; hint: add it to config.map" $default (join "`, `" $known)) -}}
{{- end -}}
{{- if and (not $default) (not (has "empty" (include "mpshare.fallbackStrategies" . | splitList ","))) -}}
{{- fail (printf "config.map has %d configs and none of them is the default; hint: set config.default to one of `%s`" (len $v.config.map) (join "`, `" $known)) -}}
{{- end -}}
{{- end -}}
{{- end }}
