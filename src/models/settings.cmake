# SPDX-License-Identifier: Apache-2.0
# Initial values are drawn by all threads.
target_link_libraries(coda_models PRIVATE OpenMP::OpenMP_CXX)
