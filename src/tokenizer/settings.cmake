# SPDX-License-Identifier: Apache-2.0
# OpenMP to encode several texts at once.
target_link_libraries(coda_tokenizer PRIVATE OpenMP::OpenMP_CXX)
