// SPDX-License-Identifier: Apache-2.0
// Writes one program: the steps that compute its stores and reductions from tensors in memory.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "plan/partition/partition.h"
#include "plan/write/names.h"
#include "program/tile_map.h"

namespace coda {

// Something that does not fit into one tile with the rest of its program, and the values whose
// readers should load them instead, best first.
struct Misfit {
  std::string problem;
  std::vector<int> apart;
};

class ProgramWriter {
 public:
  ProgramWriter(const JointGraph& joint, const Partition& partition, TensorNames& names,
                std::string name, PlanPoint at, bool backward);

  // For tile programs and GEMMs.
  void store_tile(int id);
  void reduce(int id);

  // For finalizers: combines partials, computes vectors from them and from vectors in memory, and
  // stores them. `is_made_here`: vectors that this finalizer computes; `is_read_elsewhere`: vectors
  // that other programs load.
  void store_vector(int id, const std::function<bool(int)>& is_made_here,
                    const std::function<bool(int)>& is_read_elsewhere);

  // Vectors that the program loads and that a finalizer must have stored.
  const std::set<int>& loaded_vectors() const { return loaded_vectors_; }
  bool empty() const { return program_.steps.empty(); }

  // None if all values of the program fit into tiles.
  std::optional<Misfit> misfit() const;
  // Whether the program has a GEMM.
  bool has_product() const;
  Program finish();

 private:
  int push(Step step);
  int tensor(const std::string& name);
  int value(int id);
  int compute(int id);
  int vector_value(int id);
  StepWork columns_work(int id) const;
  Step combine(int id, int result);  // of a node's reduction
  int finalizer_value(int id);
  double divisor_of(const Node& n) const;
  int size_value(const Dim& dim);
  int merged_squares(const Step& combine, int second, const Node& node);
  int load_vector(int id, int result);
  Dim repeat_of(int id) const;
  int gemm(const Node& node);
  int load(int id);
  bool is_in_memory(int id) const;
  int through_inverse(int id);
  int elementwise_step(Elementwise fn, std::vector<int> operands, const Shape& shape);
  int elementwise_value(const Node& node, const std::function<int(int)>& operand);
  int constant(double number);
  int rounded(int id);
  bool scales_stored(int id) const;
  bool stores_below(int id);
  void reduce_members_apart(const program::TileMap& map);
  int node_of(int step) const;

  const JointGraph& joint_;
  const Graph& graph_;
  const Partition& partition_;
  TensorNames& names_;
  PlanPoint at_;
  bool backward_;
  Program program_;
  std::map<std::string, int> tensors_;
  std::map<int, int> steps_;
  std::map<int, int> rounded_;
  std::map<int, int> as_stored_;
  std::map<int, bool> stores_below_;
  std::map<double, int> constants_;
  std::map<std::pair<int, int>, int> vectors_;
  std::set<int> loaded_vectors_;
  std::function<bool(int)> is_made_here_;
  std::function<bool(int)> is_read_elsewhere_;
};

}  // namespace coda
