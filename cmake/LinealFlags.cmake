# Flags of every target. Results must be the same on every engine and for every
# division of the work, so nothing here lets the compiler re-associate or fuse
# floating-point arithmetic: no -ffast-math, no contraction.
add_library(lnl_flags INTERFACE)
target_include_directories(lnl_flags INTERFACE "${CMAKE_SOURCE_DIR}/src")
target_compile_options(lnl_flags INTERFACE -Wall -Wextra -Wshadow -fno-math-errno -ffp-contract=off)
if(LNL_WERROR)
  target_compile_options(lnl_flags INTERFACE -Werror)
endif()
