// SPDX-License-Identifier: Apache-2.0
#include "step_tensors.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "measure/random_fill.h"

namespace coda::hopper_memory {
namespace {

constexpr double kRotated = 256e6;  // bytes: several L2 caches

// Tokens as a text has them: the n-th most frequent one with a probability of about 1 / n.
void upload_tokens(gpu::GpuState& state, const TensorView& view, int64_t vocabulary,
                   uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(0, 1);
  const double top = std::log(static_cast<double>(vocabulary));
  std::vector<int32_t> tokens(static_cast<size_t>(view.size()));
  for (int32_t& token : tokens) {
    const auto rank = static_cast<int64_t>(std::exp(uniform(random) * top)) - 1;
    // Frequent tokens lie anywhere in the table.
    token = static_cast<int32_t>((rank * 40503) % vocabulary);
  }
  gpu::copy_to_device(dense_view(tokens.data(), DType::i32, view.rows, view.cols), view,
                      state.stream);
  gpu::check_driver(gpu::driver().stream_synchronize(state.stream), "copying tokens");
}

}  // namespace

unsigned sets_of(double bytes) {
  return static_cast<unsigned>(std::clamp(std::ceil(kRotated / bytes), 1.0, 32.0));
}

CaseRun::CaseRun(gpu::GpuState& state, Backend& backend, const Case& one) {
  uint64_t seed = 1;
  for (unsigned set = 0; set < sets_of(one.bytes()); ++set) {
    std::vector<TensorView>& views = views_.emplace_back();
    for (const TensorDecl& decl : one.tensors) {
      const PhysicalShape shape = physical_shape(decl, one.sizes);
      memory_.emplace_back(state.context,
                           static_cast<size_t>(shape.rows * shape.cols * size_of(decl.dtype)),
                           state.stream, decl.name, gpu::Allocation::plain);
      views.push_back(dense_view(memory_.back().data(), decl.dtype, shape.rows, shape.cols));
      const bool is_token = decl.dtype == DType::i32 && one.vocabulary > 1 &&
                            decl.name.find("position") == std::string::npos;
      if (is_token) {
        upload_tokens(state, views.back(), one.vocabulary, seed++);
      } else {
        measure::fill_random(state, views.back(), seed++, 1.0F, 4096);
      }
    }
  }
  if (const auto* program = std::get_if<Program>(&one.step.work)) {
    kernel_ = backend.prepare(*program, one.sizes);
  } else {
    kernel_ = backend.prepare(std::get<OpaqueCall>(one.step.work), one.tensors, one.sizes);
  }
}

}  // namespace coda::hopper_memory
