// SPDX-License-Identifier: Apache-2.0
// What the compiler knows of opaque calls, one row a function: how its adjoint is called, and a
// naive float64 body that the reference evaluator runs. Adding an opaque function is a row here and
// a kernel in each backend.
#pragma once

#include <string_view>
#include <vector>

#include "coda/graph.h"

namespace coda {

// A [rows, cols] row-major float64 matrix.
struct Matrix {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<double> data;

  double& at(int64_t r, int64_t c) { return data[static_cast<size_t>(r * cols + c)]; }
  double at(int64_t r, int64_t c) const { return data[static_cast<size_t>(r * cols + c)]; }
};

struct OpaqueInfo {
  std::string_view function;
  // Cotangents of the operands from those of the results (a cotangent with graph == nullptr is zero
  // or not wanted). Null: the function cannot be differentiated.
  std::vector<Value> (*adjoint)(const Node& call, const std::vector<Value>& operands,
                                const std::vector<Value>& results,
                                const std::vector<Value>& cotangents);
  // Operands -> results, in float64. `attributes` and `sizes` are the call's.
  std::vector<Matrix> (*evaluate)(const std::map<std::string, double>& attributes,
                                  const std::map<std::string, int64_t>& sizes,
                                  const std::vector<Matrix>& operands,
                                  const std::vector<Matrix>& results);
};

// The row of a function; Error if there is none.
const OpaqueInfo& opaque_info(std::string_view function);

}  // namespace coda
