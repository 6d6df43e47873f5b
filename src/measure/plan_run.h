// SPDX-License-Identifier: Apache-2.0
// A plan that is ready to run on a backend, with memory for everything that a caller binds, filled
// once. The session owns the results, so they take memory only while they exist. Weights are as
// small as a model's, so that activations keep their size. Scales of 8-bit operands are learned
// first, as by a trainer.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "coda/plan.h"
#include "coda/session.h"
#include "runtime/eight_bit_scales.h"
#include "runtime/parameter_copies.h"

namespace coda::measure {

class PlanRun {
 public:
  // Fills a tensor with random numbers of this size; whole ones (rows of tables, columns) are
  // below `limit`.
  using Fill =
      std::function<void(const TensorView& view, uint64_t seed, float size, uint32_t limit)>;

  // `copies`: of parameters, made once. The backend must outlive this. `timing`: of each step, see
  // SessionOptions.
  PlanRun(const Plan& plan, const std::vector<ParameterCopy>& copies, Backend& backend,
          const DimValues& sizes, const Fill& fill, bool timing = false);

  // The forward, and the backward if the plan has one.
  void run();

  const Session& session() const { return session_; }
  int64_t session_bytes() const { return session_.arena_bytes() + session_.saved_bytes(); }
  int64_t bound_bytes() const { return bound_bytes_; }

 private:
  void make_copies();

  Session session_;
  std::vector<BackendMemory> memory_;
  std::unique_ptr<EightBitScales> scales_;  // null: no products in 8 bits
  std::unique_ptr<ParameterCopies> copies_;
  int64_t bound_bytes_ = 0;
};

}  // namespace coda::measure
