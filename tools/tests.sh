#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tests.sh TIER [GO TEST FLAGS]: runs the tests of a tier with test/gate; CONTRIBUTING.md describes the tiers.
#
#   pure              what needs no server, in some minutes; with RACE=1, packages that start goroutines under the race detector
#   race              all of what is pure, but for cgo, under the race detector
#   real              binaries, real servers and real clients, and the suites on the database engine DATABASE
#   suites            the suites of Placement and the cells on DATABASE
#   databases         the long tests with database servers
#
# A test says by its name to which tier it belongs, if that is not the tier of its package: TestReal…, TestDatabases… and
# TestNightly….
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(go env GOWORK)" != off ] || { echo "tests.sh: GOWORK=off leaves out modules of this repository: unset it" >&2; exit 1; }

# Packages of which all tests are of the tier real.
whole='./test/adversary ./test/cellstorm ./test/dbservers ./test/demo ./test/e2e ./test/fleet ./test/observability ./test/oracle ./test/outage ./test/soak'
elsewhere='^Test(Real|Databases|Nightly)|/^(mariadb|postgresql)$'

# Packages whose suites use a database through other packages, which have suites of their own.
users='./cells/cell ./cells/compute ./placement/api'

# without PACKAGES: takes packages out of standard input.
without() { grep -vxF "$(printf '%s\n' $*)" || true; }
# declaring PATTERN: packages with a test file that has a pattern, but for those that are of the tier real as a whole.
declaring() { git grep -lE "$1" -- '*_test.go' ':!test/conformance' | xargs -rn1 dirname | sort -u | sed 's,^,./,' | without $whole; }
packages() { go list -f '{{.Dir}}' work | sed "s,^$PWD,.,"; }
# drawn: takes out of standard input half of the users, by TEST_DRAW, as testproc.Drawn does with tests.
drawn() {
  local package
  while read -r package; do
    if [ -n "${TEST_DRAW:-}" ] && [ "${TEST_TIER:-}" != nightly ] && grep -qxF "$package" <<<"${users// /$'\n'}" &&
      [ $((0x$(sha256sum <<<"$TEST_DRAW $package" | cut -c 1-7) % 2)) = 1 ]; then
      echo "The suite of $package on $DATABASE is left to other commits." >&2
      continue
    fi
    echo "$package"
  done
}
# racy: packages of the agent and the servers that start goroutines, themselves or through cells/gather, but for those whose tests are mostly
# processes of their own. A package without tests has them in the one above. That of the sandbox has unsafe pointers.
racy() {
  local package
  git grep -lE '^[[:space:]]*go (func\(|[a-zA-Z_.]+\()|\.Go\(|time\.AfterFunc|/cells/gather"|unsafe\.Pointer' -- '*.go' ':!*_test.go' ':!test' ':!cmd' ':!drivers/libvirt' ':!plugins/drivertest' |
    xargs -n1 dirname | sort -u | while read -r package; do
    until compgen -G "$package/*_test.go" >/dev/null || [ "$package" = . ]; do package=$(dirname "$package"); done
    echo "./$package"
  done | sort -u
}

# What make build has built is tested.
export TEST_BINARIES=$PWD/bin
# SQLite and the arithmetic of TLS are not ours to look for races in: they take most of the time. No module with generic functions of
# other packages may be here, as go-cmp and rapid: the linker takes one copy of sync.Map, and one that the detector does not see makes
# races of what has none. What -race also checks, that unsafe pointers point to where they may, is checked where we have such.
race=(-race '-gcflags=all=-d=checkptr=0' '-gcflags=github.com/compute-agent/compute-agent/...='
  '-gcflags=modernc.org/...=-race=false' '-gcflags=crypto/internal/fips140/...=-race=false')
running=()
set -m # each of what runs in the background has a process group, by which it is ended
trap 'for pid in "${running[@]}"; do kill -- "-$pid" 2>/dev/null || true; done' INT TERM HUP
# gate FLAGS -- PACKAGES: runs go test beside the others, whose tests share the machine with its own (testproc.Parallel).
gate() {
  local flags=()
  while [ "$1" != -- ]; do flags+=("$1"); shift; done
  shift
  go run ./test/gate "$@" -- -tags libvirt_dlopen -vet=off -parallel 64 ${CI:+-count=1} "${flags[@]}" &
  running+=($!)
}
# passed: waits for all, and reports whether their tests passed.
passed() {
  local ok=yes pid
  for pid in "${running[@]}"; do wait "$pid" || ok=; done
  [ -n "$ok" ]
}

tier=${1:-}
shift || true
case $tier in
real | suites) # one server of each kind for all packages
  [ -n "${TEST_SERVICES:-}" ] || exec go run ./test/services tools/tests.sh "$tier" "$@"
  ;;
esac
beside=$(($(nproc) + 1)) # many tests wait for processes
case $tier in
pure)
  racy=
  [ -z "${RACE:-}" ] || racy=$(racy)
  gate -p $beside -timeout 30m -skip "$elsewhere" "$@" -- $(packages | without $whole $racy)
  # What a property draws differs in values and not in what runs beside what; on a database server it takes as long.
  [ -z "$racy" ] || RAPID_CHECKS=${RAPID_CHECKS:-25} gate "${race[@]}" -p "$(nproc)" -timeout 40m -skip "$elsewhere" "$@" -- $racy
  ;;
race)
  gate "${race[@]}" -p "$(nproc)" -timeout 40m -skip "$elsewhere" "$@" -- $(packages | without $whole | grep -v ./drivers/libvirt)
  ;;
real)
  export TEST_DATABASE=${DATABASE:?}
  # Flags name tests that must run, and what is not committed yet may be any of them.
  if [ $# -gt 0 ] || ! git diff --quiet HEAD; then export TEST_DRAW=; else export TEST_DRAW=${TEST_DRAW-$(git rev-parse HEAD)}; fi
  gate -p $beside -timeout 40m "$@" -- $whole
  gate -p $beside -timeout 40m -run '^Test(Real|Databases)' "$@" -- $(declaring '^func Test(Real|Databases)')
  ;;&
real | suites)
  RAPID_CHECKS=${RAPID_CHECKS:-25} gate -p $((2 * $(nproc))) -timeout 40m -skip '^Test(Real|Databases|Nightly)' "$@" -args -database="${DATABASE:?}" -- $(declaring '(dbservers|emplate)\.(Fresh|Each)\(' | without ./cmd/compute-agent ./placement | drawn)
  ;;
databases)
  gate -p 2 -timeout 60m -count=1 -run '^TestDatabases' "$@" -args -databases -- $(declaring 'dbservers\.Long\(') ./test/e2e ./test/soak ./test/dbservers
  ;;
*)
  echo "usage: tests.sh pure|race|real|suites|databases [GO TEST FLAGS]" >&2
  exit 64
  ;;
esac
passed
