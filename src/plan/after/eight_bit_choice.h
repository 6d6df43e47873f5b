// SPDX-License-Identifier: Apache-2.0
// Decides which GEMMs of a plan run in 8 bits: the copies of operands that they read, which program
// makes each copy, which copies share a scale, and which values are saved in 8 bits for the
// backward. Changes nothing; eight_bits.cc rewrites the plan.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "coda/compile_request.h"
#include "plan/after/plan_operands.h"

namespace coda {

// The 8-bit copies of one tensor. GEMMs read them as operands; epilogues of the backward load them.
struct EightBitCopies {
  // The first and last step that read a copy; negative if none does.
  struct Order {
    int first = -1;
    int last = -1;
    bool is_read() const { return first >= 0; }
    void read(int step) {
      if (first < 0) first = step;
      last = step;
    }
  };
  Order rows;     // reads of the copy in the order in which the tensor is stored
  Order columns;  // reads of the transposed copy
  int scale = -1;
  DType type = DType::e4m3;
  // The step whose program also stores the copies: it wrote the operand, or loads it before a GEMM
  // reads it. -1: a separate program makes them.
  int maker = -1;
  int tile = -1;             // the step of the maker's program that stores or loads the tensor
  bool drops_store = false;  // nothing reads the tensor in 16 bits
};

struct EightBitChoice {
  std::set<int> products;  // plan steps whose GEMMs all run in 8 bits
  std::map<Operand, EightBitCopies> copies;
  std::set<Operand> kept;  // operands whose tiles the backward loads from the row-wise copy
  std::vector<float> first_scales;
  std::string note;  // the number of GEMMs, and the steps without, with reasons
};

EightBitChoice choose_eight_bit_products(const PlanOperands& operands, const Plan& plan,
                                         const DimValues& sizes, EightBits which,
                                         const std::set<std::string>& except);

}  // namespace coda
