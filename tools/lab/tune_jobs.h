// SPDX-License-Identifier: Apache-2.0
// What `coda tune` needs for programs and for the shipped table alike: the GPU, the kernels of
// programs that can be timed, and a timed kernel as JSON.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "hopper/launch/context.h"
#include "hopper/launch/launched_kernel.h"
#include "measure/tune.h"
#include "sized_programs.h"

namespace coda::tools {

// Throws where there is no such GPU.
struct TuneGpu {
  TuneGpu();

  std::shared_ptr<hopper::HopperState> state;
  std::unique_ptr<hopper::Context::Scope> scope;
  std::filesystem::path file;  // of what is tuned

  std::string name() const;  // with the driver's and the compiler's versions
};

// Each class at each size once, in the programs' order; says on stderr what cannot be tuned.
std::vector<measure::TuneJob> jobs_of(const std::vector<SizedProgram>& programs,
                                      const hopper::LowerOptions& common);

nlohmann::ordered_json tuned_json(const measure::TuneJob& job, const measure::TunedKernel& tuned);

}  // namespace coda::tools
