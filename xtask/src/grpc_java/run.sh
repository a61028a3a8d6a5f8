# Asks Ratekeeper with grpc-java. Called by `cargo xtask compat
# grpc-java` in a network namespace of its own, where all ports are free.
set -eu

fail() { echo "FAILED: $*" >&2; tail -n 20 "$WORK"/*.log >&2; exit 1; }
trap 'kill "${server:-}" 2> /dev/null || true' EXIT
ip link set lo up
cat > "$WORK/rules.yaml" <<YAML
domain: d
descriptors:
  - { key: limited, rate_limit: { unit: day, requests_per_unit: 5 } }
  - { key: crowd, rate_limit: { unit: day, requests_per_unit: 100 } }
YAML
"$RATEKEEPER" serve --rules "$WORK/rules.yaml" > "$WORK/server.log" 2>&1 &
server=$!
end=$((SECONDS + 30))
until curl -sfo /dev/null http://127.0.0.1:8080/readyz; do
  [ $SECONDS -lt $end ] || fail "it is not ready"
  sleep 0.1
done
java -cp "$WORK/out/grpc-java-0.1.0.jar:$WORK/out/dependency/*" Calls 127.0.0.1:8081 > "$WORK/answers.txt" ||
  fail "the calls broke off"
kill "$server"
wait "$server" || fail "it did not end well"
cat "$WORK/answers.txt"
grep -q '^plain: OK 0801' "$WORK/answers.txt" || fail "what no rule limits did not pass"
grep -q '^limited 5: OK 0802' "$WORK/answers.txt" || fail "nothing was denied"
grep -q '^many limited: {0801=100, 0802=400}' "$WORK/answers.txt" || fail "of 500 calls at once, not just 100 passed"
echo "grpc-java gets its answers"
