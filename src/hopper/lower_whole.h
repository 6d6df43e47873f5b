// SPDX-License-Identifier: Apache-2.0
// A program as it is, as launches that share nothing: without splitting it.
#pragma once

#include <string>
#include <vector>

#include "hopper/codegen/kernel_launch.h"
#include "hopper/configure/choose_config.h"
#include "hopper/legalise/lower_options.h"

namespace coda::hopper {

struct WholeProgram {
  std::vector<KernelLaunch> launches;
  bool has_products = false;
  bool takes_choice = false;  // its first kernel with products is made as options.choice says
};

// Throws Error where a tile space fits into no kernel. A choice that a kernel cannot take is
// replaced there by the model's.
WholeProgram lower_whole(const Program& program, const DimValues& sizes,
                         const LowerOptions& options);

// The same, without the text of products: empty if lower_whole() returns, else its error.
std::string why_not_whole(const Program& program, const DimValues& sizes,
                          const LowerOptions& options);

}  // namespace coda::hopper
