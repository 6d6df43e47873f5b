// SPDX-License-Identifier: Apache-2.0
// GEMMs in 8 bits: what the caller that runs a plan with CompileOptions::eight_bits must do. Each
// operand has one scale for the whole tensor, computed from the largest magnitudes of earlier runs
// (TransformerEngine calls this delayed scaling). Therefore a program can store a value in 8 bits
// at once, and finds the tensor's new largest magnitude while it stores. docs/fp8.md lists the
// speed and the loss of each setting.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "coda/api.h"
#include "coda/compile_request.h"

namespace CODA_API coda {

// The caller binds three or four fp32 tensors [1, kScaleColumns * n] for n scales
// (Compiled::first_scales). Scale i is in column kScaleColumns * i, which keeps every scale
// aligned. A Trainer does all of this.
inline constexpr int64_t kScaleColumns = 16;
inline constexpr const char* kScales = "eight_bits.scale";        // factor for an operand's values
inline constexpr const char* kInverses = "eight_bits.inverse";    // 1 / scale
inline constexpr const char* kMagnitudes = "eight_bits.largest";  // raised by each run, from 0
// The same for Compiled::parameter_copies; exists only if there are such copies.
inline constexpr const char* kParameterMagnitudes = "eight_bits.largest_of_parameters";

// The names in commands and bindings (docs/fp8.md); the first is "fp8".
std::vector<std::string> eight_bits_names();

// The recipe with this name; none for an unknown name.
EightBits eight_bits_of(std::string_view name);

// The text of the program that computes the scales for the next step. Its tensors have
// kScaleColumns columns per scale, except `sound` [1, 1]: if `sound` is 0, the scales stay as they
// are.
const char* next_scales_program();

}  // namespace CODA_API coda
