# SPDX-License-Identifier: Apache-2.0
# CODA_VERSION, from the one place that has it: include/coda/version.h.
set(CODA_VERSION "")
foreach(part MAJOR MINOR PATCH)
  file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/../include/coda/version.h line
       REGEX "#define CODA_VERSION_${part} ")
  string(REGEX MATCH "[0-9]+$" number "${line}")
  list(APPEND CODA_VERSION ${number})
endforeach()
list(JOIN CODA_VERSION "." CODA_VERSION)
