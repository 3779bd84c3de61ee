#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# test.sh: builds the packages of HEAD in two directories and compares them; checks them with lintian and rpm; installs,
# upgrades, removes and purges them in a Debian root without a running systemd, and checks what is there after each step.
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "test.sh: only root can install in a root: run make test-packages as root." >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
fail() { echo "FAIL: $*" >&2; failed=1; }
step() { echo "--- $* ($SECONDS s)"; }

for n in 1 2; do
  step "build $n"
  git clone -q --no-hardlinks . "$work/build$n/compute-agent"
  make --no-print-directory -C "$work/build$n/compute-agent" packages >"$work/build$n.log" 2>&1 || { cat "$work/build$n.log" >&2; exit 1; }
done
dist=$work/build1/compute-agent/dist
diff -r "$dist" "$work/build2/compute-agent/dist" || fail "two builds of the same commit differ"
rm -rf "$work/build2"
[ "$(ls "$dist" | wc -l)" = 12 ] || fail "dist does not have six deb and six rpm packages: $(ls "$dist")"

step "lintian, rpm"
# The file names are long only because of the version of a commit without a tag.
lintian --allow-root --fail-on error,warning --suppress-tags package-has-long-file-name "$dist"/*.deb || fail "lintian"
for package in "$dist"/*.rpm; do
  rpm -qp --nosignature "$package" >/dev/null || fail "$package cannot be read"
  deb=$(ls "$dist/$(rpm -qp --qf '%{NAME}' "$package")"_*.deb)
  programs() { grep -vE '^/usr/(share/(doc|licenses|zsh|lintian)|lib/python)' | sort; }
  diff <(rpm -qlp "$package" | programs) <(dpkg-deb -c "$deb" | grep -v '^d' | sed -E 's,.* \./,/,' | programs) || fail "$package and $deb have different files"
done

step "a Debian root"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/compute-agent-packages
include=systemd,libvirt0,ca-certificates,python3-grpcio,python3-protobuf,python3-cryptography,man-db
base=$cache/bookworm-$(echo "$include" | sha256sum | head -c 8)
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
if [ ! -d "$base" ]; then
  rm -rf "$base.part"
  debootstrap --variant=minbase --include="$include" bookworm "$base.part" >"$work/debootstrap.log" || { cat "$work/debootstrap.log" >&2; exit 1; }
  rm -f "$base.part"/var/cache/apt/archives/*.deb
  mv "$base.part" "$base"
fi
flock -u 9
root=$work/root
cp -a --reflink=auto "$base" "$root"
in_root() { chroot "$root" env DEBIAN_FRONTEND=noninteractive LC_ALL=C "$@"; }
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
[ -n "$(in_root man -w compute-agent-status)" ] || fail "no manual page"
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
(cd "$work/build1/compute-agent" && packaging/build.sh "$work/newer" 99.0.0 >/dev/null)
cp "$work/newer"/*.deb "$root/tmp/new/"
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
step "end"
[ "$failed" = 0 ] || exit 1
(cd "$dist" && du -b --apparent-size -- *)
