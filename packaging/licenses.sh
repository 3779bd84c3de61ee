#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# licenses.sh: prints the licenses of the modules that are linked into the programs, and that of Go.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C
print() {
  local found=
  for file in "$2"/LICEN[CS]E* "$2"/COPYING* "$2"/NOTICE*; do
    [ -f "$file" ] || continue
    found=yes
    printf '==== %s: %s\n\n' "$1" "${file##*/}"
    cat "$file"
    printf '\n'
  done
  [ -n "$found" ] || { echo "licenses.sh: $1 has no license in $2" >&2; exit 1; }
}
go list -tags libvirt_dlopen -deps -f '{{with .Module}}{{if not (or .Main .Replace)}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' ./cmd/compute-agent ./cmd/compute-driver-test ./cmd/compute-driver-libvirt |
  sort -u | while read -r path version dir; do print "$path $version" "$dir"; done
goroot=$(go env GOROOT)
[ -f "$goroot/LICENSE" ] || goroot=/usr/share/doc/golang
if [ -f "$goroot/LICENSE" ]; then print "$(go env GOVERSION)" "$goroot"; fi
