#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# test.sh BASE PACKAGES: checks the deb and rpm packages of PACKAGES/newer with lintian and rpm, and installs, removes and purges them
# in copies of the Debian root BASE, without a running systemd; checks what is there after each step. If there is PACKAGES/release
# (packaging/reproduce.sh), it takes the older packages and the image there, and also upgrades and rolls back.
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "test.sh: only root can install in a root: run make test-install as root." >&2; exit 1; }
base=$(realpath "${1:?usage: test.sh BASE PACKAGES}")
packages=$(realpath "${2:?usage: test.sh BASE PACKAGES}")
newer=$packages/newer dist=$packages/newer
[ ! -d "$packages/release" ] || dist=$packages/release
work=$(mktemp -d)
end() {
  [ -z "${server:-}" ] || kill "$server" 2>/dev/null || true
  for mounted in deb/root rpm/root deb rpm; do ! mountpoint -q "$work/$mounted" || umount "$work/$mounted"; done
  rm -rf "$work"
}
trap end EXIT
failed=0
fail() { echo "FAIL: $*" >&2; failed=1; }
step() { echo "--- $* ($SECONDS s)"; }
# logged LOG COMMAND...: shows the output of a command that fails.
logged() { local log=$work/$1.log; shift; "$@" >"$log" 2>&1 || { cat "$log" >&2; return 1; }; }
# root_of NAME: a root like BASE; what is written there is in memory.
root_of() {
  mkdir "$work/$1"
  mount -t tmpfs -o mode=755 "$1" "$work/$1"
  mkdir "$work/$1/root" "$work/$1/upper" "$work/$1/work"
  mount -t overlay "$1" -o "lowerdir=$base,upperdir=$work/$1/upper,workdir=$work/$1/work" "$work/$1/root"
  root=$work/$1/root
}

step "lintian, rpm"
lintian --allow-root --fail-on error,warning "$dist"/*.deb || fail "lintian"
for package in "$dist"/*.rpm; do
  logged rpm rpm --checksig --nosignature "$package" || fail "$package is damaged"
  deb=$(ls "$dist/$(rpm -qp --qf '%{NAME}' "$package")"_*.deb)
  programs() { grep -vE '^/usr/(share/(doc|licenses|zsh|lintian)|lib/python)' | sort; }
  diff <(rpm -qlvp "$package" | awk '!/^d/ { print $NF }' | programs) <(dpkg-deb -c "$deb" | grep -v '^d' | sed -E 's,.* \./,/,' | programs) || fail "$package and $deb have different files"
done

if [ "$dist" != "$newer" ]; then
  step "image"
  image=$(ls "$dist"/*.oci.tar)
  logged skopeo skopeo copy "oci-archive:$image" "dir:$work/image" || fail "skopeo cannot copy $image"
  mkdir "$work/container"
  tar -xzf "$work/image/$(jq -r '.layers[0].digest | sub("sha256:"; "")' "$work/image/manifest.json")" -C "$work/container"
  [ "$(jq -r '.config.Entrypoint[0] + " " + .config.User' "$work/image/$(jq -r '.config.digest | sub("sha256:"; "")' "$work/image/manifest.json")")" = '/usr/bin/compute-agent 65532:65532' ] ||
    fail "entrypoint and user of the image"
  in_image=(chroot --userspec=65532:65532 "$work/container" /usr/bin/compute-agent)
  [[ $("${in_image[@]}" version) = "compute-agent v1.98.0-rc.1 "* ]] || fail "the version of the image is $("${in_image[@]}" version)"
  # The socket of its metrics and backups, so that no port is used that another process has.
  "${in_image[@]}" placement serve --listen 127.0.0.1:0 --state-dir /var/lib/compute-agent --auth noauth >"$work/server.log" 2>&1 &
  server=$!
  socket=$work/container/var/lib/compute-agent/run/placement-admin.sock
  curl -sSf --retry 20 --retry-delay 1 --retry-all-errors --unix-socket "$socket" http://placement/healthz >"$work/curl.log" 2>&1 ||
  { cat "$work/server.log" "$work/curl.log" >&2; fail "Placement does not answer from the image"; }
  kill "$server" && wait "$server" || fail "Placement in the image ended with $?"
  server=

fi

step "a Debian root"
root_of deb
with_proc() { unshare --mount sh -euc 'mount -t proc proc "$0/proc"; exec "$@"' "$root" "$@"; }
in_root() { with_proc chroot "$root" env DEBIAN_FRONTEND=noninteractive LC_ALL=C "$@"; }
# Files that are not of a package, and change with every dpkg or sysusers.
files() { (cd "$root" && find . -path ./proc -prune -o -path ./tmp -prune -o \( -path './var/lib/dpkg/*' -o -path './var/log/*' -o -path './var/cache/*' -o -path './etc/*-' -o -path './etc/.pwd.lock' \) -prune -o -print | sort); }
files >"$work/before"

step "install"
mkdir "$root/tmp/new"
cp "$dist"/*.deb "$root/tmp/"
in_root sh -c 'dpkg -i /tmp/*.deb' >"$work/install.log" 2>&1 || { cat "$work/install.log" >&2; fail "install"; }
in_root compute-agent version || fail "the program does not run"
in_root /usr/libexec/compute-agent/plugins/compute-driver-libvirt --info >"$work/info" 2>&1 || { cat "$work/info" >&2; fail "the driver does not run"; }
in_root python3 -c 'import compute_driver' || fail "the SDK cannot be imported"
for page in "$root"/usr/share/man/man[15]/compute-agent*; do
  page=/${page#"$root"/}
  echo "man --warnings --local-file $page 2>&1 >/dev/null; zcat $page | mandoc -T lint -W warning"
done | in_root sh >"$work/man.log" 2>&1 || true
[ ! -s "$work/man.log" ] || { cat "$work/man.log" >&2; fail "man or mandoc warns about a manual page"; }
[ -n "$(in_root man -w compute-agent-status compute-agent.toml)" ] || fail "no manual page"
# Each shell completes a command from what the package has in its directory of completions.
completed=$(in_root bash -c '. /usr/share/bash-completion/bash_completion; . /usr/share/bash-completion/completions/compute-agent
  COMP_WORDS=(compute-agent placement ser) COMP_CWORD=2 COMP_LINE="compute-agent placement ser" COMP_POINT=27 COMP_TYPE=9 COMP_KEY=9
  __start_compute-agent; echo "${COMPREPLY[0]}"' 2>/dev/null || true) # compopt says that no line is being completed
[ "${completed%% *}" = serve ] || fail "bash completes: $completed"
completed=$(in_root zsh -euc 'autoload -U compinit; compinit -D; echo $_comps[compute-agent]; autoload +X _compute-agent; zsh -n $functions_source[_compute-agent]' 2>&1 || true)
[ "$completed" = _compute-agent ] || fail "zsh completes: $completed"
completed=$(in_root env HOME=/tmp fish -c 'complete -C "compute-agent placement ser"' 2>&1 || true)
[ "${completed%%[[:space:]]*}" = serve ] || fail "fish completes: $completed"
for user in compute-agent compute-agent-placement compute-agent-cells-api compute-agent-cell compute-agent-libvirt; do
  in_root id "$user" >/dev/null || fail "no user $user"
done
[ "$(stat -c '%a %U' "$root/etc/compute-agent/credentials")" = '700 root' ] || fail "mode of /etc/compute-agent/credentials"
units='compute-agent.service compute-agent-placement.socket compute-agent-placement.service compute-agent-cells-api.service compute-agent-cell@cell1.service'
for unit in $units; do
  state=$(in_root systemctl is-enabled "$unit" || true)
  [ "$state" = disabled ] || fail "$unit is $state after the installation"
done

step "upgrade"
in_root systemctl enable $units >/dev/null 2>&1
echo '# changed here' >>"$root/etc/compute-agent/compute-agent.toml"
echo 'x' >"$root/etc/compute-agent/conf.d/site.toml"
mkdir -p "$root"/var/lib/compute-agent{,-placement,-cells-api,-cell-cell1}
touch "$root"/var/lib/compute-agent{,-placement,-cells-api,-cell-cell1}/state "$root/var/lib/compute-agent-instances/disk"
cp "$newer"/*.deb "$root/tmp/new/" # they may be the same
in_root sh -c 'dpkg -i /tmp/new/*.deb' >"$work/upgrade.log" 2>&1 || { cat "$work/upgrade.log" >&2; fail "upgrade"; }
grep -q '^# changed here' "$root/etc/compute-agent/compute-agent.toml" || fail "the upgrade lost a change to the configuration"
for unit in $units; do [ "$(in_root systemctl is-enabled "$unit" || true)" = enabled ] || fail "$unit is not enabled after the upgrade"; done
step "roll back"
in_root sh -c 'dpkg -i /tmp/*.deb' >"$work/rollback.log" 2>&1 || { cat "$work/rollback.log" >&2; fail "roll back"; }
for unit in $units; do [ "$(in_root systemctl is-enabled "$unit" || true)" = enabled ] || fail "$unit is not enabled after the way back"; done

step "remove"
names=$(cd packaging && ls *.yaml | sed 's/\.yaml$//')
in_root dpkg --remove $names >"$work/remove.log" 2>&1 || { cat "$work/remove.log" >&2; fail "remove"; }
for file in etc/compute-agent/compute-agent.toml etc/compute-agent/compute-api.toml etc/compute-agent/conf.d/site.toml var/lib/compute-agent/state \
  var/lib/compute-agent-placement/state var/lib/compute-agent-cells-api/state var/lib/compute-agent-cell-cell1/state var/lib/compute-agent-instances/disk; do
  [ -e "$root/$file" ] || fail "removal deleted $file"
done
[ -z "$(find "$root/etc/systemd" -name 'compute-agent*')" ] || fail "enabled after the removal: $(find "$root/etc/systemd" -name 'compute-agent*')"
[ ! -e "$root/usr/bin/compute-agent" ] || fail "removal left the program"

step "purge"
in_root dpkg --purge $names >"$work/purge.log" 2>&1 || { cat "$work/purge.log" >&2; fail "purge"; }
left=$(comm -13 "$work/before" <(files))
expected='./etc/compute-agent
./etc/compute-agent/conf.d
./etc/compute-agent/conf.d/site.toml
./var/lib/compute-agent-instances
./var/lib/compute-agent-instances/disk'
[ "$left" = "$expected" ] || fail "the purge leaves, where an operator's file and a guest's disk were expected:
$left"
step "rpm: install"
# dpkg has what the packages depend on; rpm checks only that they fit each other.
root_of rpm
logged initdb rpm --root "$root" --initdb
rpms() {
  logged "rpm-$1" with_proc rpm --root "$root" --nosignature --nodeps "${@:2}" || fail "rpm: $1"
  if grep -iE 'warning|error|fail' "$work/rpm-$1.log" >&2; then fail "rpm: $1 warns"; fi
}
files >"$work/before"
rpms test --install --test "$dist"/*.rpm
rpms install --install "$dist"/*.rpm
for user in compute-agent compute-agent-placement compute-agent-cells-api compute-agent-cell compute-agent-libvirt; do
  in_root id "$user" >/dev/null || fail "rpm: no user $user"
done
for unit in $units; do
  state=$(in_root systemctl is-enabled "$unit" || true)
  [ "$state" = disabled ] || fail "rpm: $unit is $state after the installation"
done

step "rpm: upgrade and roll back"
in_root systemctl enable $units >/dev/null 2>&1
echo '# changed here' >>"$root/etc/compute-agent/compute-agent.toml"
mkdir "$root/var/lib/compute-agent"
touch "$root/var/lib/compute-agent/state" "$root/var/lib/compute-agent-instances/disk"
if [ "$dist" != "$newer" ]; then
  rpms upgrade --upgrade "$newer"/*.rpm
  rpms rollback --upgrade --oldpackage "$dist"/*.rpm
fi
grep -q '^# changed here' "$root/etc/compute-agent/compute-agent.toml" || fail "rpm: the upgrade lost a change to the configuration"
for unit in $units; do [ "$(in_root systemctl is-enabled "$unit" || true)" = enabled ] || fail "rpm: $unit is not enabled after the way back"; done

step "rpm: remove"
logged erase with_proc rpm --root "$root" --nodeps --erase $names || fail "rpm: remove"
# Directories that a distribution of rpm packages has.
left=$(comm -13 "$work/before" <(files) | grep -vE '^\./(var/lib/rpm.*|usr/lib/python[0-9.]*(/site-packages)?|usr/share/(licenses|zsh/site-functions))$')
expected='./etc/compute-agent
./etc/compute-agent/compute-agent.toml.rpmsave
./etc/compute-agent/conf.d
./etc/compute-agent/credentials
./var/lib/compute-agent
./var/lib/compute-agent-images
./var/lib/compute-agent-instances
./var/lib/compute-agent-instances/disk
./var/lib/compute-agent/state'
[ "$left" = "$expected" ] || fail "the removal with rpm leaves, where the changed configuration and state were expected:
$left"
step "end"
[ "$failed" = 0 ] || exit 1
(cd "$dist" && du -b --apparent-size -- *)
