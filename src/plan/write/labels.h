// SPDX-License-Identifier: Apache-2.0
// What a reader may call a value of a joint graph: after the weight that makes it, the tensor that
// is reduced, the value whose gradient it is. Names come from the graph alone, so that they are the
// same at every run; two values may have one name (plan/write/names.h makes them unique).
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
  std::map<int, int> product_of_;   // a weight -> its product of the forward
  std::map<int, int> gradient_of_;  // a value of the backward -> the value whose gradient it is
  std::map<int, std::string> made_;
};

}  // namespace coda
