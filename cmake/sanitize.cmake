# SPDX-License-Identifier: Apache-2.0
# -DCODA_SANITIZE=ON: everything with AddressSanitizer and UndefinedBehaviorSanitizer, any finding
# ending the program. -DCODA_FUZZ=ON: with the sanitizers, and with coverage of the code for
# libFuzzer (Clang) or tests/fuzz/fuzz.cc (GCC).
option(CODA_SANITIZE "Build with AddressSanitizer and UndefinedBehaviorSanitizer" OFF)
option(CODA_FUZZ "Build for make fuzz" OFF)
if(CODA_FUZZ AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  add_compile_options(-fsanitize=fuzzer-no-link)
elseif(CODA_FUZZ)
  add_compile_options(-fsanitize-coverage=trace-pc)
endif()
if(CODA_SANITIZE OR CODA_FUZZ)
  # -Og compiles in two thirds of the time of -O1. Some of GCC's warnings are wrong behind the
  # sanitizers' extra branches; the ordinary build has them, as errors.
  set(CMAKE_CXX_FLAGS_RELEASE "-Og -g1")
  set(CMAKE_C_FLAGS_RELEASE "-Og -g1")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all
                      -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
endif()
