// SPDX-License-Identifier: Apache-2.0
// What is measured: every step without a product of a LLaMA model's plan, and programs that no such
// plan has, over 16384 tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coda/plan.h"

namespace coda::hopper_memory {

inline constexpr int64_t kTokens = 16384;

struct Case {
  std::string row;
  int64_t hidden = 0;
  PlanStep step;
  std::vector<TensorDecl> tensors;  // as the step's kernel takes them
  DimValues sizes;
  int64_t vocabulary = 1;  // ids and targets are below

  // Each tensor once for each way it is used; of an embedding's table the rows that are looked up.
  double bytes() const;
};

// Of one layer between embedding and head, hidden size 2048 (vocabulary 32768) or 4096 (128256),
// steps that differ in names only once; attention is left out.
std::vector<Case> model_cases(int64_t hidden);
std::vector<Case> other_cases();

// The steps without a product of a plan.
std::vector<Case> cases_of(const Plan& plan, const DimValues& sizes, int64_t hidden);

}  // namespace coda::hopper_memory
