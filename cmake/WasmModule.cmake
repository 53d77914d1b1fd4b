# The modules of the package: no imports, nothing exported but the functions of
# wasm/abi.h and the memory; those for threads import the memory, which is
# shared, and export what a further thread needs; the one of these with 64-bit
# addresses; and the WASI command.

set(LNL_BINARYEN "${CMAKE_SOURCE_DIR}/node_modules/binaryen/bin")
set(LNL_WASM_OPT "${LNL_BINARYEN}/wasm-opt")
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
  -Wl,--gc-sections -Wl,--strip-debug)
set(LNL_4_GIB -Wl,--max-memory=4294967296)

# Threads without pthreads: each is an instance of its own over one memory. The
# host makes that memory, of this initial size (js-glue/abi.js has the number
# too), because a module does not tell the size that it wants to import.
set(LNL_THREADS_COMPILE -matomics -mbulk-memory -ftls-model=local-exec)
set(LNL_THREADS_LINK -Wl,--shared-memory -Wl,--import-memory -Wl,--initial-memory=524288)
set(LNL_THREADS_EXPORTS __stack_pointer __wasm_init_tls __tls_size __tls_align)

set_source_files_properties(${LNL_SMALL_SOURCES} "${LNL_ABI_SOURCE}" PROPERTIES COMPILE_OPTIONS -Oz)

# 64-bit addresses: engines allow 16 GiB. wasi-libc's headers suit, with the limits
# of wasm/wide; its library does not. wasm/wide_libc.c stands in for it, except for
# mathematics: those are the very functions of the other modules, over a small
# 32-bit memory of their own with their tables, so that results are the same bits.
set(LNL_WIDE_TARGET --target=wasm64-wasi)
set(LNL_WIDE_COMPILE ${LNL_WIDE_TARGET} "SHELL:-isystem ${CMAKE_SOURCE_DIR}/wasm/wide"
  "SHELL:-isystem /usr/include/wasm32-wasi" -Wshorten-64-to-32)
set(LNL_16_GIB -Wl,--max-memory=17179869184)
set(LNL_WIDE_LIBC "${CMAKE_SOURCE_DIR}/wasm/wide_libc.c")
set(LNL_MATH exp expf fmax fmaxf fminf log logf pow powf tanhf)
set_source_files_properties("${LNL_WIDE_LIBC}" PROPERTIES COMPILE_OPTIONS -fno-builtin)

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
  target_link_options(lineal-${variant} PRIVATE ${LNL_4_GIB})
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

# dist/lineal-<variant>-mt-64.wasm: threads and 64-bit addresses.
function(lnl_wasm_wide_module variant)
  set(name ${variant}-mt-64)
  set(flags ${LNL_WASM_COMPILE} ${ARGN} ${LNL_THREADS_COMPILE} ${LNL_WIDE_COMPILE})
  set(sources ${LNL_CORE_SOURCES})
  list(REMOVE_ITEM sources ${LNL_WIDE_SMALL_SOURCES})
  add_library(core-${name} OBJECT ${sources})
  add_library(core-${name}-small OBJECT ${LNL_WIDE_SMALL_SOURCES})
  lnl_declared_functions("${LNL_ABI_HEADER}" lnl_abi_ exports)
  list(APPEND exports ${LNL_THREADS_EXPORTS})
  add_executable(lineal-${name} "${LNL_ABI_SOURCE}" "${LNL_WIDE_LIBC}"
    $<TARGET_OBJECTS:core-${name}> $<TARGET_OBJECTS:core-${name}-small>)
  foreach(target core-${name} core-${name}-small lineal-${name})
    target_link_libraries(${target} PRIVATE lnl_flags)
    target_compile_options(${target} PRIVATE ${flags})
  endforeach()
  target_compile_options(core-${name}-small PRIVATE -Oz)
  lnl_link_reactor(lineal-${name} ${exports})
  # What is neither here nor among the mathematics fails the link.
  list(JOIN LNL_MATH "\n" undefined)
  file(WRITE "${CMAKE_BINARY_DIR}/math.txt" "${undefined}\n")
  target_link_options(lineal-${name} PRIVATE ${LNL_WIDE_TARGET} -nostdlib ${LNL_16_GIB} ${LNL_THREADS_LINK}
    "-Wl,--allow-undefined-file=${CMAKE_BINARY_DIR}/math.txt")

  # On 32-bit addresses, whatever those of its caller are.
  file(WRITE "${CMAKE_BINARY_DIR}/math.c" "typedef int nothing;\n")
  add_executable(lineal-math "${CMAKE_BINARY_DIR}/math.c")
  lnl_link_reactor(lineal-math ${LNL_MATH})
  target_link_options(lineal-math PRIVATE
    -Wl,-z,stack-size=4096 -Wl,--max-memory=65536 -Wl,--export-memory=math_memory)

  # Merged, all exports of both stay: wasm-metadce drops those that its graph does
  # not name. Not -Os: its ssa-nomerge costs a quarter of the speed here.
  set(nodes "")
  foreach(export IN LISTS exports)
    string(APPEND nodes ",\n{\"name\":\"${export}\",\"export\":\"${export}\"}")
  endforeach()
  list(JOIN exports "\",\"" reaches)
  set(graph "${CMAKE_BINARY_DIR}/exports-64.json")
  file(WRITE "${graph}" "[{\"name\":\"outside\",\"root\":true,\"reaches\":[\"${reaches}\"]}${nodes}]\n")
  set(features --enable-multimemory)
  set(path "${LNL_DIST}/lineal-${name}.wasm")
  set(merged "${CMAKE_BINARY_DIR}/merged-64.wasm")
  add_custom_command(
    OUTPUT "${path}"
    COMMAND "${CMAKE_COMMAND}" -E make_directory "${LNL_DIST}"
    COMMAND "${LNL_NODE}" "${LNL_BINARYEN}/wasm-merge" --quiet ${features}
      "$<TARGET_FILE:lineal-${name}>" main "$<TARGET_FILE:lineal-math>" env -o "${merged}"
    COMMAND "${LNL_NODE}" "${LNL_BINARYEN}/wasm-metadce" --quiet ${features}
      "${merged}" --graph-file "${graph}" -o "${merged}" > "${CMAKE_BINARY_DIR}/metadce.log"
    COMMAND "${LNL_NODE}" "${LNL_WASM_OPT}" ${features} -O2 -s 1 -ocimfs 0 "${merged}" -o "${path}.tmp"
    COMMAND "${CMAKE_COMMAND}" -E rename "${path}.tmp" "${path}"
    DEPENDS lineal-${name} lineal-math "${LNL_WASM_OPT}" "${graph}"
    COMMENT "wasm-merge and wasm-opt lineal-${name}.wasm"
    VERBATIM)
  add_custom_target(dist-lineal-${name} ALL DEPENDS "${path}")
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
  target_link_options(kernels-${variant} PRIVATE ${LNL_4_GIB})
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
  target_link_options(lineal-wasi PRIVATE ${LNL_WASM_LINK} ${LNL_4_GIB})
  lnl_optimize(lineal-wasi "lineal-wasi.wasm")
endfunction()
