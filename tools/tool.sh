#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tool.sh NAME ARGUMENTS: runs a tool that tools/go.mod pins. go.work does not join that module, and Go takes
# another go.mod only without a workspace; the tool itself runs in the workspace.
set -euo pipefail
mod=$(dirname "$(realpath "$0")")/go.mod
name=$1
shift
exec "$(GOWORK=off go tool -n -modfile="$mod" "$name")" "$@"
