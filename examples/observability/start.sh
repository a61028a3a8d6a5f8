#!/bin/sh
# Starts Ratekeeper, Prometheus with the alerts in deploy/, and Grafana with the dashboard there, if it is installed. All of
# them end with this script (Ctrl-C). Needs `ratekeeper` and `prometheus` in PATH; --help lists the variables.
set -eu

HTTP=${HTTP:-127.0.0.1:8080}
ADMIN=${ADMIN:-127.0.0.1:6070}
PROMETHEUS=${PROMETHEUS:-127.0.0.1:9090}
GRAFANA=${GRAFANA:-127.0.0.1:3000}
DATA=${DATA:-./observability-data}
SCRAPE_INTERVAL=${SCRAPE_INTERVAL:-5s}

if [ "${1:-}" = --help ]; then
    echo "HTTP=$HTTP ADMIN=$ADMIN PROMETHEUS=$PROMETHEUS GRAFANA=$GRAFANA DATA=$DATA SCRAPE_INTERVAL=$SCRAPE_INTERVAL $0"
    exit 0
fi
for program in ratekeeper prometheus; do
    command -v "$program" > /dev/null || { echo "$program is not in PATH" >&2; exit 1; }
done

here=$(cd "$(dirname "$0")" && pwd)
deploy=$(cd "$here/../../deploy" && pwd)
mkdir -p "$DATA"
DATA=$(cd "$DATA" && pwd)

started=''
end() {
    trap - EXIT INT TERM
    # Each may have ended already.
    for process in $started; do kill "$process" 2> /dev/null || true; done
    wait
}
trap end EXIT
trap 'exit 0' INT TERM

# The shipped configuration, for the address of this node.
sed -e "s/127\.0\.0\.1:6070/$ADMIN/" -e "s/10s/$SCRAPE_INTERVAL/" -e "s#alerts\.yml#$deploy/prometheus/alerts.yml#" \
    "$deploy/prometheus/prometheus.yml" > "$DATA/prometheus.yml"

ratekeeper serve --rules "$here/rules.yaml" --http "$HTTP" --admin "$ADMIN" --grpc 127.0.0.1:0 --top-denied-metric &
started="$started $!"
prometheus --config.file="$DATA/prometheus.yml" --storage.tsdb.path="$DATA/prometheus" \
    --web.listen-address="$PROMETHEUS" --log.level=warn &
started="$started $!"

if command -v grafana > /dev/null; then
    home=${GRAFANA_HOME:-/usr/share/grafana}
    mkdir -p "$DATA/grafana/datasources" "$DATA/grafana/dashboards"
    cat > "$DATA/grafana/datasources/prometheus.yaml" << END
apiVersion: 1
datasources:
- { name: Prometheus, type: prometheus, url: "http://$PROMETHEUS", isDefault: true }
END
    cat > "$DATA/grafana/dashboards/ratekeeper.yaml" << END
apiVersion: 1
providers:
- { name: Ratekeeper, type: file, options: { path: "$deploy/grafana" } }
END
    GF_PATHS_DATA=$DATA/grafana GF_PATHS_PROVISIONING=$DATA/grafana GF_AUTH_ANONYMOUS_ENABLED=true \
        GF_SERVER_HTTP_ADDR=${GRAFANA%:*} GF_SERVER_HTTP_PORT=${GRAFANA##*:} \
        grafana server --homepath "$home" > "$DATA/grafana.log" 2>&1 &
    started="$started $!"
    echo "Grafana     http://$GRAFANA/d/ratekeeper"
else
    echo "Grafana is not installed: import deploy/grafana/ratekeeper.json into yours"
fi
echo "Prometheus  http://$PROMETHEUS/alerts"
echo "Ratekeeper  http://$ADMIN/dashboard"

# All are there, or none: the first that ends by itself ends the others.
while :; do
    for process in $started; do
        kill -0 "$process" 2> /dev/null || { echo "one of the programs has ended" >&2; exit 1; }
    done
    sleep 1 & wait $!
done
