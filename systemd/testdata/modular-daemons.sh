#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# modular-daemons.sh: builds libvirt's modular daemons (virtqemud, virtnodedevd, …) and their units below /modular, from the
# source of the installed libvirt. Debian packages the monolithic daemon alone.
#
# Runs in a Debian root that is thrown away. A daemon is a small program; the drivers are libvirt's installed modules, and the
# library is the installed one, so that no more than the programs themselves is compiled.
set -euo pipefail
daemons=(virtqemud virtnodedevd virtnetworkd virtstoraged virtsecretd virtnwfilterd virtproxyd)
export DEBIAN_FRONTEND=noninteractive

sed -n 's/^deb /deb-src /p' /etc/apt/sources.list >/etc/apt/sources.list.d/sources.list
apt-get update -q
apt-get install -y -q --no-install-recommends gcc gettext libc6-dev libcurl4-gnutls-dev libglib2.0-dev libgnutls28-dev libjson-c-dev \
  libpciaccess-dev libtirpc-dev libudev-dev libxml2-dev libxml2-utils meson ninja-build patch pkgconf python3-docutils rpcsvc-proto xsltproc xz-utils

# Archives without their signatures, which not all mirrors have; apt checks the sums.
mkdir /source
cd /source
version=$(dpkg-query -W -f '${Version}' libvirt-daemon-system)
apt-get source -q --download-only --tar-only "libvirt=$version"
apt-get source -q --download-only --diff-only "libvirt=$version"
tar --strip-components=1 -xJf libvirt_*.orig.tar.xz
tar -xJf libvirt_*.debian.tar.xz
while read -r name; do
  case $name in '' | '#'*) ;; *) patch -p1 -s <"debian/patches/$name" ;; esac
done <debian/patches/series

libraries=/usr/lib/$(gcc -print-multiarch)
meson setup build --prefix=/usr --sysconfdir=/etc --localstatedir=/var --libdir="$libraries" --libexecdir=/usr/lib/libvirt \
  -Drunstatedir=/run -Dunitdir=/usr/lib/systemd/system -Dinit_script=systemd -Dremote_default_mode=legacy -Dsystem=false -Dno_git=true \
  -Dauto_features=disabled -Dqemu_user=libvirt-qemu -Dqemu_group=libvirt-qemu -Ddriver_remote=enabled -Ddriver_libvirtd=enabled \
  -Ddriver_qemu=enabled -Ddriver_network=enabled -Ddriver_secrets=enabled -Dstorage_dir=enabled -Djson_c=enabled -Dpolkit=enabled \
  -Dudev=enabled -Dpciaccess=enabled
mkdir -p /modular/usr/sbin /modular/usr/lib/systemd/system
targets=$(ninja -C build -t targets all)
objects() { grep -o "^src/$1\.p/[^:]*\.o" <<<"$targets"; }
# shellcheck disable=SC2046 # the names have no spaces
ninja -C build src/admin/libvirt_admin_driver.a $(for daemon in "${daemons[@]}"; do objects "$daemon"; done)
cd build
for daemon in "${daemons[@]}"; do
  # shellcheck disable=SC2046 # nor have these
  gcc -o "/modular/usr/sbin/$daemon" -pie -Wl,-z,defs -Wl,-export-dynamic -Wl,--start-group $(objects "$daemon") \
    src/admin/libvirt_admin_driver.a "$libraries"/libvirt{,-lxc,-qemu}.so.0 \
    $(pkg-config --libs gnutls glib-2.0 gobject-2.0 gio-2.0 libxml-2.0 libtirpc) -Wl,--end-group
  cp src/"$daemon"{.service,.socket,-ro.socket,-admin.socket} /modular/usr/lib/systemd/system/
done
