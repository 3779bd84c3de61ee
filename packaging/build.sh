#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# build.sh OUT [VERSION]: makes the deb and rpm packages in OUT from what `make build manual sdk` made. The same commit gives the
# same bytes: all times are that of the commit (SOURCE_DATE_EPOCH). PACKAGERS=deb makes no rpm packages, and COMPRESSION=gzip
# makes larger ones sooner, for tests.
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022
export TZ=UTC LC_ALL=C
out=$(realpath -m "${1:?usage: build.sh OUT [VERSION]}")
version=${2:-$(packaging/version.sh)}
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export PYTHON_ABI=${PYTHON_ABI:-3.13}
maintainer=${MAINTAINER:-The compute-agent authors <compute-agent@users.noreply.github.com>}
libc=2.34
compression=${COMPRESSION:-xz}
work=.run/packages
rm -rf "$work"
mkdir -p "$work" "$out"
rm -f "$out"/*.deb "$out"/*.rpm

newest=$({ echo "GLIBC_$libc"; objdump -T bin/compute-driver-libvirt | grep -o 'GLIBC_[0-9.]*'; } | sort -uV | tail -1)
[ "$newest" = "GLIBC_$libc" ] || { echo "build.sh: compute-driver-libvirt needs $newest; packages say $libc" >&2; exit 1; }

files=$(packaging/install.sh list)

# fill PACKAGE TEMPLATE: a script of the package, from what its services need.
fill() {
  local setup=: purge=: restart= units=
  case $1 in
  compute-agent-common)
    setup='if command -v systemd-sysusers >/dev/null; then systemd-sysusers compute-agent.conf; fi
  if command -v systemd-tmpfiles >/dev/null; then systemd-tmpfiles --create compute-agent.conf || true; fi'
    purge='for dir in /etc/compute-agent/conf.d /etc/compute-agent/credentials /etc/compute-agent /var/lib/compute-agent-images /var/lib/compute-agent-instances; do
    [ ! -d "$dir" ] || rmdir --ignore-fail-on-non-empty "$dir" || true
  done'
    ;;
  compute-agent) units=compute-agent.service purge='rm -rf /var/lib/compute-agent' ;;
  compute-agent-driver-libvirt)
    units=compute-agent-domain-capabilities.service
    restart=compute-agent.service
    ;;
  compute-agent-placement) units='compute-agent-placement.socket compute-agent-placement.service' purge='rm -rf /var/lib/compute-agent-placement' ;;
  compute-agent-cells)
    units='compute-agent-cells-api.service compute-agent-cell@.service'
    purge='rm -rf /var/lib/compute-agent-cells-api
  find /var/lib -maxdepth 1 -name "compute-agent-cell-*" -type d -exec rm -rf {} +'
    ;;
  esac
  # Instances of a template; and a socket is not restarted, so that it stays open.
  local stop=${units//@.service/@*.service}
  [ -n "$restart" ] || for unit in $stop; do case $unit in *.service) restart="$restart $unit" ;; esac; done
  SETUP=$setup PURGE=$purge RESTART=$(quoted $restart) UNITS=$units STOP=$(quoted $stop) perl -pe 's/@([A-Z]+)@/$ENV{$1}/g' "packaging/scripts/$2"
}
quoted() { set -f; for unit in "$@"; do printf "'%s' " "$unit"; done | sed 's/ $//'; set +f; }

changelog() {
  printf '%s (%s) unstable; urgency=medium\n\n  * Release %s.\n    CHANGELOG.md of the sources has the changes.\n\n -- %s  %s\n' \
    "$1" "$version" "$version" "$maintainer" "$(date -Rud "@$SOURCE_DATE_EPOCH")"
}

copyright() {
  cat <<END
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: compute-agent
Source: https://github.com/compute-agent/compute-agent

Files: *
Copyright: $(date -ud "@$SOURCE_DATE_EPOCH" +%Y) The compute-agent authors
License: Apache-2.0
 On Debian systems, the full text of the Apache License 2.0 is in
 /usr/share/common-licenses/Apache-2.0.
Comment:
 The programs contain Go modules of others. Their licenses are in
 /usr/share/doc/compute-agent-common/third-party-licenses.gz.
END
}

# entry SOURCE DESTINATION MODE [TYPE] [PACKAGER]: one of the contents of nfpm.yaml.
entry() {
  printf -- '  - src: "%s"\n    dst: "%s"\n' "$1" "$2"
  [ -z "${4:-}" ] || printf '    type: "%s"\n' "$4"
  [ -z "${5:-}" ] || printf '    packager: "%s"\n' "$5"
  printf '    file_info: {mode: 0%s, owner: root, group: root, mtime: "%s"}\n' "$3" "$(date -ud "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)"
}

arch=$(go env GOARCH)
for config in packaging/*.yaml; do
  package=$(basename "$config" .yaml)
  dir=$work/$package
  mkdir -p "$dir"
  for script in deb-postinst deb-prerm deb-postrm rpm-post rpm-preun rpm-postun rpm-posttrans; do
    fill "$package" "$script" >"$dir/$script"
  done
  if [ "$package" = python3-compute-driver ]; then
    printf '#!/bin/sh\nset -e\nif command -v py3clean >/dev/null; then py3clean -p python3-compute-driver; fi\n' >"$dir/deb-prerm"
    printf '#!/bin/sh\nset -e\nif command -v py3compile >/dev/null; then py3compile -p python3-compute-driver; fi\n' >"$dir/deb-postinst"
  fi
  changelog "$package" | gzip -9n >"$dir/changelog.gz"
  copyright >"$dir/copyright"
  {
    sed -e "s/@VERSION@/$version/g; s/@ARCH@/$arch/g; s/@LIBC@/$libc/g; s/@PYTHON@/$PYTHON_ABI/g" "$config" |
      awk -v dir="$dir" -v package="$package" '
        /^  deb:/ || /^  rpm:/ { family = $1 }
        { print }
        family == "deb:" && /^  deb:/ { scripts("deb") }
        family == "rpm:" && /^  rpm:/ { scripts("rpm") }
        function scripts(f) {
          pre = package == "compute-agent-common" ? "" : ", preremove: \"" dir "/" f (f == "deb" ? "-prerm" : "-preun") "\""
          if (f == "deb") {
            print "    scripts: {postinstall: \"" dir "/deb-postinst\"" pre (package ~ /^python3/ ? "" : ", postremove: \"" dir "/deb-postrm\"") "}"
          } else if (package !~ /^python3/) {
            print "    scripts: {postinstall: \"" dir "/rpm-post\"" pre ", postremove: \"" dir "/rpm-postun\"}"
          }
        }'
    printf 'version: "%s"\nversion_schema: none\nmaintainer: "%s"\nvendor: "The compute-agent authors"\n' "$version" "$maintainer"
    printf 'homepage: "https://github.com/compute-agent/compute-agent"\nplatform: linux\npriority: optional\ndisable_globbing: true\n'
    printf 'mtime: "%s"\n' "$(date -ud "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)"
    printf 'deb: {compression: %s}\nrpm:\n  buildhost: localhost\n  compression: %s\n' "$compression" "$compression"
    case $package in compute-agent-common | python3-*) ;; *) printf '  scripts: {posttrans: "%s"}\n' "$dir/rpm-posttrans" ;; esac
    printf 'contents:\n'
    while read -r of for kind mode to from; do
      [ "$of" = "$package" ] || continue
      [ "$for" != both ] || for=
      type=
      [ "$kind" != config ] || type='config|noreplace'
      entry "$from" "$to" "$mode" "$type" "$for"
    done <<<"$files"
    # dpkg knows the directories of its packages; rpm leaves those that no package lists.
    while read -r directory; do
      printf -- '  - dst: "%s"\n    type: dir\n    packager: rpm\n    file_info: {mode: 0755, owner: root, group: root, mtime: "%s"}\n' "$directory" "$(date -ud "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)"
    done < <(awk -v package="$package" '
      $1 == package && $2 != "deb" { print $5 }
      END { print "/usr/share/licenses/" package "/LICENSE"; print "/usr/share/doc/" package "/CHANGELOG.md" }' <<<"$files" |
      while read -r path; do while path=${path%/*} && [[ $path = */comput* || $path = */python3-compute* ]]; do echo "$path"; done; done | sort -u)
    entry "$dir/copyright" "/usr/share/doc/$package/copyright" 644 '' deb
    entry "$dir/changelog.gz" "/usr/share/doc/$package/changelog.gz" 644 '' deb
    entry LICENSE "/usr/share/licenses/$package/LICENSE" 644 '' rpm
    entry CHANGELOG.md "/usr/share/doc/$package/CHANGELOG.md" 644 '' rpm
    if [ -f "packaging/lintian/$package" ]; then entry "packaging/lintian/$package" "/usr/share/lintian/overrides/$package" 644 '' deb; fi
  } >"$dir/nfpm.yaml"
  cp "$dir/nfpm.yaml" "$dir/deb.yaml"
  { cat "$dir/nfpm.yaml"; echo 'license: Apache-2.0'; } >"$dir/rpm.yaml" # dpkg has no such field
  for packager in ${PACKAGERS:-deb rpm}; do
    tools/tool.sh nfpm package --config "$dir/$packager.yaml" --packager "$packager" --target "$out/" >"$dir/$packager.log" 2>&1 ||
      { cat "$dir/$packager.log" >&2; exit 1; }
  done
done
ls "$out"
