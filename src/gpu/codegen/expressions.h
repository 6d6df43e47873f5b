// SPDX-License-Identifier: Apache-2.0
// Elementwise operations, numbers and names as CUDA text: one table that all emitters share.
// Every expression works alike on a float and on device/values/elements.cuh's Elements<N>,
// neighbouring columns of one row, and on any mixture (a float is the same for all columns). An
// emitter writes straight-line code, one line a step: `const auto v = acc * r;`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "coda/dtype.h"
#include "coda/elementwise.h"
#include "coda/program.h"

namespace coda::gpu {

// The operation over operands that are names or parenthesised: "acc * r", "sigmoid(gate)".
std::string expression(Elementwise op, const std::vector<std::string>& operands);

// A float literal that parses to the nearest float: "0.5f", "-1e-05f"; infinities by name.
std::string number_text(double number);

// A C++ identifier from any name of a value or a tensor: dots and odd characters become "_", a
// keyword, a reserved name or a leading digit is prefixed by "v_".
std::string identifier(std::string_view name);

// "Reduction::sum": the device's name of a kind of partial (device/values/reductions.cuh).
std::string reduction_text(PartialKind kind);

// How an element lies in memory, for templates over it: "Element::bf16" (device/element.cuh).
std::string element_text(DType type);

}  // namespace coda::gpu
