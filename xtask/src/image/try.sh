# Runs an unpacked image as a container runtime would: its user, a read-only root, no capabilities, a network of its own.
# Called by `cargo xtask image`, as root. BUNDLE has the image's config.json and its files.
set -eu

fail() { echo "FAILED: $*" >&2; tail -n 30 "$work"/*.log >&2 || true; exit 1; }
expect() { if [ "$2" = "$3" ]; then echo "$1: $2"; else fail "$1: $2, not $3"; fi; }
eventually() {
  local what=$1 end=$((SECONDS + 60)); shift
  until "$@" > /dev/null 2>&1; do [ $SECONDS -lt $end ] || fail "waited in vain until $what"; sleep 0.1; done
}
config() { python3 -c 'import json,sys; p=json.load(open(sys.argv[1]))["process"]; print(eval(sys.argv[2]))' "$BUNDLE/config.json" "$1"; }
# Becomes the program, as the image's user and without capabilities. It sees the files of the image and what is mounted.
in_image() {
  exec env -i "${environment[@]}" /usr/bin/setpriv --no-new-privs --bounding-set=-all,+sys_chroot,+setuid,+setgid \
    /usr/sbin/chroot --userspec="$user:$user" --groups= "$root" "$@"
}
run() { in_image "$@" > "$work/run.log" 2>&1 & job=$!; }
stop() { kill -TERM "$job"; local code=0; wait "$job" || code=$?; expect "its exit code" "$code" 0; }
get() { curl -so "$work/body" -w '%{http_code}' "http://127.0.0.1:$1"; }
is_ready() { [ "$(get 8080/readyz)" = 200 ]; }
check() { curl -s http://127.0.0.1:8080/v1/check -H content-type:application/json -d "$1" | grep -o '"remaining":[0-9]*' | head -n 1; }

ip link set lo up
work=$(mktemp --directory)
root=$BUNDLE/rootfs
environment=(PATH=/bin)
user=$(config 'p["user"]["uid"]')
expect "user" "$user" 65534
expect "entrypoint" "$(config 'p["args"][0]')" /bin/ratekeeper

# What a runtime mounts: rules, and the names of hosts.
mkdir -p "$work/rules"
echo '127.0.0.1 localhost' > "$work/hosts"
echo 'nameserver 127.0.0.1' > "$work/resolv.conf"
printf 'domain: tried\ndescriptors:\n  - { key: user, rate_limit: { window: 1d, limit: 1000 } }\n' > "$work/rules/tried.yaml"
chmod -R a+rX "$work"
touch "$root/etc/hosts" "$root/etc/resolv.conf"
mount --bind "$root" "$root"
mount --bind "$work/rules" "$root/etc/ratekeeper/rules"
mount --bind "$work/hosts" "$root/etc/hosts"
mount --bind "$work/resolv.conf" "$root/etc/resolv.conf"
mount -o remount,ro,bind "$root"

echo "--- rules by mount"
run /bin/ratekeeper
eventually "it is ready" is_ready
body='{"domain":"tried","descriptors":[{"entries":[{"key":"user","value":"ada"}]}]}'
expect "check" "$(check "$body")" '"remaining":999'
(in_image /bin/ratekeeper health) || fail "the probe says that it is not ready"
expect "capabilities" "$(grep CapBnd "/proc/$(pgrep --exact ratekeeper)/status" | tr -d '\t')" "CapBnd:00000000000400c0"
expect "permitted" "$(grep CapPrm "/proc/$(pgrep --exact ratekeeper)/status" | tr -d '\t')" "CapPrm:0000000000000000"
sed -i 's/limit: 1000/limit: 2000/' "$work/rules/tried.yaml"
eventually "the changed rules apply" eval 'check "$body" | grep -q 199'
stop

echo "--- names"
# A server of names that knows one. Nothing else in the image tells how names are resolved.
python3 - > "$work/names.log" 2>&1 << 'PYTHON' &
import socket
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
while True:
    question, client = server.recvfrom(512)
    end = question.index(0, 12) + 5
    is_known = question[12:end - 4] == b"\5redis\4test\0" and question[end - 4:end - 2] == b"\0\1"
    head = question[:2] + b"\x81\x80\0\1" + (b"\0\1" if is_known else b"\0\0") + b"\0\0\0\0"
    answer = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\x7f\0\0\1" if is_known else b""
    server.sendto(head + question[12:end] + answer, client)
PYTHON
names=$!
redis-server --port 6379 --save '' > "$work/redis.log" 2>&1 &
redis=$!
eventually "Redis answers" redis-cli ping
run /bin/ratekeeper serve --store redis://redis.test:6379/
eventually "it is ready" is_ready
check "$body" > /dev/null
eventually "the counter is in Redis" eval '[ "$(redis-cli dbsize)" -gt 0 ]'
stop

echo "--- authorities"
# A server with a self-signed certificate: that is found by looking into the bundle, which is not there otherwise.
openssl req -x509 -newkey rsa:2048 -nodes -keyout "$work/key.pem" -out "$work/cert.pem" -days 1 -subj /CN=redis.test \
  -addext subjectAltName=DNS:redis.test -addext basicConstraints=critical,CA:FALSE 2> "$work/openssl.log"
redis-server --port 0 --tls-port 6380 --tls-cert-file "$work/cert.pem" --tls-key-file "$work/key.pem" --tls-auth-clients no \
  --save '' > "$work/rediss.log" 2>&1 &
rediss=$!
eventually "Redis listens with TLS" grep -q 'Ready to accept' "$work/rediss.log"
run /bin/ratekeeper serve --store rediss://redis.test:6380/
eventually "the certificate is refused" grep -qi 'unknownissuer\|unknown issuer' "$work/run.log"
stop

echo "--- as ratelimit"
environment=(PATH=/bin RUNTIME_ROOT=/etc RUNTIME_SUBDIRECTORY=ratekeeper RUNTIME_APPDIRECTORY=rules RUNTIME_IGNOREDOTFILES=true
  RUNTIME_WATCH_ROOT=false REDIS_URL=redis.test:6379 REDIS_SOCKET_TYPE=tcp USE_STATSD=false USE_PROMETHEUS=true)
run /bin/ratelimit
eventually "it is healthy" eval '[ "$(get 8080/healthcheck)" = 200 ]'
expect "code over HTTP" "$(curl -so /dev/null -w '%{http_code}' http://127.0.0.1:8080/json \
  -d '{"domain":"tried","descriptors":[{"entries":[{"key":"user","value":"ada"}]}]}')" 200
stop
kill "$names" "$redis" "$rediss"
echo "the image runs as $user on a read-only root, finds names, and has authorities"
