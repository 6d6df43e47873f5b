// SPDX-License-Identifier: Apache-2.0
// The functions that make up the entries of embedding and of gather, with their adjoints, in the
// registry. The two are one lookup of rows: they differ in where the row numbers come from.
#pragma once

#include <vector>

#include "coda/operation.h"

namespace coda {

// Ids of a text are i32, and each names a row. What a program computed is fp32, as all that
// programs compute is (whole numbers are exact below 2^24), and -1 stands for no row.
enum class RowNumbers : uint8_t { ids, computed };
constexpr int64_t kNoRow = -1;

constexpr DType stored_type(RowNumbers numbers) {
  return numbers == RowNumbers::ids ? DType::i32 : DType::f32;
}

// Rows of a table by their numbers; no row is a row of zeros.
CpuKernel prepare_embedding(const OperationCall& call, RowNumbers numbers, int threads);
std::vector<GpuKernel> embedding_kernels(const OperationCall& call, RowNumbers numbers);

// The gradient of the table: the sum, for each number, of the rows that read it, in ascending row
// order, so that it is the same for any number of threads. What it is added to may be the same
// memory as the result.
CpuKernel prepare_embedding_backward(const OperationCall& call, RowNumbers numbers, int threads);
std::vector<GpuKernel> embedding_backward_kernels(const OperationCall& call, RowNumbers numbers);

}  // namespace coda
