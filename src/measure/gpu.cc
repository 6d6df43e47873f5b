// SPDX-License-Identifier: Apache-2.0
#include "measure/gpu.h"

#include <cmath>

namespace coda::measure {
namespace {

std::shared_ptr<gpu::GpuState> make_state(std::string_view target) {
  auto state = std::make_shared<gpu::GpuState>();
  state->context = std::make_shared<gpu::Context>();
  state->kernels =
      std::make_unique<gpu::LoadedKernels>(state->context, gpu::CacheOptions{}, target);
  const gpu::Context::Scope scope(*state->context);
  gpu::check_driver(gpu::driver().stream_create(&state->stream, gpu::cuda::kNonBlocking),
                    "making a stream");
  return state;
}

}  // namespace

Gpu::Gpu(std::string_view target)
    : state_(make_state(target)),
      scope_(*state_->context),
      clock_(state_),
      timer_(state_->stream, power_, &clock_) {}

Gpu::~Gpu() { gpu::driver().stream_synchronize(state_->stream); }

std::string Gpu::text() const {
  return state_->context->info().name + ", driver for CUDA " +
         gpu::cuda_version_text(gpu::driver().version) + ", power limit " +
         std::to_string(std::lround(power_.limit_watts())) + " W";
}

}  // namespace coda::measure
