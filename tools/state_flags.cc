// SPDX-License-Identifier: Apache-2.0
#include "state_flags.h"

#include "coda/error.h"
#include "flag_values.h"

namespace coda::tools {

void StateFlags::add_to(CLI::App& command, const std::string& group) {
  const auto add_type = [&](const char* name, std::string& value, const char* help) {
    command.add_option(name, value, help)
        ->check(CLI::IsMember({"fp32", "bf16"}))
        ->capture_default_str()
        ->group(group);
  };
  add_type("--moments", moments,
           "Type of the optimizer's states: fp32, or bf16, rounded stochastically, which halves "
           "their memory on a GPU");
  command
      .add_flag("--moments-on-host", moments_on_host,
                "Keep the optimizer's states in the host's memory, for a GPU that is too small for "
                "them; each step then reads and writes them over the bus")
      ->group(group);
  add_type("--master-weights", master_weights,
           "Type of the weights that GEMMs read in 16 bits: fp32, with a rounded copy, or bf16, "
           "rounded stochastically by each step, without another copy");
}

void StateFlags::set(Optimizer& optimizer, DType storage) const {
  for (OptimizerState& state : optimizer.states) state.dtype = storage_type(moments);
  optimizer.states_on_host = moments_on_host;
  optimizer.weights = storage_type(master_weights);
  require(optimizer.weights == DType::f32 || storage == DType::bf16,
          "--master-weights bf16: with --dtype fp32 no weight is read in 16 bits (add --dtype "
          "bf16)");
}

}  // namespace coda::tools
