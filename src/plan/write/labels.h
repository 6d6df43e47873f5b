// SPDX-License-Identifier: Apache-2.0
// Readable labels for values of a joint graph: after the weight of their GEMM, the tensor that is
// reduced, or the value whose gradient they are. Labels depend only on the graph, so they are the
// same in every run. Two values may have the same label (plan/write/names.h makes them unique).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "rewrite/joint.h"

namespace coda {

class Labels {
 public:
  explicit Labels(const JointGraph& joint);

  // "l0.q_out", "l0.o_residual", "l0.o_residual_rstd", "l0.d_gate_out".
  const std::string& of(int id);

 private:
  std::string make(int id);
  std::string product(int id);
  std::string call_result(const Node& node);
  std::string tensor(int id);
  std::string elementwise_tensor(int id);
  std::string scaled(int tensor, int vector);
  std::string vector(int id);
  std::string reduction(const Node& node);
  bool is_forward(int id) const { return joint_.forward[static_cast<size_t>(id)]; }
  bool is_tensor(int id) const { return graph_.node(id).shape.is_tensor(); }
  bool is_constant(int id) const;
  int weight_of(int id) const;
  void find_products();
  void find_gradients();
  void made_of_products(int id, std::vector<int>& products) const;
  void members_of(int id, int depth, bool (&found)[2]) const;

  const JointGraph& joint_;
  const Graph& graph_;
  std::map<int, int> product_of_;   // a weight -> its forward GEMM
  std::map<int, int> gradient_of_;  // a backward value -> the value whose gradient it is
  std::map<int, std::string> made_;
};

}  // namespace coda
