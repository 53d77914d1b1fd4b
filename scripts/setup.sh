#!/usr/bin/env bash
# Installs what is missing for the given level:
#   setup.sh build   what makes the wasm modules (npm run build, npm run demo)
#   setup.sh test    that, and what the tests and the other build targets need (npm test)
# Every tool is looked for first, so that a run with nothing to do takes no time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

level=${1:-test}
case $level in
  build | test) ;;
  *)
    echo "usage: scripts/setup.sh [build|test]" >&2
    exit 2
    ;;
esac

missing=()
# need_command COMMAND PACKAGE, need_file GLOB PACKAGE
need_command() { command -v "$1" >/dev/null 2>&1 || missing+=("$2"); }
need_file() { compgen -G "$1" >/dev/null || missing+=("$2"); }

need_command clang-22 clang-22
need_command wasm-ld-22 lld-22
need_command llvm-ar-22 llvm-22
need_file '/usr/lib/llvm-22/lib/clang/22/lib/*/libclang_rt.builtins-wasm32.a' libclang-rt-22-dev-wasm32
need_file '/usr/lib/wasm32-wasi/libc.a' wasi-libc
need_command cmake cmake
need_command ninja ninja-build
if [ "$level" = test ]; then
  need_file '/usr/lib/llvm-22/lib/clang/22/lib/linux/libclang_rt.fuzzer-*.a' libclang-rt-22-dev
  need_file '/usr/include/simde/wasm/simd128.h' libsimde-dev
  need_file '/usr/include/cmocka.h' libcmocka-dev
  need_command clang-tidy-22 clang-tidy-22
  need_command clang-format-22 clang-format-22
  need_command wasm-objdump wabt
  need_command emcc emscripten
  need_command chromium chromium
  need_command git git
fi

if [ ${#missing[@]} -gt 0 ]; then
  if ! command -v apt-get >/dev/null 2>&1; then
    echo "setup: these packages are missing, and this is no Debian-like system (no apt-get):" >&2
    echo "  ${missing[*]}" >&2
    echo "setup: install their equivalents so that the commands are found under the same names" >&2
    exit 1
  fi
  sudo=()
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
      echo "setup: installing packages needs root. As root, run:" >&2
      echo "  apt-get update && apt-get install -y --no-install-recommends ${missing[*]}" >&2
      exit 1
    fi
    sudo=(sudo)
  fi
  echo "setup: installing ${missing[*]}" >&2
  apt=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq
    -o DPkg::Lock::Timeout=600 -o Acquire::Retries=3 -o Dpkg::Use-Pty=0)
  "${apt[@]}" update >&2
  if ! "${apt[@]}" install -y --no-install-recommends "${missing[@]}" >&2; then
    echo "setup: apt-get could not install: ${missing[*]}" >&2
    echo "setup: clang 22 and its companions must be in the configured package sources" >&2
    exit 1
  fi
fi

# npm writes node_modules/.package-lock.json last. No package's install script
# runs and nothing optional comes: what is pinned works without either.
if [ ! -e node_modules/.package-lock.json ] || [ package-lock.json -nt node_modules/.package-lock.json ]; then
  echo "setup: npm ci" >&2
  npm ci --omit=optional --ignore-scripts --no-audit --no-fund --loglevel=error >&2
  touch node_modules/.package-lock.json
fi
