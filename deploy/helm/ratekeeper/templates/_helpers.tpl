{{- define "ratekeeper.name" -}}
{{- if contains .Chart.Name .Release.Name -}}{{ .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else -}}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" }}{{- end -}}
{{- end -}}

{{- define "ratekeeper.selector" -}}
app.kubernetes.io/name: ratekeeper
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "ratekeeper.labels" -}}
{{ include "ratekeeper.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "ratekeeper.isShared" -}}
{{- if or .Values.redis.url .Values.redis.existingSecret }}true{{ end -}}
{{- end -}}

{{- /* Whether the key of tenants comes from elsewhere than from `postgresql`. */ -}}
{{- define "ratekeeper.hasOwnTenantKey" -}}
{{- if hasKey (default dict .Values.settings) "tenant_key" }}true{{ end -}}
{{- range .Values.extraEnv }}{{ if eq .name "RATEKEEPER_TENANT_KEY" }}true{{ end }}{{ end -}}
{{- end -}}

{{- /* Returns true if the settings or variables say where and how the admin API listens. */ -}}
{{- define "ratekeeper.hasOwnAdmin" -}}
{{- $settings := default dict .Values.settings -}}
{{- if or (hasKey $settings "admin") (hasKey $settings "admin_tls_cert") }}true{{ end -}}
{{- range .Values.extraEnv }}{{ if has .name (list "RATEKEEPER_ADMIN" "RATEKEEPER_ADMIN_TLS_CERT") }}true{{ end }}{{ end -}}
{{- end -}}

{{- /* Asks a node if it lives: from inside, where no other pod can be in the way; at the port of metrics where the admin API
listens elsewhere. */ -}}
{{- define "ratekeeper.alive" -}}
{{- if include "ratekeeper.hasOwnAdmin" . -}}
httpGet: { path: /livez, port: metrics }
{{- else -}}
exec: { command: [/bin/ratekeeper, health, --alive, --quiet, "127.0.0.1:6070"] }
{{- end -}}
{{- end -}}

{{- /* Asks a node if it is ready, in the same ways. */ -}}
{{- define "ratekeeper.ready" -}}
{{- if include "ratekeeper.hasOwnAdmin" . -}}
httpGet: { path: /readyz, port: metrics }
{{- else -}}
exec: { command: [/bin/ratekeeper, health, --quiet, "127.0.0.1:6070"] }
{{- end -}}
{{- end -}}

{{- /* The Service has no address of its own: clients find each node. */ -}}
{{- define "ratekeeper.isHeadless" -}}
{{- if and (eq .Values.service.type "ClusterIP") (eq (toString .Values.service.clusterIP) "None") }}true{{ end -}}
{{- end -}}

{{- /* A port by its number or its name; numbers of values are floats. */ -}}
{{- define "ratekeeper.port" -}}
{{- if kindIs "string" . }}{{ . }}{{ else }}{{ int . }}{{ end -}}
{{- end -}}

{{- /* The ports to which nodes connect, each as PORT/PROTOCOL: the values', and those that `redis.url` names. */ -}}
{{- define "ratekeeper.egressPorts" -}}
{{- $ports := list -}}
{{- range .Values.networkPolicy.egressPorts -}}
{{- if kindIs "map" . -}}
{{- $ports = append $ports (printf "%s/%s" (include "ratekeeper.port" .port) (default "TCP" .protocol)) -}}
{{- else -}}
{{- $ports = append $ports (printf "%s/TCP" (include "ratekeeper.port" .)) -}}
{{- end -}}
{{- end -}}
{{- $url := default "" .Values.redis.url -}}
{{- if contains "://" $url -}}
{{- $scheme := index (splitList "://" $url) 0 -}}
{{- $place := index (splitList "://" $url) 1 -}}
{{- $hosts := regexReplaceAll "[/?].*$" $place "" | splitList "@" | last -}}
{{- if not (contains "unix" $scheme) -}}
{{- range splitList "," $hosts -}}
{{- $port := regexFind ":[0-9]+$" . | trimPrefix ":" -}}
{{- $ports = append $ports (printf "%s/TCP" (default (ternary "26379" "6379" (contains "sentinel" $scheme)) $port)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- uniq $ports | join " " -}}
{{- end -}}

{{- /* What no installation should be: nodes that each allow the whole limit. */ -}}
{{- define "ratekeeper.validate" -}}
{{- $several := or .Values.autoscaling.enabled (gt (int .Values.replicas) 1) -}}
{{- if and $several (not (include "ratekeeper.isShared" .)) -}}
{{- fail "several nodes share no limits without Redis: set redis.url or redis.existingSecret, or replicas: 1 and autoscaling.enabled: false" -}}
{{- end -}}
{{- if and .Values.redis.url .Values.redis.existingSecret -}}
{{- fail "set redis.url or redis.existingSecret, not both" -}}
{{- end -}}
{{- $hasKey := or .Values.postgresql.tenantKeySecretKey (include "ratekeeper.hasOwnTenantKey" .) -}}
{{- if and .Values.postgresql.existingSecret (not $hasKey) -}}
{{- fail "nodes with a database have to share the key of tenants: set postgresql.tenantKeySecretKey to where a secret holds what `openssl rand -hex 16` prints" -}}
{{- end -}}
{{- $ownPorts := and (eq (int .Values.service.grpc) 8081) (eq (int .Values.service.http) 8080) -}}
{{- if and (include "ratekeeper.isHeadless" .) (not $ownPorts) -}}
{{- fail "a headless Service maps no ports, and nodes listen on 8081 and 8080: leave service.grpc and service.http, or set service.clusterIP to \"\"" -}}
{{- end -}}
{{- if and (not .Values.rules) (not .Values.existingRulesConfigMap) -}}
{{- fail "there are no rules: write --set-file 'rules.api\\.yaml=FILE', or set rules or existingRulesConfigMap" -}}
{{- end -}}
{{- end -}}
