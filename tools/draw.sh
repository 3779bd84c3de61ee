#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# draw.sh WORD...: prints one of the words, which follows from the hash of the commit: always the same one for a commit.
set -eu
[ $# -gt 0 ] || { echo "usage: draw.sh WORD..." >&2; exit 64; }
hash=$(git rev-parse HEAD | cut -c1-7)
shift $((0x$hash % $#))
echo "$1"
