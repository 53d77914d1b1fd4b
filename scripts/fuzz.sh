#!/usr/bin/env bash
# Builds the fuzzers and runs each for a while: fuzz.sh [SECONDS] [NAME...]
# New inputs go to build/fuzz/corpus/NAME; a crash file stays in build/fuzz.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

seconds=${1:-60}
shift $(($# > 0 ? 1 : 0))
names=("$@")
if [ ${#names[@]} -eq 0 ]; then
  for source in tests/fuzz/fuzz_*.c; do
    name=${source##*/fuzz_}
    names+=("${name%.c}")
  done
fi

bash scripts/build.sh fuzz
for name in "${names[@]}"; do
  seeds=tests/fuzz/corpus/$name
  [ -d "$seeds" ] || seeds=tests/fuzz/corpus
  mkdir -p "build/fuzz/corpus/$name"
  echo "fuzz: $name for $seconds s" >&2
  "build/fuzz/tests/fuzz_$name" -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=10 -print_final_stats=1 \
    -artifact_prefix=build/fuzz/ "build/fuzz/corpus/$name" "$seeds"
done
