#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# reproduce.sh OUT: releases HEAD with a key of its own from one directory, builds it again in another one, and compares the two:
# every byte has to be the same. The release is in OUT afterwards.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "${1:?usage: reproduce.sh OUT}")
work=$(mktemp -d)
export GNUPGHOME=$work/gnupg
end() {
  gpgconf --kill all || true
  rm -rf "$work"
}
trap end EXIT
failed=0
fail() { echo "FAIL: $*" >&2; failed=1; }
# logged LOG COMMAND...: shows the output of a command that fails.
logged() { local log=$work/$1.log; shift; "$@" >"$log" 2>&1 || { cat "$log" >&2; return 1; }; }

install -d -m 700 "$GNUPGHOME"
logged key gpg --batch --passphrase '' --quick-generate-key 'Test of the release <test@localhost>' ed25519 sign never
for n in 1 2; do
  git clone -q --no-hardlinks . "$work/build$n/compute-agent"
  (
    cd "$work/build$n/compute-agent"
    packaging/release.sh modules v1.98.0-rc.1
    date=$(git log -1 --format=%cI)
    GIT_AUTHOR_DATE=$date GIT_COMMITTER_DATE=$date git -c user.name=test -c user.email=test@localhost -c commit.gpgsign=false commit -qam 'release'
    git -c tag.gpgsign=false tag v1.98.0-rc.1
    for module in $(sed -n 's,^\t\./,,p' go.work); do git -c tag.gpgsign=false tag "$module/v1.98.0-rc.1"; done
  )
done
make() { command make --no-print-directory "$@"; }
if logged unsigned make -C "$work/build1/compute-agent" release 2>/dev/null; then fail "make release works without a key"; fi
logged build make -C "$work/build2/compute-agent" packages image &
logged release make -C "$work/build1/compute-agent" release GPG_KEY=test@localhost || { wait; exit 1; }
dist=$work/build1/compute-agent/dist
(cd "$dist" && logged verify gpg --verify SHA256SUMS.asc SHA256SUMS && logged sums sha256sum --check --strict SHA256SUMS) || fail "the signature or a digest of the release"
[ "$(wc -l <"$dist/SHA256SUMS")" = 16 ] || fail "not six deb and six rpm packages, an image and three SBOMs: $(ls "$dist")"
for program in compute-agent compute-driver-test compute-driver-libvirt; do
  for module in github.com/compute-agent/compute-agent "$(go version -m "$work/build1/compute-agent/bin/$program" | awk '$1 == "dep" && $2 !~ /compute-agent/ { print $2; exit }')"; do
    jq -e --arg path "$module" '[.metadata.component, .components[]] | any(.name == $path and .version != "" and .version != null)' "$dist/$program.cdx.json" >/dev/null ||
      fail "$program.cdx.json does not have $module"
  done
  if grep -qF '(devel)' "$dist/$program.cdx.json"; then fail "$program.cdx.json has a module without the version of the release"; fi
done

wait $! || exit 1
for file in "$work/build2/compute-agent/dist"/*; do
  cmp "$file" "$dist/${file##*/}" || fail "two builds of the same commit differ"
done
[ "$failed" = 0 ] || exit 1
rm -rf "$out"
mkdir -p "$(dirname "$out")"
mv "$dist" "$out"
