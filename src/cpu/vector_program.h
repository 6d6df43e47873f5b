// SPDX-License-Identifier: Apache-2.0
// The vectors and scalars of a program: computed whole, once a run, before any tile, in the
// program's order. A finalizer is nothing else.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "coda/program.h"
#include "coda/tensor.h"
#include "cpu/tile_program.h"
#include "cpu/workspace.h"

namespace coda::cpu {

class VectorProgram {
 public:
  explicit VectorProgram(const Program& program, const DimValues& sizes)
      : program_(program), sizes_(sizes) {}

  // Adds a step (its operands must have been added) and returns the vector's number; -1 for a
  // store.
  int add_step(int step);
  // Adds the columns of vector `source` that one plane of a paired value has.
  int add_plane(int source, const ColumnMap& map, int plane);
  int number_of(int step) const;

  void place(ScratchPieces& pieces);
  void run(std::span<const TensorView> tensors, char* scratch, int threads) const;
  // Where vector `number` is while the program runs.
  const float* vector(int number, const char* scratch) const;

 private:
  struct Item {
    int step = -1;    // of the program; -1 for a plane
    int source = -1;  // of a plane
    ColumnMap map;
    int plane = 0;
    std::vector<int> operands;  // numbers
    int64_t length = 0;
    int64_t offset = -1;  // in scratch memory
  };

  void run_step(const Item& item, std::span<const TensorView> tensors, char* scratch,
                int threads) const;
  void run_combine(const Step& step, const TensorView& partial, int64_t length, float* out,
                   int threads) const;

  Program program_;
  DimValues sizes_;
  std::vector<Item> items_;
};

}  // namespace coda::cpu
