// SPDX-License-Identifier: Apache-2.0
// Requests of gradients under the names that files of programs and of graphs give them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "coda/compile_request.h"

namespace coda {

using IsTaken = std::function<bool(const std::string& name)>;

// `wanted`, or with a number where the graph has such an input or it is taken.
std::string free_name(const Graph& graph, const IsTaken& is_taken, const std::string& wanted);

// The type of a matrix of 16 bits.
std::optional<DType> kept_type(const Shape& shape, DType dtype);

// Seeds each output `names[i]` of the request with "grad_of_NAME" and asks for "grad_to_NAME" of
// all inputs that are no tables and that outputs depend on; without any, nothing is seeded.
void request_gradients(Graph& graph, const std::vector<std::string>& names, const IsTaken& is_taken,
                       CompileRequest& request);

}  // namespace coda
