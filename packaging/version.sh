#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# version.sh [DESCRIPTION]: prints the version of the packages, from what `git describe --tags --long` says of HEAD, or from
# DESCRIPTION. dpkg and rpm order these as they follow each other:
#
#   no tag, or not semantic      0.0.0~git20261124031500.0123456789ab (the time is that of the commit)
#   v1.2.0-rc.1                  1.2.0~rc.1
#   v1.2.0                       1.2.0
#   5 commits after v1.2.0       1.2.0+5.g0123456789ab
#
# Changes that are not committed add .dirty.
set -eu
cd "$(dirname "$0")/.."
description=${1:-$(git describe --tags --long --abbrev=12 --dirty=.dirty --match 'v[0-9]*' 2>/dev/null || true)}
if ! echo "$description" | grep -qE '^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?-[0-9]+-g[0-9a-f]+(\.dirty)?$'; then
  dirty=
  git diff --quiet HEAD -- || dirty=.dirty
  echo "0.0.0~git$(TZ=UTC git log -1 --format=%cd --date=format-local:%Y%m%d%H%M%S).$(git rev-parse --short=12 HEAD)$dirty"
  exit
fi
echo "$description" | sed -E '
  s/^v//
  s/-0-g[0-9a-f]+$//; s/-0-g[0-9a-f]+\.dirty$/+dirty/
  s/-([0-9]+)-(g[0-9a-f]+(\.dirty)?)$/+\1.\2/
  s/^([0-9.]+)-/\1~/'
