#!/usr/bin/env bash
# Builds everything, then runs every check. Everything that can run does run;
# the exit status says whether all of it passed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash scripts/build.sh all

failed=()
step() { # step NAME COMMAND...
  local name=$1 start=$SECONDS
  shift
  echo "test: $name" >&2
  "$@" || failed+=("$name")
  echo "test: $name took $((SECONDS - start)) s" >&2
}

# A file that hangs is ended by the limit instead of hanging the run.
node_test=(timeout --kill-after=10 1500 node --test --test-reporter=spec --test-timeout=600000)

# The tests of one kind, or nothing at all while there are none.
node_tests() { # node_tests FOLDER CONCURRENCY
  local files=()
  mapfile -t files < <(find "tests/$1" -name '*.test.mjs' 2>/dev/null | sort)
  if [ ${#files[@]} -eq 0 ]; then
    echo "test: tests/$1 has no tests" >&2
    return 1
  fi
  "${node_test[@]}" --test-concurrency="$2" "${files[@]}"
}

step lint bash scripts/lint.sh
step native ctest --preset native
step node node_tests node "$(nproc)"
step browser node_tests browser 1

if [ ${#failed[@]} -gt 0 ]; then
  echo "test: FAILED: ${failed[*]}" >&2
  exit 1
fi
