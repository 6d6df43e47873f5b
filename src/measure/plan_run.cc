// SPDX-License-Identifier: Apache-2.0
#include "measure/plan_run.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "coda/eight_bits.h"
#include "measure/program_run.h"

namespace coda::measure {
namespace {

// How large whole numbers may be, by tensor, so that they are inside all that they index; what only
// opaque calls read (ids of an embedding) is 0.
std::map<std::string, uint32_t> index_limits(const Plan& plan, const DimValues& sizes) {
  std::map<std::string, uint32_t> limits;
  for (const auto* steps : {&plan.forward, &plan.backward}) {
    for (const PlanStep& step : *steps) {
      const auto* program = std::get_if<Program>(&step.work);
      if (program == nullptr) continue;
      for (size_t t = 0; t < program->tensors.size(); ++t) {
        if (program->tensors[t].dtype != DType::i32) continue;
        const uint32_t limit = index_limit(*program, sizes, static_cast<int>(t));
        const auto [entry, is_new] = limits.try_emplace(program->tensors[t].name, limit);
        if (!is_new) entry->second = std::min(entry->second, limit);
      }
    }
  }
  return limits;
}

float size_of_numbers(const PlanTensor& tensor, const PhysicalShape& shape) {
  const bool is_matrix = shape.rows > 1 && shape.cols > 1;
  return tensor.role == TensorRole::parameter && is_matrix
             ? 1 / std::sqrt(static_cast<float>(shape.cols))
             : 1;
}

}  // namespace

PlanRun::PlanRun(const Plan& plan, const std::vector<ParameterCopy>& copies, Backend& backend,
                 const DimValues& sizes, const Fill& fill, bool timing)
    : session_(plan, backend, sizes, {.timing = timing, .own_results = true}) {
  uint64_t seed = 0;
  const std::vector<std::string> copied = stored_by(copies);
  const std::map<std::string, uint32_t> limits = index_limits(plan, sizes);
  for (const PlanTensor& tensor : plan.tensors) {
    const bool callers = tensor.role == TensorRole::input || tensor.role == TensorRole::parameter ||
                         tensor.role == TensorRole::output;
    if (!callers || !tensor.view_of.empty()) continue;
    ++seed;
    if (session_.owns(tensor.decl.name)) continue;
    const PhysicalShape shape = physical_shape(tensor.decl, sizes);
    if (tensor.decl.name == kScales) {
      const auto scales = static_cast<size_t>(shape.cols / kScaleColumns);
      scales_ = std::make_unique<EightBitScales>(backend, std::vector<float>(scales, 1), nullptr);
      scales_->bind(session_);
      continue;
    }
    if (tensor.decl.name == kInverses || tensor.decl.name == kMagnitudes ||
        tensor.decl.name == kParameterMagnitudes)
      continue;
    const int64_t bytes = shape.rows * shape.cols * size_of(tensor.decl.dtype);
    bound_bytes_ += bytes;
    if (std::ranges::find(copied, tensor.decl.name) != copied.end()) continue;
    memory_.push_back(backend.allocate(static_cast<size_t>(bytes), tensor.decl.name));
    const TensorView view =
        dense_view(memory_.back().get(), tensor.decl.dtype, shape.rows, shape.cols);
    const auto limit = limits.find(tensor.decl.name);
    fill(view, seed, size_of_numbers(tensor, shape), limit == limits.end() ? 1 : limit->second);
    session_.bind(tensor.decl.name, view);
  }
  copies_ = std::make_unique<ParameterCopies>(backend, copies, session_);
  if (scales_) {
    scales_->learn([this] {
      make_copies();
      run();
    });
  }
  make_copies();
}

void PlanRun::make_copies() {
  if (scales_) scales_->start_copies();
  copies_->make();
}

void PlanRun::run() {
  session_.forward();
  if (!session_.plan().backward.empty()) session_.backward();
}

}  // namespace coda::measure
