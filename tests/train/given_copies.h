// SPDX-License-Identifier: Apache-2.0
// The copies of weights in 8 bits that a trainer's plan is given.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "coda/backend.h"
#include "coda/trainer.h"

namespace coda {

// By name: their bytes.
inline std::map<std::string, std::vector<std::byte>> given_copies(const Trainer& trainer,
                                                                  Backend& backend) {
  std::map<std::string, std::vector<std::byte>> all;
  for (const PlanTensor& t : trainer.session().plan().tensors) {
    if (t.role != TensorRole::input || size_of(t.decl.dtype) > 1) continue;
    const TensorView own = trainer.session().view(t.decl.name);
    std::vector<std::byte>& bytes = all[t.decl.name];
    bytes.resize(static_cast<size_t>(own.rows * own.cols));
    backend.copy_out(own, dense_view(bytes.data(), own.dtype, own.rows, own.cols));
  }
  return all;
}

}  // namespace coda
