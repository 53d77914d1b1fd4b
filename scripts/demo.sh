#!/usr/bin/env bash
# Builds the modules and lets the bundled model continue a text. Arguments are
# passed on to `lineal generate` and win over the ones below.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

phase() { echo "demo: $*"; }

phase "1 of 3: compiler and packages (minutes on a fresh machine, which downloads them; else no time)"
bash scripts/setup.sh build

phase "2 of 3: building the engine (one to three minutes the first time; then only what has changed)"
mkdir -p build
if [ -t 1 ]; then
  bash scripts/build.sh modules # its own progress
elif ! bash scripts/build.sh modules >build/demo.log 2>&1; then
  cat build/demo.log >&2
  exit 1
fi

phase "3 of 3: generating text (a second)"
model=web/models/kjv-2.6m-Q4_K_M.gguf
echo "\$ lineal generate $model --prompt \"In the beginning\" --max-tokens 64 --stats $*"
node js-glue/cli.js generate "$model" --prompt "In the beginning" --max-tokens 64 --stats "$@"
cat <<TEXT

That ran in WebAssembly under Node. For the same in a browser:
  npm run web        and open the address that it prints
For what the engine decides about a model, before it loads a weight:
  node js-glue/cli.js explain $model
TEXT
