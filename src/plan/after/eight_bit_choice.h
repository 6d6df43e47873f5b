// SPDX-License-Identifier: Apache-2.0
// Which products of a plan are made in 8 bits, which copies of operands they read, who makes these,
// which share a scale, and which values are saved for the backward in 8 bits. Nothing is changed
// here: eight_bits.cc writes the plan from it.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "coda/compile_request.h"
#include "plan/after/plan_operands.h"

namespace coda {

// The copies of an operand that products read, or the backward's epilogues.
struct EightBitCopies {
  // The first and the last step that read a copy; none do: < 0.
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
  // The step whose program leaves the copies beside what it does: it wrote the operand, or loads it
  // before a product reads it. -1: a program of their own makes them.
  int maker = -1;
  int tile = -1;             // of that program: its step that stores the tensor, or loads it
  bool drops_store = false;  // nothing reads the tensor in 16 bits
};

struct EightBitChoice {
  std::set<int> products;  // steps of the plan, all of whose products are in 8 bits
  std::map<Operand, EightBitCopies> copies;
  std::set<Operand> kept;  // operands whose tiles the backward loads from the copy along rows
  std::vector<float> first_scales;
  std::string note;  // how many products, and which steps' are not, and why
};

EightBitChoice choose_eight_bit_products(const PlanOperands& operands, const Plan& plan,
                                         const DimValues& sizes, EightBits which,
                                         const std::set<std::string>& except);

}  // namespace coda
