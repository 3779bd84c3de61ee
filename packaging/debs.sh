#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# debs.sh OUT [all]: makes the packages of make test-install below OUT: those of HEAD in newer, whose version is above that of all
# releases. Those of the previous release, in previous, and a release of HEAD that is built twice, in release, are made with all,
# where the commit's hash says so (one of four), or where what they are made of, a schema, or a test of them has changed: since the
# last tag of a release, or in the last 25 commits where this clone has no tag. With all that release is compressed as a real one,
# which takes minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "${1:?usage: debs.sh OUT [all]}")
since=$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null || git rev-list --max-count=26 HEAD | tail -1)
why=
if [ -n "${2:-}" ]; then why='all were asked for'
elif ! git diff --quiet "$since" HEAD -- 'systemd/debian_upgrade_test.go' 'systemd/debian_packages_test.go' ||
  ! git diff --quiet "$since" HEAD -- packaging systemd '*go.mod' '*go.sum' ':(glob)**/sql/**' ':!*.go'; then why="what they are made of, or a test of them, changed since ${since:0:12}"
elif [ "$(tools/draw.sh yes no no no)" = yes ]; then why="the commit's hash says so"
fi
rm -rf "$out"
COMPRESSION=gzip SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) packaging/build.sh "$out/newer" 99.0.0 >/dev/null
if [ -z "$why" ]; then
  echo 'Not tested for this commit: an upgrade of the previous release, and that a release can be reproduced; make test-install ALL=1 does.'
  exit 0
fi
echo "The previous release is upgraded, and HEAD is released twice, because $why."
packaging/previous.sh "$out/previous" &
[ -n "${2:-}" ] || export COMPRESSION=gzip
packaging/reproduce.sh "$out/release" || { wait; exit 1; }
wait $!
