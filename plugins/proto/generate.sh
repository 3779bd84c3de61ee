#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Generates the Go code of the plugin protocol from its .proto file. The result is committed; run this after a change of
# the protocol, and never change a version of it that was released.
#
# Needs: protoc (Debian package protobuf-compiler) and Go. The two protoc plugins are pinned in tools/go.mod.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"

command -v protoc >/dev/null || {
    echo "generate.sh: protoc is missing; install it with: apt-get install protobuf-compiler" >&2
    exit 1
}

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
for plugin in protoc-gen-go protoc-gen-go-grpc; do
    printf '#!/bin/sh\nexec go tool -modfile="%s/tools/go.mod" %s "$@"\n' "$root" "$plugin" >"$bin/$plugin"
    chmod 0755 "$bin/$plugin"
done

PATH="$bin:$PATH" protoc \
    --go_out=. --go_opt=paths=source_relative \
    --go-grpc_out=. --go-grpc_opt=paths=source_relative \
    plugins/proto/driver/v1/driver.proto
