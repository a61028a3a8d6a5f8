# Installs, runs, reloads, upgrades and removes a package on a fresh Debian. Called by `cargo xtask packages` in namespaces
# of its own, as root. KIND is deb, rpm or tarball; SYSTEM the archive of the Debian; FIRST and SECOND are releases.
set -eu

fail() { echo "FAILED: $*" >&2; tail -n 30 "$root/run.log" >&2 || true; exit 1; }
expect() { if [ "$2" = "$3" ]; then echo "$1: $2"; else fail "$1: $2, not $3"; fi; }
inside() { chroot "$root" "$@"; }
eventually() {
  local what=$1 end=$((SECONDS + 60)); shift
  until "$@" > /dev/null 2>&1; do [ $SECONDS -lt $end ] || fail "waited in vain until $what"; sleep 0.1; done
}
is_ready() { inside /bin/bash -c 'exec 3<>/dev/tcp/127.0.0.1/8080 && printf "GET /readyz HTTP/1.0\r\n\r\n" >&3 && grep -q "200 OK" <&3'; }
# What is left of the limit of a tenant, after one more request.
remaining() {
  local body='{"domain":"tried","descriptors":[{"entries":[{"key":"user","value":"ada"}]}]}'
  inside /bin/bash -c "exec 3<>/dev/tcp/127.0.0.1/8080
    printf 'POST /v1/check HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: ${#body}\r\n\r\n%s' '$body' >&3; cat <&3" |
    grep -o '"remaining":[0-9]*' | head -n 1 | cut -d: -f2
}
# The commands of the unit, as systemd would run them: as its user, in its folder, with nothing from here.
unit() { sed -n "s/^$1=//p" "$root/usr/lib/systemd/system/ratekeeper.service"; }
as_unit() { (exec chroot "$root" setpriv --reuid "$(unit User)" --regid "$(unit Group)" --clear-groups --no-new-privs env -i PATH=/usr/bin:/bin MAINPID="${main:-}" /bin/bash -c "umask $(unit UMask); cd $(unit WorkingDirectory); exec $1"); }
start() {
  unit ExecStartPre | while read -r command; do as_unit "$command" || fail "systemd would not start it"; done
  as_unit "$(unit ExecStart)" > "$root/run.log" 2>&1 &
  eventually "it is ready" is_ready
  job=$!
  main=$(pgrep --exact ratekeeper)
}
# As systemd does: the commands one after the other, until one fails.
reload() { unit ExecReload | while read -r command; do as_unit "$command" || return 1; done; }
stop() { kill -TERM "$main"; wait "$job" || fail "it ended with $?"; }

ip link set lo up
root=$(mktemp --directory)
mount -t tmpfs none "$root"
tar --extract --file "$SYSTEM" --directory "$root" --exclude './dev/*'
mount -t proc none "$root/proc"
for device in null zero random urandom; do touch "$root/dev/$device"; mount --bind "/dev/$device" "$root/dev/$device"; done
ln -s /proc/self/fd "$root/dev/fd"
cp "$FIRST" "$root/first.$KIND"; cp "$SECOND" "$root/second.$KIND"

case $KIND in
  deb) install() { inside dpkg --install --force-confold "/$1.deb"; }; remove() { inside dpkg --remove ratekeeper; } ;;
  # Its database of packages is empty: on a Debian it cannot know of a shell and of useradd.
  rpm) install() { inside rpm --upgrade --nodeps --hash "/$1.rpm"; }; remove() { inside rpm --erase --nodeps ratekeeper; } ;;
  tarball)
    inside /bin/bash -c 'mkdir /opt/ratekeeper && tar xzf /first.tarball -C /opt/ratekeeper --strip-components=1'
    inside /opt/ratekeeper/bin/ratekeeper --version
    inside /opt/ratekeeper/bin/ratekeeper rules check /opt/ratekeeper/config/rules
    [ -f "$root/opt/ratekeeper/share/man/man1/ratekeeper-serve.1.gz" ] || fail "no man pages"
    exit ;;
esac

echo "--- install"
install first
# This Debian has no systemd: the targets that the unit needs are those of the host.
cp --no-clobber /usr/lib/systemd/system/*.target /usr/lib/systemd/system/-.slice "$root/usr/lib/systemd/system/" 2> /dev/null || true
systemd-analyze --root="$root" --man=no verify ratekeeper.service || fail "systemd does not accept the unit"
expect "the user's shell" "$(inside getent passwd ratekeeper | cut -d: -f7)" /usr/sbin/nologin
expect "state" "$(inside stat -c '%U %a' /var/lib/ratekeeper)" "ratekeeper 700"
expect "logs" "$(inside stat -c '%U %a' /var/log/ratekeeper)" "ratekeeper 750"
expect "settings" "$(inside stat -c '%U:%G %a' /etc/ratekeeper)" "root:ratekeeper 750"
for file in man/man1/ratekeeper.1.gz man/man1/ratekeeper-rules-check.1.gz bash-completion/completions/ratekeeper \
  zsh/site-functions/_ratekeeper fish/vendor_completions.d/ratekeeper.fish doc/ratekeeper; do
  [ -e "$root/usr/share/$file" ] || fail "no $file"
done
inside /bin/bash -c 'source /usr/share/bash-completion/completions/ratekeeper; complete -p ratekeeper' > /dev/null

echo "--- start"
printf 'domain: tried\ndescriptors:\n  - { key: user, rate_limit: { window: 1d, limit: 1000 } }\n' > "$root/etc/ratekeeper/rules/tried.yaml"
echo '# edited' >> "$root/etc/ratekeeper/ratekeeper.yaml"
start
for _ in 1 2 3; do left=$(remaining); done
expect "left of 1000 after three requests" "$left" 997

echo "--- reload"
sed -i 's/limit: 1000/limit: 2000/' "$root/etc/ratekeeper/rules/tried.yaml"
reload || fail "the reload was refused"
eventually "the limit is 2000" eval '[ "$(remaining)" -gt 1500 ]'
echo 'descriptors: [{ ky: user }]' > "$root/etc/ratekeeper/rules/broken.yaml"
if reload 2> "$root/reload.log"; then fail "bad rules were not refused"; fi
grep -q 'broken.yaml:1' "$root/reload.log" || fail "the error has no place: $(cat "$root/reload.log")"
echo "--- crash"
kill -KILL "$main"
wait "$job" 2> /dev/null || true
start
grep -q 'the last good rules' "$root/run.log" || fail "it does not say that it has the last good rules"
rm "$root/etc/ratekeeper/rules/broken.yaml"
before=$(remaining)

echo "--- upgrade"
stop
install second
grep -q '# edited' "$root/etc/ratekeeper/ratekeeper.yaml" || fail "the settings were replaced"
start
expect "left after the upgrade and one more request" "$(remaining)" $((before - 1))

echo "--- remove"
stop
remove
[ ! -e "$root/usr/bin/ratekeeper" ] || fail "the program is still there"
[ -e "$root/etc/ratekeeper/rules/tried.yaml" ] && [ -e "$root/var/lib/ratekeeper" ] || fail "rules or state are gone"
if [ "$KIND" = deb ]; then
  rm "$root/etc/ratekeeper/rules/tried.yaml"
  inside dpkg --purge ratekeeper
  [ ! -e "$root/var/lib/ratekeeper" ] && [ ! -e "$root/etc/ratekeeper" ] || fail "a purge leaves files"
  if inside getent passwd ratekeeper; then fail "a purge leaves the user"; fi
fi
echo "$KIND: installed, started, reloaded, upgraded and removed"
