#!/usr/bin/env bash
# Builds presets of CMakePresets.json: build.sh [wasm|wasi|emscripten|native|fuzz|all]...
# "all" is everything but fuzz; "modules" is of wasm only what the package carries.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

presets=()
for name in "${@:-wasm}"; do
  case $name in
    all) presets+=(wasm wasi emscripten native) ;;
    modules | wasm | wasi | emscripten | native | fuzz) presets+=("$name") ;;
    *)
      echo "build: no preset \"$name\"" >&2
      exit 2
      ;;
  esac
done

for preset in "${presets[@]}"; do
  echo "build: $preset" >&2
  targets=()
  if [ "$preset" = modules ]; then
    preset=wasm
    targets=(--target modules)
  fi
  # In a copy of a clone CMake would go on building the first one's sources.
  cache=build/$preset/CMakeCache.txt
  if [ -e "$cache" ] && ! [ "$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$cache")" -ef . ]; then
    rm -rf "build/$preset"
  fi
  # Once configured, ninja itself runs CMake when a file list or a CMake file changed.
  if [ ! -e "build/$preset/build.ninja" ]; then
    log=$(cmake --preset "$preset" 2>&1) || {
      echo "$log" >&2
      exit 1
    }
  fi
  cmake --build --preset "$preset" "${targets[@]}"
done
