#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# packages.sh run|demo|test|real|databases|systemd|packages|bench|conformance: installs the missing Debian packages for that make target, and lists them.
# If none is missing, it does nothing, and needs neither network nor privileges.
set -euo pipefail

# Go is not Debian's: that of Debian 12 cannot read go.mod. From 1.21 on, Go fetches the version that go.mod has.
version=$(go env GOVERSION 2>/dev/null || true)
if [ -z "$version" ] || [ "$(printf '%s\n' go1.21 "$version" | sort --version-sort | head -n 1)" != go1.21 ]; then
  wanted=$(sed -n 's/^go //p' "$(dirname "$0")/../go.mod")
  echo "This needs Go $wanted or newer, and ${version:-no Go} is in the PATH. To install it (https://go.dev/doc/install), as root:" >&2
  echo "  curl -L https://go.dev/dl/go$wanted.linux-$(dpkg --print-architecture).tar.gz | tar -C /usr/local -xz; export PATH=\$PATH:/usr/local/go/bin" >&2
  exit 1
fi

# To build and run: a C compiler for the libvirt driver (its headers come with the Go module), libvirt and QEMU; curl, for what is printed.
run=(gcc libc6-dev libvirt-daemon-system qemu-system-x86 curl)
# To show it as well: OpenStack's command line.
demo=("${run[@]}" python3-openstackclient)
# To test what is pure: the race detector needs a C compiler; what the driver in Python is built from (examples/driver-python), whose
# protocol protoc generates; systemd-analyze, and what units execute (procps); libvirt's library, and ssh-keygen.
test=(gcc libc6-dev python3-grpcio python3-protobuf python3-cryptography protobuf-compiler systemd procps libvirt0 openssh-client)
# To test with real ones: Placement and Keystone (their code alone: the packages placement-api and keystone would start services);
# clients that were written for Placement and Nova; MariaDB and PostgreSQL (test/dbservers) and Prometheus (test/observability), whose own
# services are not used; the firmware and the TPM of guests.
real=("${demo[@]}" "${test[@]}" python3-placement python3-keystone python3-openstacksdk python3-osc-placement
  mariadb-server-core mariadb-client-core galera-4 postgresql prometheus iproute2 ovmf swtpm swtpm-tools)
# To run the long tests with databases as well: Nova (its code, which has all its services), and the broker of its messages, whose
# own service is not used.
databases=("${real[@]}" python3-nova rabbitmq-server)
# To boot a Debian with systemd in a container, and to install the product in it.
systemd=(gcc libc6-dev curl debootstrap debian-archive-keyring systemd-container util-linux make)
# To make packages, and to check and install them in a Debian root.
packages=(gcc libc6-dev binutils perl protobuf-compiler python3 gzip lintian rpm skopeo debootstrap debian-archive-keyring gnupg jq curl)
# To compare with the real Placement: its code, WSGI server and database, without services (mariadb-server and placement-api
# would start one).
bench=(gcc libc6-dev python3-placement python3-pymysql uwsgi-core uwsgi-plugin-python3 mariadb-server-core mariadb-client-core postgresql)

case "${1:-}" in
run) wanted=("${run[@]}") ;;
demo) wanted=("${demo[@]}") ;;
test) wanted=("${test[@]}") ;;
real) wanted=("${real[@]}") ;;
databases) wanted=("${databases[@]}") ;;
systemd) wanted=("${systemd[@]}") ;;
packages) wanted=("${packages[@]}") ;;
bench) wanted=("${bench[@]}") ;;
conformance) wanted=(python3-gabbi) ;;
*)
  echo "usage: packages.sh run|demo|test|real|databases|systemd|packages|bench|conformance" >&2
  exit 64
  ;;
esac

missing=()
for package in "${wanted[@]}"; do
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" != 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "These Debian packages are missing: ${missing[*]}" >&2
    echo "There is no sudo. As root, run: apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "Installing the missing Debian packages, which can take some minutes: ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
install() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}" >"$log" 2>&1
}
if ! install; then # usually the package lists are old or missing
  "${as_root[@]}" apt-get update >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
  install || { cat "$log" >&2; exit 1; }
fi
echo "Installed."
