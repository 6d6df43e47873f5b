# SPDX-License-Identifier: Apache-2.0
# OpenMP for the copy that a program's time on a CPU stands beside.
target_link_libraries(coda_measure PRIVATE OpenMP::OpenMP_CXX)
