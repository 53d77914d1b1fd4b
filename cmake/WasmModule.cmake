# The modules of the package: no imports, nothing exported but the functions of
# wasm/abi.h and the memory; those for threads import the memory, which is
# shared, and export what a further thread needs; and the WASI command.

set(LNL_WASM_OPT "${CMAKE_SOURCE_DIR}/node_modules/binaryen/bin/wasm-opt")
if(NOT EXISTS "${LNL_WASM_OPT}")
  message(FATAL_ERROR "wasm-opt (npm package binaryen) is missing: run `npm ci`, or `bash scripts/setup.sh build`")
endif()
find_program(LNL_NODE node REQUIRED)

# The stack comes first in memory, so that an overflow traps below address 0
# instead of running into data. --strip-debug keeps the target_features
# section: wasm-opt reads there what it may use.
set(LNL_WASM_COMPILE -msimd128 "SHELL:-mllvm -disable-lsr")
set(LNL_WASM_LINK
  -Wl,--stack-first -Wl,-z,stack-size=262144
  -Wl,--max-memory=4294967296
  -Wl,--gc-sections -Wl,--strip-debug)

# Threads without pthreads: each is an instance of its own over one memory. The
# host makes that memory, of this initial size (js-glue/abi.js has the number
# too), because a module does not tell the size that it wants to import.
set(LNL_THREADS_COMPILE -matomics -mbulk-memory -ftls-model=local-exec)
set(LNL_THREADS_LINK -Wl,--shared-memory -Wl,--import-memory -Wl,--initial-memory=524288)
set(LNL_THREADS_EXPORTS __stack_pointer __wasm_init_tls __tls_size __tls_align)

set_source_files_properties(${LNL_SMALL_SOURCES} "${LNL_ABI_SOURCE}" PROPERTIES COMPILE_OPTIONS -Oz)

# Links `target` without an entry point, exporting memory and the given functions.
function(lnl_link_reactor target)
  target_link_options(${target} PRIVATE ${LNL_WASM_LINK} -nostartfiles -Wl,--no-entry -Wl,--fatal-warnings)
  foreach(name IN LISTS ARGN)
    target_link_options(${target} PRIVATE "-Wl,--export=${name}")
  endforeach()
endfunction()

# dist/<output> = wasm-opt(target): 8 % smaller than what the linker wrote, and
# as fast. -O3 gave 1 % more bytes and no measurable speed.
function(lnl_optimize target output)
  set(path "${LNL_DIST}/${output}")
  get_filename_component(folder "${path}" DIRECTORY)
  add_custom_command(
    OUTPUT "${path}"
    COMMAND "${CMAKE_COMMAND}" -E make_directory "${folder}"
    COMMAND "${LNL_NODE}" "${LNL_WASM_OPT}" -O2 "$<TARGET_FILE:${target}>" -o "${path}.tmp"
    COMMAND "${CMAKE_COMMAND}" -E rename "${path}.tmp" "${path}"
    DEPENDS ${target} "${LNL_WASM_OPT}"
    COMMENT "wasm-opt ${output}"
    VERBATIM)
  add_custom_target(dist-${target} ALL DEPENDS "${path}")
endfunction()

# dist/lineal-<variant>.wasm and dist/lineal-<variant>-mt.wasm. Further
# arguments: the compile flags that make the variant.
function(lnl_wasm_modules variant)
  lnl_wasm_module(${variant} ${ARGN})
  lnl_kernel_tests(${variant} ${ARGN})
  lnl_wasm_module(${variant}-mt ${ARGN} ${LNL_THREADS_COMPILE})
  target_link_options(lineal-${variant}-mt PRIVATE ${LNL_THREADS_LINK})
  foreach(name IN LISTS LNL_THREADS_EXPORTS)
    target_link_options(lineal-${variant}-mt PRIVATE "-Wl,--export=${name}")
  endforeach()
endfunction()

function(lnl_wasm_module variant)
  add_library(core-${variant} OBJECT ${LNL_CORE_SOURCES})
  target_link_libraries(core-${variant} PRIVATE lnl_flags)
  target_compile_options(core-${variant} PRIVATE ${LNL_WASM_COMPILE} ${ARGN})
  # clang-tidy reads the commands of one variant: the one with the most code.
  if(variant STREQUAL "relaxed")
    set_target_properties(core-${variant} PROPERTIES EXPORT_COMPILE_COMMANDS ON)
  endif()

  lnl_declared_functions("${LNL_ABI_HEADER}" lnl_abi_ exports)
  add_executable(lineal-${variant} "${LNL_ABI_SOURCE}" $<TARGET_OBJECTS:core-${variant}>)
  target_link_libraries(lineal-${variant} PRIVATE lnl_flags)
  target_compile_options(lineal-${variant} PRIVATE ${LNL_WASM_COMPILE} ${ARGN})
  lnl_link_reactor(lineal-${variant} ${exports})
  lnl_optimize(lineal-${variant} "lineal-${variant}.wasm")
endfunction()

# dist/lineal-sha256.wasm: what a page hashes a whole download with. A few kilobytes, without the core.
function(lnl_sha256_module)
  add_executable(lineal-sha256 "${CMAKE_SOURCE_DIR}/wasm/sha256.c")
  target_link_libraries(lineal-sha256 PRIVATE lnl_flags)
  target_link_options(lineal-sha256 PRIVATE -Wl,--gc-sections -Wl,--strip-debug -Wl,-z,stack-size=4096
    -nostdlib -nostartfiles -Wl,--no-entry -Wl,--fatal-warnings
    -Wl,--export=lnl_sha256_record -Wl,--export=lnl_sha256_blocks)
  lnl_optimize(lineal-sha256 "lineal-sha256.wasm")
endfunction()

# dist/test/kernels-<variant>.wasm: the cases of the kernels over the very
# objects that the module is linked from. The sources name their exports
# themselves.
function(lnl_kernel_tests variant)
  set(cases "${CMAKE_SOURCE_DIR}/tests/native")
  add_executable(kernels-${variant} "${CMAKE_SOURCE_DIR}/wasm/kernel_test.c" "${cases}/form_cases.c"
    "${cases}/kernel_cases.c" $<TARGET_OBJECTS:core-${variant}>)
  target_link_libraries(kernels-${variant} PRIVATE lnl_flags)
  target_include_directories(kernels-${variant} PRIVATE "${CMAKE_SOURCE_DIR}" "${cases}")
  target_compile_options(kernels-${variant} PRIVATE ${LNL_WASM_COMPILE} ${ARGN})
  lnl_link_reactor(kernels-${variant})
  lnl_optimize(kernels-${variant} "test/kernels-${variant}.wasm")
endfunction()

# dist/lineal-wasi.wasm: a command, so it has _start and the imports of WASI.
# The core is C11; the command itself uses the files and clocks of POSIX.
function(lnl_wasi_command)
  add_library(core-wasi OBJECT ${LNL_CORE_SOURCES})
  add_executable(lineal-wasi "${CMAKE_SOURCE_DIR}/wasm/wasi_main.c" $<TARGET_OBJECTS:core-wasi>)
  set_target_properties(lineal-wasi PROPERTIES C_EXTENSIONS ON)
  foreach(target core-wasi lineal-wasi)
    target_link_libraries(${target} PRIVATE lnl_flags)
    target_compile_definitions(${target} PRIVATE LNL_LIBC_HEAP)
    target_compile_options(${target} PRIVATE ${LNL_WASM_COMPILE})
  endforeach()
  target_link_options(lineal-wasi PRIVATE ${LNL_WASM_LINK})
  lnl_optimize(lineal-wasi "lineal-wasi.wasm")
endfunction()
