// SPDX-License-Identifier: Apache-2.0
// Tensors of the same size share one kernel, because most layers have the same sizes. The formulas
// are elementwise, so a tensor is processed as rows of at most kMostColumns elements, whatever its
// own shape.
#include <cmath>
#include <numeric>
#include <tuple>
#include <utility>

#include "coda/error.h"
#include "coda/optimizer.h"
#include "coda/program.h"
#include "coda/tensor.h"
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

template <typename T>
TensorView view_of(std::span<T> values, DType dtype) {
  const int64_t columns = columns_of(std::ssize(values));
  return dense_view(
      const_cast<std::remove_const_t<T>*>(values.data()),  // NOLINT: kernels only read
      dtype, std::ssize(values) / columns, columns);
}

}  // namespace

struct TensorUpdate::Impl {
  struct Prepared {
    Program program;
    std::unique_ptr<Kernel> kernel;
  };
  Optimizer optimizer;
  Backend& backend;
  // By element count, whether it has a copy, whether it decays.
  std::map<std::tuple<size_t, bool, bool>, Prepared> kernels;
  std::map<std::string, Tensor> scalars;

  Impl(Optimizer its, Backend& backend) : optimizer(std::move(its)), backend(backend) {
    for (const bool decays : {true, false}) verify(update_on_host(optimizer, true, decays));
  }

  Prepared& prepared(const UpdatedTensor& tensor) {
    const auto size = tensor.weights.size();
    Prepared& its = kernels[{size, !tensor.bf16.empty(), tensor.decays}];
    if (its.kernel) return its;
    its.program = update_on_host(optimizer, !tensor.bf16.empty(), tensor.decays);
    const int64_t columns = columns_of(static_cast<int64_t>(size));
    its.kernel =
        backend.prepare(its.program, {{"R", static_cast<int64_t>(size) / columns}, {"C", columns}});
    return its;
  }

  void set(const std::string& name, double value) {
    scalars.try_emplace(name, Tensor(DType::f32, 1, 1))
        .first->second.fill(static_cast<float>(value));
  }

  TensorView view(const std::string& name, const UpdatedTensor& tensor) const {
    if (name == kMaster) return view_of(tensor.weights, DType::f32);
    if (name == kGradient) return view_of(tensor.gradients, DType::f32);
    if (name == kCopy) return view_of(tensor.bf16, DType::bf16);
    for (size_t i = 0; i < optimizer.states.size(); ++i)
      if (name == optimizer.states[i].name) return view_of(tensor.states[i], DType::f32);
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
  for (const UpdatedTensor& tensor : tensors) {
    const size_t count = tensor.weights.size();
    bool is_whole = tensor.gradients.size() == count &&
                    tensor.states.size() == optimizer.states.size() &&
                    (tensor.bf16.empty() || tensor.bf16.size() == count);
    for (const auto& state : tensor.states) is_whole = is_whole && state.size() == count;
    invariant(is_whole, "TensorUpdate: the arrays of a tensor differ in size");
    if (count == 0) continue;
    const Impl::Prepared& its = impl_->prepared(tensor);
    std::vector<TensorView> views;
    for (const TensorDecl& decl : its.program.tensors)
      views.push_back(impl_->view(decl.name, tensor));
    its.kernel->run(views);
  }
}

}  // namespace coda
