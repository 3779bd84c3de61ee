#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# previous.sh OUT: puts deb packages of the release before this one in OUT, for tests of upgrades. That release had none: the
# programs, units and configuration are its own, and how they are packaged is what packaging has now. They are made once, and kept
# in the user's cache until packaging changes.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "${1:?usage: previous.sh OUT}")
commit=$(sed -n 's/^const previous = "\([0-9a-f]*\)"$/\1/p' test/testproc/binaries.go)
git cat-file -e "$commit^{commit}" 2>/dev/null || { echo "previous.sh: no commit $commit; in a shallow clone, run: git fetch --unshallow" >&2; exit 1; }

cache=${XDG_CACHE_HOME:-$HOME/.cache}/compute-agent-packages
key=$(cat packaging/files packaging/*.yaml packaging/{build,install,previous}.sh packaging/scripts/* packaging/lintian/* tools/go.mod | sha256sum | head -c 12)
made=$cache/previous-${commit:0:12}-$key
mkdir -p "$cache"
exec 9>"$cache/previous.lock"
flock 9
if [ ! -d "$made" ]; then
  rm -rf "$cache"/previous-*
  source=$cache/previous.part
  mkdir -p "$source"
  git archive "$commit" | tar -x -C "$source"
  rm -rf "$source/packaging" "$source/tools"
  cp -R packaging tools "$source/"
  GOWORK=off make --no-print-directory -C "$source" build VERSION=v0.2.0
  while read -r package for kind mode to from; do
    [ "$kind" = generated ] || compgen -G "$source/$from" >/dev/null || continue
    echo "$package $for $kind $mode $to $from"
  done < <(grep -v '^#' packaging/files) >"$source/packaging/files"
  COMPRESSION=gzip PACKAGERS=deb SOURCE_DATE_EPOCH=$(git log -1 --format=%ct "$commit") "$source/packaging/build.sh" "$source/dist" 0.2.0
  mv "$source/dist" "$made"
  rm -rf "$source"
fi
rm -rf "$out"
mkdir -p "$out"
cp "$made"/*.deb "$out/"
