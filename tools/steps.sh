# SPDX-License-Identifier: Apache-2.0
#
# steps.sh is sourced by .ci/run and tools/nightly.sh: each of their steps runs, also after one that failed, and at the end there is
# a table of their times beside their budgets, which are for two idle processors.

TIMEFORMAT='%0R %0U %0S'
table='' failed='' late=''

# step NAME BUDGET COMMAND...: runs a command. The budget is in seconds; a step that takes half as much again is named at the end.
step() {
  local name=$1 budget=$2 status=passed times wall user system
  shift 2
  printf '\n--- %s: %s\n' "$name" "$*"
  exec 3>&1 4>&2
  times=$({ time "$@" >&3 2>&4; } 2>&1) || { status=FAILED; failed+=" $name"; }
  exec 3>&- 4>&-
  read -r wall user system <<<"$(tail -n 1 <<<"$times")"
  table+=$(printf '%-18s %6d s %6d s %6d s   %s' "$name" "$wall" $((user + system)) "$budget" "$status")$'\n'
  [ $((wall * 2)) -le $((budget * 3)) ] || late+=" $name"
}

# beside FUNCTION: runs the steps of a function while those run that follow: what waits leaves the processors to the others.
beside() {
  rm -f ".run/$1.result"
  (
    table='' failed='' late=''
    "$1" >".run/$1.log" 2>&1
    printf 'table+=%q failed+=%q late+=%q\n' "$table" "$failed" "$late" >".run/$1.result"
  ) &
}

# joined FUNCTION: waits for the steps that run beside, and prints what they have printed.
joined() {
  wait
  cat ".run/$1.log"
  # shellcheck source=/dev/null
  . ".run/$1.result" || failed+=" $1"
}

# summary: prints the table and the report of test/gate, and returns whether all steps passed.
summary() {
  printf '\n%-18s %8s %8s %8s\n%s' step wall CPU budget "$table"
  printf 'in all: %d min %d s of wall time\n\n' $((SECONDS / 60)) $((SECONDS % 60))
  [ ! -e "$TEST_REPORT" ] || go run ./test/gate -summary
  for name in $late; do echo "WARNING: the step $name took more than one and a half times its budget."; done
  [ -z "$failed" ] || { echo "FAILED:$failed"; return 1; }
  echo "All steps passed."
}
