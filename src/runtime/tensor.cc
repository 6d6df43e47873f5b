// SPDX-License-Identifier: Apache-2.0
// Values are converted on the host, and copied to and from a backend with its own memory.
#include "coda/tensor.h"

#include <cmath>
#include <cstring>

#include "base/aligned_buffer.h"
#include "base/byte_number.h"
#include "coda/backend.h"
#include "coda/error.h"
#include "coda/float16.h"
#include "coda/float8.h"
#include "runtime/copy_matrix.h"
#include "runtime/why_unfit.h"

namespace coda {
namespace {

size_t bytes_of(DType dtype, int64_t rows, int64_t cols) {
  require(rows > 0 && cols > 0, "a tensor of " + std::to_string(rows) + " rows and " +
                                    std::to_string(cols) + " columns: both must be positive");
  return static_cast<size_t>(rows * cols * size_of(dtype));
}

std::byte* row_of(const TensorView& view, int64_t row) {
  return static_cast<std::byte*>(view.data) + row * view.row_stride * size_of(view.dtype);
}

std::string describe(const TensorView& view) {
  return coda::describe(view.dtype, view.rows, view.cols);
}

void require_count(const TensorView& view, size_t count) {
  require(static_cast<int64_t>(count) == view.size(),
          std::to_string(count) + " values for a tensor " + describe(view) + ", which has " +
              std::to_string(view.size()));
}

void require_same(const TensorView& view, const TensorView& host) {
  require(view.dtype == host.dtype && view.rows == host.rows && view.cols == host.cols,
          "a copy between " + describe(view) + " and " + describe(host) +
              ": type and size must be the same");
}

void require_integers(const TensorView& view) {
  require(view.dtype == DType::i32, "integers of a tensor " + describe(view) + ": it must be i32");
}

// Writes row `row` of a view in host memory.
void write_row(std::span<const float> values, const TensorView& view, int64_t row) {
  void* const data = row_of(view, row);
  const auto convert = [&](auto* out, auto rounded) {
    for (size_t i = 0; i < values.size(); ++i) out[i] = rounded(values[i]);
  };
  switch (view.dtype) {
    case DType::f32: std::memcpy(data, values.data(), values.size_bytes()); break;
    case DType::bf16: convert(static_cast<uint16_t*>(data), bf16_from_float); break;
    case DType::f16: convert(static_cast<uint16_t*>(data), f16_from_float); break;
    case DType::e4m3: convert(static_cast<uint8_t*>(data), e4m3_from_float); break;
    case DType::e5m2: convert(static_cast<uint8_t*>(data), e5m2_from_float); break;
    case DType::u8: convert(static_cast<uint8_t*>(data), byte_from_float); break;
    case DType::f64: convert(static_cast<double*>(data), [](float v) { return double{v}; }); break;
    case DType::i32:
      convert(static_cast<int32_t*>(data),
              [](float v) { return static_cast<int32_t>(std::lround(v)); });
      break;
  }
}

void read_row(const TensorView& view, int64_t row, std::span<float> values) {
  const void* const data = row_of(view, row);
  const auto convert = [&](const auto* in, auto converted) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = converted(in[i]);
  };
  const auto narrowed = [](auto v) { return static_cast<float>(v); };
  switch (view.dtype) {
    case DType::f32: std::memcpy(values.data(), data, values.size_bytes()); break;
    case DType::bf16: convert(static_cast<const uint16_t*>(data), float_from_bf16); break;
    case DType::f16: convert(static_cast<const uint16_t*>(data), float_from_f16); break;
    case DType::e4m3: convert(static_cast<const uint8_t*>(data), float_from_e4m3); break;
    case DType::e5m2: convert(static_cast<const uint8_t*>(data), float_from_e5m2); break;
    case DType::u8: convert(static_cast<const uint8_t*>(data), float_from_byte); break;
    case DType::f64: convert(static_cast<const double*>(data), narrowed); break;
    case DType::i32: convert(static_cast<const int32_t*>(data), narrowed); break;
  }
}

}  // namespace

Tensor::Tensor(DType dtype, int64_t rows, int64_t cols)
    : view_(dense_view(nullptr, dtype, rows, cols)) {
  const auto buffer = std::make_shared<AlignedBuffer>(bytes_of(dtype, rows, cols));
  memory_ = {buffer, buffer->data()};
  view_.data = memory_.get();
  std::memset(view_.data, 0, bytes_of(dtype, rows, cols));
}

Tensor::Tensor(const TensorView& view, Backend& backend)
    : view_(view), backend_(backend.is_on_host() ? nullptr : &backend) {}

Tensor::Tensor(DType dtype, int64_t rows, int64_t cols, Backend& backend)
    : Tensor(dense_view(nullptr, dtype, rows, cols), backend) {
  memory_ = backend.allocate(bytes_of(dtype, rows, cols), "a tensor " + describe(view_));
  view_.data = memory_.get();
  backend.fill(view_, std::byte{0});
}

void Tensor::set(std::span<const float> values) {
  require_count(view_, values.size());
  if (backend_ != nullptr) {
    Tensor host(view_.dtype, view_.rows, view_.cols);
    host.set(values);
    return copy_from(host.view());
  }
  const auto cols = static_cast<size_t>(view_.cols);
  for (int64_t row = 0; row < view_.rows; ++row)
    write_row(values.subspan(static_cast<size_t>(row) * cols, cols), view_, row);
}

void Tensor::set(std::span<const int32_t> values) {
  require_integers(view_);
  require_count(view_, values.size());
  auto* const data = const_cast<int32_t*>(values.data());  // only read
  copy_from(dense_view(data, DType::i32, view_.rows, view_.cols));
}

void Tensor::fill(float value) {
  set(std::vector<float>(static_cast<size_t>(view_.size()), value));
}

std::vector<float> Tensor::floats() const {
  if (backend_ != nullptr) {
    const Tensor host(view_.dtype, view_.rows, view_.cols);
    copy_to(host.view());
    return host.floats();
  }
  std::vector<float> values(static_cast<size_t>(view_.size()));
  const auto cols = static_cast<size_t>(view_.cols);
  for (int64_t row = 0; row < view_.rows; ++row)
    read_row(view_, row, std::span(values).subspan(static_cast<size_t>(row) * cols, cols));
  return values;
}

std::vector<int32_t> Tensor::ints() const {
  require_integers(view_);
  std::vector<int32_t> values(static_cast<size_t>(view_.size()));
  copy_to(dense_view(values.data(), DType::i32, view_.rows, view_.cols));
  return values;
}

void Tensor::copy_from(const TensorView& host) {
  require_same(view_, host);
  if (backend_ != nullptr) return backend_->copy_in(host, view_);
  copy_matrix(host, view_);
}

void Tensor::copy_to(const TensorView& host) const {
  require_same(view_, host);
  if (backend_ != nullptr) return backend_->copy_out(view_, host);
  copy_matrix(view_, host);
}

}  // namespace coda
