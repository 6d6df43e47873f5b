// SPDX-License-Identifier: Apache-2.0
// --device, --target and --attention: where a model runs. --gpu: the card to plan for.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "coda/backend.h"
#include "coda/gpu_card.h"
#include "coda/kernels.h"

namespace coda::tools {

// --target: the GPU's kernels (BackendOptions::target).
void add_target(CLI::App& command, std::string& target);

// --gpu: a card that this machine need not have.
struct CardFlag {
  std::string name;  // empty: none

  void add_to(CLI::App& command, const std::string& what);
  // Null if none is named. Throws Error with the nearest names.
  const GpuCard* card() const { return name.empty() ? nullptr : &gpu_card(name); }
  Rates rates() const { return card() == nullptr ? h200_rates() : rates_of(*card()); }
  KernelOptions kernels(const std::string& target) const;
};

struct DeviceFlags {
  std::string device = "auto";
  std::string target;
  std::string attention = "repeatable";

  void add_to(CLI::App& command);
  // `number`: of the GPU; -1: the first. Throws Error if the machine lacks the requested device.
  std::unique_ptr<Backend> backend(int number = -1) const;
};

}  // namespace coda::tools
