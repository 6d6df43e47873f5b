# SPDX-License-Identifier: Apache-2.0
# Loops over weights: a square root that does not set errno can be a vector instruction, and
# products are never contracted into sums, so that every element sees the same roundings whatever
# the compiler makes of the loop.
target_link_libraries(coda_train PUBLIC OpenMP::OpenMP_CXX)
target_compile_options(coda_train PRIVATE -fno-math-errno -ffp-contract=off)
