#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# nightly.sh: everything in full: all database engines, new seeds, storms, soaks, histories, fuzzing, mutants, other distributions.
# A release needs it. It takes hours. A seed that fails is repeated with TEST_SEED or RAPID_SEED; what rapid has found is also in
# testdata/rapid of its package, where the gate runs it from then on: commit it with the fix.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
export CI=true TEST_REPORT=$PWD/.run/report TEST_TIER=nightly
export TEST_SEED=${TEST_SEED:-$((RANDOM * 32768 + RANDOM))} RAPID_SEED=${RAPID_SEED:-$((RANDOM * 32768 + RANDOM + 1))} RAPID_CHECKS=${RAPID_CHECKS:-500}
echo "Seeds of this run: TEST_SEED=$TEST_SEED RAPID_SEED=$RAPID_SEED RAPID_CHECKS=$RAPID_CHECKS"
mkdir -p .run
rm -f "$TEST_REPORT"
. tools/steps.sh

make() { command make --no-print-directory "$@"; }
step lint 120 make lint
step generated 15 make generated
step vulncheck 120 make vulncheck
step test 3600 make test RACE=1
step race 3600 make race
step test-real 3600 make test-real DATABASE=mariadb
for engine in postgresql sqlite; do step "$engine" 1800 make test-suites DATABASE=$engine; done
step databases 3600 make test-databases
step test-install 1200 make test-install ALL=1
for distribution in debian-13 ubuntu-24.04; do step "$distribution" 600 make test-systemd DISTRIBUTION=$distribution; done
step modular-daemons 900 make test-systemd DISTRIBUTION=debian-13 RUN='^TestModularDaemons$'
step apparmor 900 make test-systemd DISTRIBUTION=debian-13 RUN='^TestAppArmor$'
step fresh-machine 3600 make test-systemd RUN='^TestFreshMachine$'
if [ -n "${CONFORMANCE:-}" ]; then step conformance 300 make conformance; fi
step oracle 900 make oracle
step soak 3600 make soak SEED="$TEST_SEED"
step faults 1800 make faults
step races 1800 make races
for engine in mariadb postgresql; do step "storm-$engine" 900 make storm-cells STORM=TestSharedStorm DATABASE=$engine SEED="$TEST_SEED"; done
step storm 900 make storm-cells SEED="$TEST_SEED"
step load-cells 900 make load-cells
step fuzz 3600 make fuzz
step mutants 7200 make mutants
summary
