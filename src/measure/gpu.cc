// SPDX-License-Identifier: Apache-2.0
#include "measure/gpu.h"

#include <cmath>

namespace coda::measure {
namespace {

std::shared_ptr<hopper::HopperState> make_state() {
  auto state = std::make_shared<hopper::HopperState>();
  state->context = std::make_shared<hopper::Context>();
  hopper::check_architecture(state->context->info());
  state->kernels = std::make_unique<hopper::LoadedKernels>(state->context, hopper::CacheOptions{});
  const hopper::Context::Scope scope(*state->context);
  hopper::check_driver(hopper::driver().stream_create(&state->stream, hopper::cuda::kNonBlocking),
                       "making a stream");
  return state;
}

}  // namespace

Gpu::Gpu()
    : state_(make_state()),
      scope_(*state_->context),
      clock_(state_),
      timer_(state_->stream, power_, &clock_) {}

Gpu::~Gpu() { hopper::driver().stream_synchronize(state_->stream); }

std::string Gpu::text() const {
  return state_->context->info().name + ", driver for CUDA " +
         hopper::cuda_version_text(hopper::driver().version) + ", power limit " +
         std::to_string(std::lround(power_.limit_watts())) + " W";
}

}  // namespace coda::measure
