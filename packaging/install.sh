#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# install.sh list|install|uninstall [DESTDIR]: reads packaging/files, from the top of the sources.
#
# list prints one line per file: package, for, kind, mode, destination, source. install copies the files that are the same
# everywhere, and keeps configuration files that exist. uninstall removes them, but for configuration files.
set -eu
cd "$(dirname "$0")/.."
destdir=${2:-}

list() {
  sed "s/@PYTHON@/${PYTHON_ABI:-3.13}/" packaging/files | while read -r package for kind mode to from; do
    case $package in '' | '#'*) continue ;; esac
    found=
    for source in $from; do
      [ -e "$source" ] || continue
      found=yes
      case $to in
      */) echo "$package $for $kind $mode $to${source##*/} $source" ;;
      *) echo "$package $for $kind $mode $to $source" ;;
      esac
    done
    [ -n "$found" ] || [ "$kind" = generated ] || { echo "install.sh: packaging/files names $from, which does not exist; run: make build" >&2; exit 1; }
  done
}

case "${1:-}" in
list) list ;;
install | uninstall)
  files=$(list)
  echo "$files" | while read -r package for kind mode to from; do
    # The Python SDK goes where each distribution has its Python.
    if [ "$for" != both ] || [ "$package" = python3-compute-driver ]; then continue; fi
    if [ "$1" = uninstall ]; then
      [ "$kind" = config ] || rm -f "$destdir$to"
    elif [ "$kind" != config ] || [ ! -e "$destdir$to" ]; then
      install -D -m "$mode" "$from" "$destdir$to"
    fi
  done
  ;;
*)
  echo "usage: install.sh list|install|uninstall [DESTDIR]" >&2
  exit 64
  ;;
esac
