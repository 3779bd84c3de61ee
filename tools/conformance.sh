#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# conformance.sh DIR: runs Placement's own API cases against bin/compute-agent. DIR holds them and their runner
# (run_gabbits.py, serve_ours.sh, gabbits/). One file at a time: with several, the runner's pool of processes can wait for itself
# at the end.
set -euo pipefail
dir=${1:?usage: conformance.sh DIR}
dir=$(cd "$dir" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
"$here/packages.sh" conformance
exec /usr/bin/python3 "$dir/run_gabbits.py" --gabbits "$dir/gabbits" --prose relaxed -j 1 \
  --server-cmd "$dir/serve_ours.sh $here/../bin/compute-agent {port} {state}"
