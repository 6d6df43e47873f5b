// SPDX-License-Identifier: Apache-2.0
// The CUDA text of elementwise operations, numbers and names, shared by all emitters. Every
// expression compiles for a float, for Elements<N> of device/values/elements.cuh (neighbouring
// columns of one row), and for mixtures of both (a float applies to all columns). Emitters write
// straight-line code with one line per step: `const auto v = acc * r;`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "coda/dtype.h"
#include "coda/elementwise.h"
#include "coda/program.h"

namespace coda::gpu {

// The operation on operands that are names or in parentheses: "acc * r", "sigmoid(gate)".
std::string expression(Elementwise op, const std::vector<std::string>& operands);

// A float literal that parses to the nearest float: "0.5f", "-1e-05f"; infinities have names.
std::string number_text(double number);

// Turns the name of a value or tensor into a C++ identifier: dots and other characters become "_";
// keywords, reserved names and leading digits get the prefix "v_".
std::string identifier(std::string_view name);

// The device name of a reduction, "Reduction::sum" (device/values/reductions.cuh).
std::string reduction_text(PartialKind kind);

// The device name of an element type for template arguments, "Element::bf16" (device/element.cuh).
std::string element_text(DType type);

}  // namespace coda::gpu
