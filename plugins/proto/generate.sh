#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# generate.sh [--check]: generates the Go code of the plugin protocol from its .proto file. The result is committed; run
# this after a change of the protocol, and never change a version of it that was released. With --check nothing is
# written: it fails when the committed code is not what the .proto file gives.
#
# Needs: protoc (Debian package protobuf-compiler) and Go. The two protoc plugins are pinned in tools/go.mod.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"

command -v protoc >/dev/null || {
    echo "generate.sh: protoc is missing; install it with: apt-get install protobuf-compiler" >&2
    exit 1
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for plugin in protoc-gen-go protoc-gen-go-grpc; do
    printf '#!/bin/sh\nexec "%s/tools/tool.sh" %s "$@"\n' "$root" "$plugin" >"$work/$plugin"
    chmod 0755 "$work/$plugin"
done

out=.
[ "${1:-}" != --check ] || out=$work
PATH="$work:$PATH" protoc \
    --go_out="$out" --go_opt=paths=source_relative \
    --go-grpc_out="$out" --go-grpc_opt=paths=source_relative \
    plugins/proto/driver/v1/driver.proto

[ "${1:-}" = --check ] || exit 0
for file in driver.pb.go driver_grpc.pb.go; do # the version of protoc, which is the machine's, does not count
    diff -u -I '^// [-	]* *protoc  *v' "plugins/proto/driver/v1/$file" "$work/plugins/proto/driver/v1/$file" || {
        echo "generate.sh: $file is not what driver.proto gives; run plugins/proto/generate.sh" >&2
        exit 1
    }
done
