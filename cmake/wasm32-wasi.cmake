# Toolchain: clang 22, lld 22 and wasi-libc as packaged by Debian.
# The triple is wasm32-wasi: wasm32-wasip1 would pick up glibc's headers there.
set(CMAKE_SYSTEM_NAME WASI)
set(CMAKE_SYSTEM_PROCESSOR wasm32)
list(APPEND CMAKE_MODULE_PATH "${CMAKE_CURRENT_LIST_DIR}")

set(CMAKE_C_COMPILER clang-22)
set(CMAKE_C_COMPILER_TARGET wasm32-wasi)
set(CMAKE_AR llvm-ar-22)
set(CMAKE_RANLIB llvm-ranlib-22)
# The driver would run any wasm-opt that it finds on PATH, and Debian's is too
# old for relaxed SIMD; the pinned one runs as a step of its own.
set(CMAKE_C_FLAGS_INIT "-Wno-deprecated")
set(CMAKE_EXE_LINKER_FLAGS_INIT "--no-wasm-opt")
# A module has no main: the compiler check may not link a program.
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)

set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE NEVER)
