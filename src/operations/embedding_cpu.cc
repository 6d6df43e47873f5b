// SPDX-License-Identifier: Apache-2.0
// Looking rows up is copying, so this is plain code; its gradient sorts the rows by id (counting
// sort, stable) and then each id's sum is one thread's, column range by column range.
#include "operations/embedding.h"

#include <omp.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "coda/error.h"
#include "coda/float16.h"

namespace coda {
namespace {

constexpr int64_t kColumns = 512;  // of one sum in flight: 2 KiB of the first-level cache
constexpr int64_t kIds = 64;       // of one task

// Row numbers are tensor 1, both of the forward and of the backward.
void check_types(const OperationCall& call, RowNumbers numbers) {
  for (size_t i = 0; i < call.tensors.size(); ++i) {
    if (i == 1)
      call.check_type(i, {stored_type(numbers)});
    else
      call.check_type(i, {DType::f32, DType::bf16, DType::f16});
  }
}

// The number in a row, which names a row of so many; kNoRow where that is allowed.
class Numbers {
 public:
  Numbers(std::string function, RowNumbers kind) : function_(std::move(function)), kind_(kind) {}

  int64_t of(const TensorView& ids, int64_t row) const {
    const int64_t at = row * ids.row_stride;
    return kind_ == RowNumbers::ids ? static_cast<const int32_t*>(ids.data)[at]
                                    : static_cast<int64_t>(static_cast<const float*>(ids.data)[at]);
  }

  void check(const TensorView& ids, int64_t rows) const {
    const int64_t least = kind_ == RowNumbers::ids ? 0 : kNoRow;
    for (int64_t row = 0; row < ids.rows; ++row) {
      const int64_t id = of(ids, row);
      require(id >= least && id < rows, function_ + ": the id of row " + std::to_string(row) +
                                            " is " + std::to_string(id) + "; ids must lie in [" +
                                            std::to_string(least) + ", " + std::to_string(rows) +
                                            ")");
    }
  }

 private:
  std::string function_;
  RowNumbers kind_;
};

void* element(const TensorView& view, int64_t row, int64_t col) {
  return static_cast<std::byte*>(view.data) + (row * view.row_stride + col) * size_of(view.dtype);
}

float float_of_half(DType type, uint16_t half) {
  return type == DType::bf16 ? float_from_bf16(half) : float_from_f16(half);
}

void load_row(const TensorView& view, int64_t row, int64_t col, int64_t count, float* to) {
  if (view.dtype == DType::f32) {
    std::memcpy(to, element(view, row, col), count * sizeof(float));
    return;
  }
  const auto* from = static_cast<const uint16_t*>(element(view, row, col));
  for (int64_t c = 0; c < count; ++c) to[c] = float_of_half(view.dtype, from[c]);
}

void add_row(const TensorView& view, int64_t row, int64_t col, int64_t count, float* to) {
  if (view.dtype == DType::f32) {
    const auto* from = static_cast<const float*>(element(view, row, col));
    for (int64_t c = 0; c < count; ++c) to[c] += from[c];
    return;
  }
  const auto* from = static_cast<const uint16_t*>(element(view, row, col));
  for (int64_t c = 0; c < count; ++c) to[c] += float_of_half(view.dtype, from[c]);
}

void store_row(const float* from, const TensorView& view, int64_t row, int64_t col, int64_t count) {
  if (view.dtype == DType::f32) {
    std::memcpy(element(view, row, col), from, count * sizeof(float));
    return;
  }
  auto* to = static_cast<uint16_t*>(element(view, row, col));
  for (int64_t c = 0; c < count; ++c) {
    to[c] = view.dtype == DType::bf16 ? bf16_from_float(from[c]) : f16_from_float(from[c]);
  }
}

class ForwardKernel {
 public:
  ForwardKernel(Numbers numbers, int threads) : numbers_(std::move(numbers)), threads_(threads) {}

  void run(std::span<const TensorView> t) {
    const TensorView &table = t[0], &ids = t[1], &out = t[2];
    numbers_.check(ids, table.rows);
#pragma omp parallel for num_threads(threads_) schedule(static)
    for (int64_t row = 0; row < out.rows; ++row) {
      const int64_t id = numbers_.of(ids, row);
      if (id == kNoRow) {
        std::memset(element(out, row, 0), 0, out.cols * size_of(out.dtype));
        continue;
      }
      if (table.dtype == out.dtype) {
        std::memcpy(element(out, row, 0), element(table, id, 0), out.cols * size_of(out.dtype));
        continue;
      }
      float values[kColumns];
      for (int64_t col = 0; col < out.cols; col += kColumns) {
        const int64_t count = std::min(kColumns, out.cols - col);
        load_row(table, id, col, count, values);
        store_row(values, out, row, col, count);
      }
    }
  }

 private:
  Numbers numbers_;
  int threads_;
};

class BackwardKernel {
 public:
  BackwardKernel(Numbers numbers, int64_t vocabulary, int64_t rows, int threads)
      : numbers_(std::move(numbers)), threads_(threads), starts_(vocabulary + 1), order_(rows) {}

  void run(std::span<const TensorView> t) {
    const TensorView &gradient = t[0], &ids = t[1], &out = t.back();
    const TensorView* add_to = t.size() == 4 ? &t[2] : nullptr;
    numbers_.check(ids, out.rows);
    sort(ids);
    const bool in_place = add_to != nullptr && add_to->data == out.data;
#pragma omp parallel for collapse(2) num_threads(threads_) schedule(dynamic, 4)
    for (int64_t first = 0; first < out.rows; first += kIds) {
      for (int64_t col = 0; col < out.cols; col += kColumns) {
        const int64_t count = std::min(kColumns, out.cols - col);
        for (int64_t id = first; id < std::min(first + kIds, out.rows); ++id) {
          if (in_place && starts_[id] == starts_[id + 1]) continue;
          float sum[kColumns];
          if (add_to != nullptr)
            load_row(*add_to, id, col, count, sum);
          else
            std::fill_n(sum, count, 0.0f);
          for (int64_t i = starts_[id]; i < starts_[id + 1]; ++i)
            add_row(gradient, order_[i], col, count, sum);
          store_row(sum, out, id, col, count);
        }
      }
    }
  }

 private:
  // order_[starts_[id] .. starts_[id + 1]): the rows that read `id`, ascending.
  void sort(const TensorView& ids) {
    std::fill(starts_.begin(), starts_.end(), 0);
    for (int64_t row = 0; row < ids.rows; ++row) {
      if (const int64_t id = numbers_.of(ids, row); id != kNoRow) ++starts_[id + 1];
    }
    for (size_t id = 1; id < starts_.size(); ++id) starts_[id] += starts_[id - 1];
    for (int64_t row = 0; row < ids.rows; ++row) {
      if (const int64_t id = numbers_.of(ids, row); id != kNoRow) order_[starts_[id]++] = row;
    }
    for (size_t id = starts_.size() - 1; id > 0; --id) starts_[id] = starts_[id - 1];
    starts_[0] = 0;
  }

  Numbers numbers_;
  int threads_;
  std::vector<int64_t> starts_;
  std::vector<int64_t> order_;
};

}  // namespace

CpuKernel prepare_embedding(const OperationCall& call, RowNumbers numbers, int threads) {
  check_types(call, numbers);
  return [kernel = std::make_shared<ForwardKernel>(Numbers(call.operation, numbers), threads)](
             std::span<const TensorView> tensors) { kernel->run(tensors); };
}

CpuKernel prepare_embedding_backward(const OperationCall& call, RowNumbers numbers, int threads) {
  check_types(call, numbers);
  return [kernel = std::make_shared<BackwardKernel>(
              Numbers(call.operation, numbers), call.tensors.back().rows, call.tensors[1].rows,
              threads)](std::span<const TensorView> tensors) { kernel->run(tensors); };
}

}  // namespace coda
