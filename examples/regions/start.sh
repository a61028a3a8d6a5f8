#!/bin/sh
# Starts three regions on this machine, each with a Redis and a node of its own, that lend each other parts of a limit. All of
# them end with this script (Ctrl-C). Needs `ratekeeper` and `redis-server` in PATH; --help lists the variables.
set -eu

# The ports of ap, eu and us: gRPC (where links arrive), HTTP, admin, Redis.
AP=${AP:-8181,8180,6170,6471}
EU=${EU:-8281,8280,6270,6472}
US=${US:-8381,8380,6370,6473}
DATA=${DATA:-./regions-data}

if [ "${1:-}" = --help ]; then
    echo "AP=$AP EU=$EU US=$US DATA=$DATA $0"
    exit 0
fi
for program in ratekeeper redis-server; do
    command -v "$program" > /dev/null || { echo "$program is not in PATH" >&2; exit 1; }
done

here=$(cd "$(dirname "$0")" && pwd)
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

# The port at a place of AP, EU or US.
port() { echo "$1" | cut -d, -f"$2"; }

# The settings of a region: the same everywhere, but for its name and its Redis.
settings() {
    cat << END
region: $1
store: redis://127.0.0.1:$2/
store_deadline: 100ms
store_hash_key: 00112233445566778899aabbccddeeff
regions:
  version: 1
  loan_time: 10m
  ap: { weight: 1, link: ['http://127.0.0.1:$(port "$AP" 1)'] }
  eu: { weight: 1, link: ['http://127.0.0.1:$(port "$EU" 1)'] }
  us: { weight: 1, link: ['http://127.0.0.1:$(port "$US" 1)'] }
END
}

# Starts a region, given its name and its ports.
region() {
    mkdir -p "$DATA/$1"
    settings "$1" "$(port "$2" 4)" > "$DATA/$1/ratekeeper.yaml"
    redis-server --port "$(port "$2" 4)" --bind 127.0.0.1 --save '' --dir "$DATA/$1" --loglevel warning &
    started="$started $!"
    (cd "$DATA/$1" && exec ratekeeper serve --rules "$here/rules.yaml" --grpc "127.0.0.1:$(port "$2" 1)" \
        --http "127.0.0.1:$(port "$2" 2)" --admin "127.0.0.1:$(port "$2" 3)" --drain-delay 0s) &
    started="$started $!"
    echo "$1  http://127.0.0.1:$(port "$2" 2)/v1/check  http://127.0.0.1:$(port "$2" 3)/dashboard"
}
region ap "$AP"
region eu "$EU"
region us "$US"

# All are there, or none: the first that ends by itself ends the others.
while :; do
    for process in $started; do
        kill -0 "$process" 2> /dev/null || { echo "one of the programs has ended" >&2; exit 1; }
    done
    sleep 1 & wait $!
done
