// SPDX-License-Identifier: Apache-2.0
// Requests gradients under the standard names of program and graph files.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "coda/compile_request.h"

namespace coda {

using IsUsed = std::function<bool(const std::string& name)>;

// `wanted`, with a number appended if the graph has such an input or the name is taken.
std::string free_name(const Graph& graph, const IsUsed& is_used, const std::string& wanted);

// The type of a 16-bit matrix; none for other values.
std::optional<DType> gradient_type(const Shape& shape, DType dtype);

// Seeds each output `names[i]` of the request with "grad_of_NAME" and requests "grad_to_NAME" for
// all inputs that outputs depend on, except tables. If there are none, nothing is seeded.
void request_gradients(Graph& graph, const std::vector<std::string>& names, const IsUsed& is_used,
                       CompileRequest& request);

}  // namespace coda
