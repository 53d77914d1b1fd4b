# What there is to compile, and what the modules export.
file(GLOB LNL_FORM_SOURCES CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/forms/*.c")
file(GLOB LNL_KERNEL_SOURCES CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/kernels/*.c")
file(GLOB LNL_TOP_SOURCES CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/*.c")
set(LNL_CORE_SOURCES ${LNL_TOP_SOURCES} ${LNL_FORM_SOURCES} ${LNL_KERNEL_SOURCES})
# What runs once a model or once a message, not once a token: small before fast.
set(LNL_SMALL_SOURCES arch block budget engine explain fmt gguf gguf_read gguf_tables hparams host inspect kv load mem
  model place plan resolve session status stream tok_vocab)
list(TRANSFORM LNL_SMALL_SOURCES PREPEND "${CMAKE_SOURCE_DIR}/src/")
list(TRANSFORM LNL_SMALL_SOURCES APPEND ".c")
# The same where addresses are larger, and with them the code: what does little work
# beside matrices and attention.
set(LNL_WIDE_SMALL_SOURCES exec exec_ops exec_stream forms/forms sample tok tok_bpe tok_merge tok_special tok_spm
  tok_split tok_ugm tok_wpm unicode)
list(TRANSFORM LNL_WIDE_SMALL_SOURCES PREPEND "${CMAKE_SOURCE_DIR}/src/")
list(TRANSFORM LNL_WIDE_SMALL_SOURCES APPEND ".c")
set(LNL_ABI_SOURCE "${CMAKE_SOURCE_DIR}/wasm/abi.c")
set(LNL_ABI_HEADER "${CMAKE_SOURCE_DIR}/wasm/abi.h")

# The names of the functions that `header` declares with the given prefix, in
# order. The header is the only list of exports; a name that is declared but
# not defined fails the link.
function(lnl_declared_functions header prefix out)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${header}")
  file(READ "${header}" text)
  string(REGEX REPLACE "/[*]([^*]|[*]+[^*/])*[*]+/" " " text "${text}")
  string(REGEX MATCHALL "${prefix}[a-z0-9_]+[(]" calls "${text}")
  list(TRANSFORM calls REPLACE "[(]$" "")
  list(REMOVE_DUPLICATES calls)
  if(NOT calls)
    message(FATAL_ERROR "${header} declares no ${prefix}* function")
  endif()
  set(${out} ${calls} PARENT_SCOPE)
endfunction()
