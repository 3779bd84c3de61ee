#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# release.sh modules VERSION: writes the version into the requirements of the modules on each other, for a commit that is tagged.
# release.sh check|sign GPG_KEY: check refuses what is no release before anything is built; sign writes what is inside the programs, the
# digests and their signature to dist.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C
key=${2:-}
case "${1:-}" in
check)
  [ -n "$key" ] || { echo "release: no key signs it: make release GPG_KEY=KEY (gpg --list-secret-keys shows yours)" >&2; exit 64; }
  gpg --batch --list-secret-keys "$key" >/dev/null 2>&1 || { echo "release: gpg has no secret key $key; gpg --list-secret-keys shows those it has" >&2; exit 1; }
  [ -z "$(git status --porcelain)" ] || { echo "release: there are changes that are not committed; git status shows them" >&2; exit 1; }
  version=$(packaging/version.sh)
  case $version in
  0.0.0~git* | *+*) echo "release: HEAD is $version and has no tag: git tag -s v1.2.3" >&2; exit 1 ;;
  esac
  tag=v$(echo "$version" | tr '~' -)
  for module in $(sed -n 's,^\t\./,,p' go.work); do
    [ "$(git rev-parse -q --verify "$module/$tag^{commit}")" = "$(git rev-parse HEAD)" ] ||
      { echo "release: HEAD has no tag $module/$tag: packaging/release.sh modules $tag, commit, then git tag -s $module/$tag" >&2; exit 1; }
    for file in go.mod */go.mod */*/go.mod; do
      if grep -q "/$module v" "$file" && ! grep -qE "/$module $tag( //.*)?\$" "$file"; then
        echo "release: $file requires another version of $module than $tag: packaging/release.sh modules $tag, then commit" >&2
        exit 1
      fi
    done
  done
  ;;
modules)
  case ${2:?usage: release.sh modules v1.2.3} in
  v0.* | v1.*) ;;
  *) echo "release: $2 is no version of the modules, which have v0 or v1: Go wants later ones in their paths" >&2; exit 1 ;;
  esac
  # Each module requires the others of the repository at the version of the release.
  for file in go.mod $(sed -n 's,^\t\./\(.*\),\1/go.mod,p' go.work); do
    sed -i -E "s,^(\tgithub\.com/compute-agent/compute-agent/[^ ]+) v[^ ]+,\1 $2," "$file"
  done
  ;;
sign)
  version=$(packaging/version.sh)
  for program in compute-agent compute-driver-test compute-driver-libvirt; do
    tools/tool.sh cyclonedx-gomod bin -json -noserial -notimestamp -version "$version" -output "dist/$program.cdx.json" "bin/$program" 2>dist/.log ||
      { cat dist/.log >&2; exit 1; }
    sed -i "s/(devel)/v${version/\~/-}/g" "dist/$program.cdx.json" # the other modules of the repository, as Go calls what it builds in a workspace
  done
  rm -f dist/.log dist/SHA256SUMS dist/SHA256SUMS.asc
  (cd dist && sha256sum -- * >../.run/SHA256SUMS && mv ../.run/SHA256SUMS .)
  gpg --batch --yes --local-user "$key" --armor --detach-sign --output dist/SHA256SUMS.asc dist/SHA256SUMS
  echo "dist has the release $version. To check it: gpg --verify SHA256SUMS.asc SHA256SUMS && sha256sum --check SHA256SUMS"
  ;;
*)
  echo "usage: release.sh modules VERSION, or check|sign GPG_KEY" >&2
  exit 64
  ;;
esac
