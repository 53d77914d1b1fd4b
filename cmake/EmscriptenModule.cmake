# The same core and the same exports as an ES module with Emscripten's glue.
set(LNL_EMSCRIPTEN_PRE "${CMAKE_CURRENT_LIST_DIR}/emscripten-pre.js")
set(LNL_EMSCRIPTEN_EXTERN_PRE "${CMAKE_CURRENT_LIST_DIR}/emscripten-extern-pre.js")

function(lnl_emscripten_module)
  lnl_declared_functions("${LNL_ABI_HEADER}" lnl_abi_ exports)
  list(TRANSFORM exports PREPEND "_")
  list(JOIN exports "," exports)

  add_executable(lineal "${LNL_ABI_SOURCE}" ${LNL_CORE_SOURCES})
  set_target_properties(lineal PROPERTIES SUFFIX ".mjs" RUNTIME_OUTPUT_DIRECTORY "${LNL_DIST}/emscripten")
  target_link_libraries(lineal PRIVATE lnl_flags)
  target_compile_definitions(lineal PRIVATE LNL_LIBC_HEAP)
  target_compile_options(lineal PRIVATE -msimd128)
  # CMAKE_C_FLAGS_RELEASE would link at -O3, whose passes do not know what
  # LLVM 22 emits; a later -O wins.
  target_link_options(lineal PRIVATE
    -O1 --no-entry -Wl,--no-stack-first
    -sWASM_BIGINT -sMODULARIZE -sEXPORT_ES6 -sEXPORT_NAME=createLineal
    -sALLOW_MEMORY_GROWTH -sMAXIMUM_MEMORY=4GB -sTOTAL_STACK=262144 -sFILESYSTEM=0
    "-sEXPORTED_FUNCTIONS=${exports}"
    "SHELL:--pre-js \"${LNL_EMSCRIPTEN_PRE}\""
    "SHELL:--extern-pre-js \"${LNL_EMSCRIPTEN_EXTERN_PRE}\"")
  set_target_properties(lineal PROPERTIES LINK_DEPENDS "${LNL_EMSCRIPTEN_PRE};${LNL_EMSCRIPTEN_EXTERN_PRE}")
endfunction()
