// SPDX-License-Identifier: Apache-2.0
// A slow and simple backend for testing others: programs step by step over whole matrices in
// float64, opaque calls by their definitions, and each tensor rounded to its type when it is
// stored.
#pragma once

#include "coda/backend.h"

namespace coda {

class ReferenceBackend : public Backend {
 public:
  std::string_view name() const override { return "reference"; }
  std::unique_ptr<Kernel> prepare(const Program& program, const DimValues& sizes) override;
  std::unique_ptr<Kernel> prepare(const OpaqueCall& call, std::span<const TensorDecl> tensors,
                                  const DimValues& sizes) override;
};

}  // namespace coda
