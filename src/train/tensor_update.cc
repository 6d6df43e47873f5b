// SPDX-License-Identifier: Apache-2.0
// The formulas are elementwise, so a tensor is processed as rows of at most kMostColumns elements,
// whatever its own shape. With noise, rows have kNoiseColumns elements, and the rest of a tensor is
// a row of its own. Parts of the same size share one kernel, because most layers have the same
// sizes.
#include <cmath>
#include <numeric>
#include <tuple>
#include <utility>

#include "coda/error.h"
#include "coda/optimizer.h"
#include "coda/program.h"
#include "coda/tensor.h"
#include "train/rounding_noise.h"
#include "train/update_programs.h"

namespace coda {
namespace {

// A CPU prefetches the next rows while it processes a row. With this many columns the prefetched
// rows stay in the first-level cache.
constexpr int64_t kMostColumns = 256;
// With fewer columns, the cost of a row exceeds the cost of its elements.
constexpr int64_t kFewColumns = 64;

int64_t columns_of(int64_t elements) {
  const int64_t columns = std::gcd(elements, kMostColumns);
  return columns < kFewColumns ? elements : columns;
}

// Some elements of a tensor, as a matrix.
struct Part {
  int64_t first;
  int64_t rows;
  int64_t cols;
};

std::vector<Part> parts_of(int64_t elements, bool has_noise) {
  if (elements == 0) return {};
  if (!has_noise) {
    const int64_t columns = columns_of(elements);
    return {{0, elements / columns, columns}};
  }
  std::vector<Part> parts;
  const int64_t rows = elements / kNoiseColumns;
  const int64_t rest = elements % kNoiseColumns;
  if (rows > 0) parts.push_back({0, rows, kNoiseColumns});
  if (rest > 0) parts.push_back({elements - rest, 1, rest});
  return parts;
}

template <typename T>
TensorView view_of(std::span<T> values, DType dtype, const Part& part) {
  return dense_view(
      const_cast<std::remove_const_t<T>*>(values.data()) + part.first,  // NOLINT: only read
      dtype, part.rows, part.cols);
}

}  // namespace

struct TensorUpdate::Impl {
  struct Prepared {
    Program program;
    std::unique_ptr<Kernel> kernel;
  };
  Optimizer optimizer;
  Backend& backend;
  // By rows and columns, whether it has a copy, whether it decays.
  std::map<std::tuple<int64_t, int64_t, bool, bool>, Prepared> kernels;
  std::map<std::string, Tensor> scalars;
  std::vector<float> row_numbers;  // 0, 1, ...: kNoiseRows of all tensors

  Impl(Optimizer its, Backend& backend) : optimizer(with_noise(std::move(its))), backend(backend) {
    for (const bool decays : {true, false}) verify(update_on_host(optimizer, true, decays));
  }

  Prepared& prepared(const UpdatedTensor& tensor, const Part& part) {
    Prepared& update = kernels[{part.rows, part.cols, !tensor.bf16.empty(), tensor.decays}];
    if (update.kernel) return update;
    update.program = update_on_host(optimizer, !tensor.bf16.empty(), tensor.decays);
    update.kernel = backend.prepare(update.program, {{"R", part.rows}, {"C", part.cols}});
    return update;
  }

  void set(const std::string& name, double value) {
    scalars.try_emplace(name, Tensor(DType::f32, 1, 1))
        .first->second.fill(static_cast<float>(value));
  }

  // The first row of noise of each tensor.
  std::vector<int64_t> rows_of(std::span<const UpdatedTensor> tensors) {
    std::vector<int64_t> elements;
    for (const UpdatedTensor& tensor : tensors) elements.push_back(std::ssize(tensor.weights));
    if (!has_noise(optimizer)) return std::vector<int64_t>(elements.size());
    std::vector<int64_t> first = noise_rows(elements);
    while (std::ssize(row_numbers) < first.back())
      row_numbers.push_back(static_cast<float>(row_numbers.size()));
    return first;
  }

  TensorView view(const std::string& name, const UpdatedTensor& tensor, const Part& part,
                  int64_t first_row) {
    if (name == kMaster) return view_of(tensor.weights, DType::f32, part);
    if (name == kGradient) return view_of(tensor.gradients, DType::f32, part);
    if (name == kCopy) return view_of(tensor.bf16, DType::bf16, part);
    if (name == kNoiseRows)
      return dense_view(row_numbers.data() + first_row + part.first / kNoiseColumns, DType::f32,
                        part.rows, 1);
    for (size_t i = 0; i < optimizer.states.size(); ++i)
      if (name == optimizer.states[i].name) return view_of(tensor.states[i], DType::f32, part);
    return scalars.at(name).view();
  }
};

TensorUpdate::TensorUpdate(Optimizer optimizer, Backend& backend)
    : impl_(std::make_unique<Impl>(std::move(optimizer), backend)) {
  invariant(backend.is_on_host(), "TensorUpdate is for memory of the host");
}
TensorUpdate::~TensorUpdate() = default;
TensorUpdate::TensorUpdate(TensorUpdate&&) noexcept = default;
TensorUpdate& TensorUpdate::operator=(TensorUpdate&&) noexcept = default;

void TensorUpdate::run(std::span<const UpdatedTensor> tensors, double rate, int64_t step,
                       double gradient_scale) {
  const Optimizer& optimizer = impl_->optimizer;
  require(
      std::isfinite(rate) && rate >= 0,
      optimizer.name + ": the learning rate must be a number from 0, not " + std::to_string(rate));
  invariant(step >= 1, "TensorUpdate: steps count from 1");
  impl_->set("scale", gradient_scale);
  impl_->set("kept_share", 1 - rate * optimizer.decay);
  for (const StepScalar& scalar : optimizer.scalars)
    impl_->set(scalar.name, scalar.value(rate, step));
  const std::vector<int64_t> first_rows = impl_->rows_of(tensors);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const UpdatedTensor& tensor = tensors[i];
    const size_t count = tensor.weights.size();
    bool is_whole = tensor.gradients.size() == count &&
                    tensor.states.size() == optimizer.states.size() &&
                    (tensor.bf16.empty() || tensor.bf16.size() == count);
    for (const auto& state : tensor.states) is_whole = is_whole && state.size() == count;
    invariant(is_whole, "TensorUpdate: the arrays of a tensor differ in size");
    for (const Part& part : parts_of(static_cast<int64_t>(count), has_noise(optimizer))) {
      const Impl::Prepared& update = impl_->prepared(tensor, part);
      std::vector<TensorView> views;
      for (const TensorDecl& decl : update.program.tensors)
        views.push_back(impl_->view(decl.name, tensor, part, first_rows[i]));
      update.kernel->run(views);
    }
  }
}

}  // namespace coda
