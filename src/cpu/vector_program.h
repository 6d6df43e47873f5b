// SPDX-License-Identifier: Apache-2.0
// The vectors and scalars of a program: computed completely at the start of each run, before the
// tiles, in program order. A finalizer consists only of these.
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

  // Adds a step, whose operands must already be added. Returns the vector's number; -1 for a store.
  int add_step(int step);
  // Adds the columns of vector `source` that belong to one plane of a paired value.
  int add_plane(int source, const ColumnMap& map, int plane);
  int number_of(int step) const;

  void place(ScratchPieces& pieces);
  void run(std::span<const TensorView> tensors, char* scratch, int threads) const;
  // The address of vector `number` during a run.
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
