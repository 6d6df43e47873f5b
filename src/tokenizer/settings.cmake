# SPDX-License-Identifier: Apache-2.0
# PCRE2 for the regular expressions of tokenizer files, utf8proc for Unicode's normal forms, OpenMP
# to encode several texts at once.
find_library(CODA_PCRE2 pcre2-8 REQUIRED)
find_library(CODA_UTF8PROC utf8proc REQUIRED)
target_link_libraries(coda_tokenizer PRIVATE ${CODA_PCRE2} ${CODA_UTF8PROC} OpenMP::OpenMP_CXX)
