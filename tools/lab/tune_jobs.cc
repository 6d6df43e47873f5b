// SPDX-License-Identifier: Apache-2.0
#include "tune_jobs.h"

#include <fmt/format.h>

#include <set>

#include "coda/error.h"
#include "hopper/tuned_file.h"

namespace coda::tools {

TuneGpu::TuneGpu() {
  state = std::make_shared<hopper::HopperState>();
  state->context = std::make_shared<const hopper::Context>();
  hopper::check_architecture(state->context->info());
  scope = std::make_unique<hopper::Context::Scope>(*state->context);
  state->kernels = std::make_unique<hopper::LoadedKernels>(state->context, hopper::CacheOptions{});
  hopper::check_driver(hopper::driver().stream_create(&state->stream, hopper::cuda::kNonBlocking),
                       "making a stream");
  file = hopper::tuned_file(hopper::default_cache_folder(), state->context->info(),
                            state->kernels->builder().compiler().version());
}

std::string TuneGpu::name() const {
  return fmt::format("{}, driver {}, NVRTC {}", state->context->info().name,
                     hopper::driver_version_text(),
                     state->kernels->builder().compiler().version().text());
}

std::vector<measure::TuneJob> jobs_of(const std::vector<SizedProgram>& programs,
                                      const hopper::LowerOptions& common) {
  std::vector<measure::TuneJob> jobs;
  std::set<std::string> seen;
  for (const SizedProgram& one : programs) {
    hopper::LowerOptions options = common;
    options.row_strides = one.options.row_strides;
    try {
      for (measure::TuneJob& job : measure::tune_jobs(one.program, one.sizes, options)) {
        const hopper::KernelClass own = measure::class_of(job);
        if (seen.insert(own.name + hopper::text(own.extents)).second)
          jobs.push_back(std::move(job));
      }
    } catch (const Error& error) {
      fmt::print(stderr, "coda: not tuned: {}\n", error.what());
    }
  }
  return jobs;
}

nlohmann::ordered_json tuned_json(const measure::TuneJob& job, const measure::TunedKernel& tuned) {
  nlohmann::ordered_json choices = nlohmann::json::array();
  for (const hopper::TimedChoice& one : tuned.choices) {
    choices.push_back(
        {{"configuration", hopper::code(one.choice)}, {"microseconds", one.microseconds}});
  }
  nlohmann::ordered_json spaces = nlohmann::json::array();
  for (const hopper::SpaceWork& space : tuned.work) {
    spaces.push_back({{"rows", space.extents.rows},
                      {"columns", space.extents.columns},
                      {"k", space.extents.k},
                      {"parts", space.shape.parts},
                      {"planes", space.planes},
                      {"operations", space.operations}});
  }
  return {{"program", job.name},
          {"class", tuned.kernel.name},
          {"extents", hopper::text(tuned.kernel.extents)},
          {"spaces", spaces},
          {"chosen", hopper::code(tuned.chosen.choice)},
          {"chosen_by", hopper::text(tuned.chosen)},
          {"chosen_microseconds", tuned.chosen_microseconds},
          {"choices", choices}};
}

}  // namespace coda::tools
