# Runs Envoy Gateway, Envoy, Redis and Ratekeeper, and compares what clients get. Called by `cargo xtask compat
# envoy-gateway` in namespaces of its own, as root.
set -u

certs=$HOME/.config/envoy-gateway/certs
policy=$WORK/resources/policy.yaml
started=()

fail() { echo "FAILED: $*" >&2; tail -n 20 "$WORK"/*.log >&2; exit 1; }
expect() { [ "$2" = "$3" ] && echo "$1: $2" || fail "$1: $2, not $3"; }
eventually() {
  local what=$1 end=$((SECONDS + 60)); shift
  until "$@" > /dev/null 2>&1; do [ $SECONDS -lt $end ] || fail "waited in vain until $what"; sleep 0.2; done
}
background() { local log=$1; shift; "$@" > "$WORK/$log.log" 2>&1 & started+=($!); }
admin() { curl -s "http://127.0.0.1:6070$1"; }
has() { admin "$1" | grep -q "$2"; }
ask() { for _ in $(seq "$2"); do curl -so /dev/null -w '%{http_code} ' -H "x-user-id: $1" http://127.0.0.1:8888/; done; }
gateway() { background envoy-gateway "$ENVOY_GATEWAY" server --config-path "$WORK/envoy-gateway.yaml"; gateway=${started[-1]}; }
trap 'kill "${started[@]}" 2> /dev/null; wait; umount /certs; rmdir /certs' EXIT

# Envoy Gateway's own paths, and a home without whatever is in it.
ip link set lo up
mkdir -p /certs "$HOME" "$WORK/resources"
mount -t tmpfs none /certs
mount -t tmpfs none "$HOME"
printf '%s\n' '127.0.0.1 localhost envoy-gateway' '127.0.0.2 envoy-ratelimit.envoy-gateway-system.svc.cluster.local' > "$WORK/hosts"
mount --bind "$WORK/hosts" /etc/hosts
"$ENVOY_GATEWAY" certgen --local > "$WORK/certgen.log" 2>&1 || fail "no certificates"
cp "$certs"/envoy-gateway/* /certs/
envoys=$HOME/.local/share/envoy-gateway/envoy-versions/1.40.0/bin
mkdir -p "$envoys" && ln -s "$ENVOY" "$envoys/envoy"
# Envoy Gateway has 8081 on all addresses for its own health.
iptables -t nat -A OUTPUT -d 127.0.0.2 -p tcp --dport 8081 -j REDIRECT --to-ports 18081

cat > "$WORK/envoy-gateway.yaml" <<YAML
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyGateway
gateway: { controllerName: gateway.envoyproxy.io/gatewayclass-controller }
provider:
  type: Custom
  custom:
    resource: { type: File, file: { paths: ["$WORK/resources"] } }
    infrastructure: { type: Host, host: {} }
rateLimit: { backend: { type: Redis, redis: { url: "redis://127.0.0.1:6379" } } }
extensionApis: { enableBackend: true }
YAML
secret() { base64 -w0 "$certs/envoy/$1"; }
cat > "$WORK/resources/gateway.yaml" <<YAML
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: { name: eg }
spec:
  controllerName: gateway.envoyproxy.io/gatewayclass-controller
  parametersRef: { group: gateway.envoyproxy.io, kind: EnvoyProxy, name: host, namespace: default }
---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyProxy
metadata: { name: host, namespace: default }
spec: { provider: { type: Host, host: { envoyVersion: "1.40.0" } } }
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: { name: eg, namespace: default }
spec: { gatewayClassName: eg, listeners: [{ name: http, protocol: HTTP, port: 8888 }] }
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: { name: backend, namespace: default }
spec:
  parentRefs: [{ name: eg }]
  rules:
    - matches: [{ path: { type: PathPrefix, value: / } }]
      backendRefs: [{ group: gateway.envoyproxy.io, kind: Backend, name: backend }]
---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: Backend
metadata: { name: backend, namespace: default }
spec: { endpoints: [{ ip: { address: 127.0.0.1, port: 9000 } }] }
---
apiVersion: v1
kind: Secret
metadata: { name: envoy, namespace: envoy-gateway-system }
type: kubernetes.io/tls
data: { ca.crt: $(secret ca.crt), tls.crt: $(secret tls.crt), tls.key: $(secret tls.key) }
YAML
cp "$EXAMPLE/policy.yaml" "$policy"

# The variables of Envoy Gateway's deployment, but for the ports.
own=$certs/envoy-rate-limit
ln -sf "$RATEKEEPER" "$WORK/ratelimit"
service() {
  background ratelimit env -i PATH="$PATH" "$@" \
    CONFIG_TYPE=GRPC_XDS_SOTW CONFIG_GRPC_XDS_SERVER_URL=envoy-gateway:18001 CONFIG_GRPC_XDS_NODE_ID=envoy-ratelimit \
    CONFIG_GRPC_XDS_SERVER_USE_TLS=true CONFIG_GRPC_XDS_CLIENT_TLS_CERT="$own/tls.crt" \
    CONFIG_GRPC_XDS_CLIENT_TLS_KEY="$own/tls.key" CONFIG_GRPC_XDS_SERVER_TLS_CACERT="$own/ca.crt" \
    GRPC_SERVER_USE_TLS=true GRPC_SERVER_TLS_CERT="$own/tls.crt" GRPC_SERVER_TLS_KEY="$own/tls.key" \
    GRPC_SERVER_TLS_CA_CERT="$own/ca.crt" FORCE_START_WITHOUT_INITIAL_CONFIG=true USE_STATSD=false \
    REDIS_URL=127.0.0.1:6379 REDIS_SOCKET_TYPE=tcp USE_PROMETHEUS=true PROMETHEUS_ADDR=:19005 GRPC_PORT=18081 \
    RUNTIME_ROOT=/data RUNTIME_SUBDIRECTORY=ratelimit RUNTIME_IGNOREDOTFILES=true RUNTIME_WATCH_ROOT=false \
    "$WORK/ratelimit"
  service=${started[-1]}
}

background redis redis-server --port 6379 --save ''
background backend python3 -m http.server 9000 --bind 127.0.0.1
gateway
[ -z "${RECORD-}" ] || background recorder "$RECORDER" https://envoy-gateway:18001 "$own" envoy-ratelimit "$RECORD"
service
eventually 'the rules come' has /rlconfig requests_per_unit=3
# Without a decision Envoy lets requests pass, so it has to have asked.
asked() { curl -si http://127.0.0.1:8888/ | grep -qi x-ratelimit; }
eventually 'Envoy asks for decisions' asked

expect 'ada, 3 an hour' "$(ask ada 5)" '200 200 200 429 429 '
expect 'bob, apart from her' "$(ask bob 4)" '200 200 200 429 '
expect 'headers' "$(curl -si -H 'x-user-id: ada' http://127.0.0.1:8888/ | tr -d '\r' | grep -i '^x-ratelimit-limit')" \
  'x-ratelimit-limit: 3, 3;w=3600, 100;w=3600'

sed 's/requests: 3$/requests: 6/' "$EXAMPLE/policy.yaml" > "$WORK/changed" && cp "$WORK/changed" "$policy"
eventually 'the changed policy comes' has /rlconfig requests_per_unit=6
expect 'carl, by the changed policy' "$(ask carl 7)" '200 200 200 200 200 200 429 '

kill "$gateway" && wait "$gateway"
eventually 'it notices that Envoy Gateway is away' has /readyz 'rules cannot be fetched'
expect 'rules meanwhile' "$(admin /rlconfig | grep -c requests_per_unit=6)" 1
gateway
eventually 'Envoy Gateway is back' has /metrics '^ratelimit_rules_source_up 1'
eventually 'Envoy is back' asked
expect 'dora, after the restart' "$(ask dora 7)" '200 200 200 200 200 200 429 '
expect 'refused' "$(admin /metrics | grep '^ratelimit_rules_source_refused_total')" 'ratelimit_rules_source_refused_total 0'

kill "$service" && wait "$service"
service RATEKEEPER_XDS_DEFAULTS='{algorithm: sliding_window, count_denied: false}'
eventually 'the rules come with defaults' has /admin/v1/rules sliding_window
eventually 'Envoy asks again' asked
expect 'eve, by a sliding window' "$(ask eve 7)" '200 200 200 200 200 200 429 '
expect 'no fixed window is left' "$(admin /admin/v1/rules | grep -c fixed_window)" 0
echo "all is as expected; logs are in $WORK"
