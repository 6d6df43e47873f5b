# SPDX-License-Identifier: Apache-2.0
# -DCODA_SANITIZE=ON: everything with AddressSanitizer and UndefinedBehaviorSanitizer, any finding
# ending the program.
option(CODA_SANITIZE "Build with AddressSanitizer and UndefinedBehaviorSanitizer" OFF)
if(CODA_SANITIZE)
  # -O1: the tests run at a fair speed and the build stays short. Some of GCC's warnings are wrong
  # behind the sanitizers' extra branches; the ordinary build keeps them as errors.
  set(CMAKE_CXX_FLAGS_RELEASE "-O1 -g1")
  set(CMAKE_C_FLAGS_RELEASE "-O1 -g1")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
                      -Wno-maybe-uninitialized)
  add_link_options(-fsanitize=address,undefined)
endif()
