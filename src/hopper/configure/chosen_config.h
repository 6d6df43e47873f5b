// SPDX-License-Identifier: Apache-2.0
// Which configuration a kernel gets, and why: what was asked for, what `coda tune` measured on this
// machine, what the shipped table has measured, or what the model ranks first. Whoever makes
// kernels asks here, so all agree.
#pragma once

#include "hopper/configure/tuned_rows.h"

namespace coda::hopper {

enum class ChoiceSource : uint8_t { asked, tuned, table, model };

struct ChosenConfig {
  GemmConfig choice;
  ChoiceSource source = ChoiceSource::model;
  std::string measured_at{};  // extents of the row that it comes from
};

// Of the configurations that are legal for the kernel. Throws nothing: there is one.
ChosenConfig choose_config(const ProgramSizes& sizes, const program::TileMap& map,
                           const KernelSpaces& kernel);

// "tuned at 16384x4096x4096", "the shipped table at ...", "the model".
std::string text(const ChosenConfig& chosen);

}  // namespace coda::hopper
