# SPDX-License-Identifier: Apache-2.0
# OpenMP encodes several texts in parallel.
target_link_libraries(coda_tokenizer PRIVATE OpenMP::OpenMP_CXX)
