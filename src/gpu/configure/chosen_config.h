// SPDX-License-Identifier: Apache-2.0
// Chooses the configurations for a kernel, in order, from four sources: a request, measurements of
// `coda tune` on this machine, the shipped table, or the model. Everything that makes kernels asks
// here, so that all agree. The first configuration is used unless it spills registers; then the
// next one is tried.
#pragma once

#include "gpu/configure/tuned_rows.h"

namespace coda::gpu {

enum class ChoiceSource : uint8_t { asked, tuned, table, model };

struct ChosenConfig {
  GemmConfig choice;
  ChoiceSource source = ChoiceSource::model;
  std::string measured_at{};          // extents of the table row that it comes from
  std::vector<GemmConfig> spilled{};  // earlier configurations that are known to spill
};

// The legal configurations of the kernel, best first; only the requested one if there is a request.
// Never empty. Only one configuration for each tile and schedule, because these determine spills:
// clusters and stages change register use by only two or three.
std::vector<ChosenConfig> config_order(const ProgramSizes& sizes, const program::TileMap& map,
                                       const KernelSpaces& kernel);

// "tuned at 16384x4096x4096", "the shipped table at ...; registers spill with 128x256c21s3".
std::string text(const ChosenConfig& chosen);

}  // namespace coda::gpu
