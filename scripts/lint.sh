#!/usr/bin/env bash
# Style and static checks of everything; lint.sh --fix formats the C files.
# Needs `setup.sh test` and a configured build/wasm (for clang-tidy).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

failed=0
check() { # check NAME COMMAND...
  local name=$1
  shift
  echo "lint: $name" >&2
  "$@" || {
    echo "lint: $name FAILED" >&2
    failed=1
  }
}

mapfile -t c_files < <(find src wasm tests -name '*.[ch]' -not -path '*/node_modules/*' | sort)
if [ "${1:-}" = --fix ]; then
  clang-format-22 -i "${c_files[@]}"
  exit
fi

format() {
  local log files
  log=$(clang-format-22 --dry-run -Werror "${c_files[@]}" 2>&1) && return
  mapfile -t files < <(sed -nE 's/^([^:]+):[0-9]+:[0-9]+: error: code should be clang-formatted.*/\1/p' <<<"$log" | sort -u)
  [ ${#files[@]} -gt 0 ] || echo "$log"
  printf '%s is not formatted: bash scripts/lint.sh --fix\n' "${files[@]}"
  return 1
}

tidy() {
  [ -e build/wasm/build.ninja ] || cmake --preset wasm >/dev/null
  local log=build/wasm/clang-tidy.log
  if ! run-clang-tidy-22 -quiet -p build/wasm -j "$(nproc)" "$PWD/src/.*\.c$" >"$log" 2>&1; then
    grep -E -A6 '(warning|error):' "$log" || tail -n 40 "$log"
    return 1
  fi
}

check clang-format format
check clang-tidy tidy
check eslint node_modules/.bin/eslint --max-warnings=0 .
check tsc node_modules/.bin/tsc --project tsconfig.json
check publint node_modules/.bin/publint --strict
exit $failed
