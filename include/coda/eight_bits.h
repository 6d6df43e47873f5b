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

// The caller binds three or four tensors, fp32 [1, kScaleColumns * n] for n scales
// (Compiled::first_scales): scale i is in column kScaleColumns * i, so that each is aligned. A
// Trainer does all of it.
inline constexpr int64_t kScaleColumns = 16;
inline constexpr const char* kScales = "eight_bits.scale";        // an operand's values times it
inline constexpr const char* kInverses = "eight_bits.inverse";    // 1 / scale
inline constexpr const char* kMagnitudes = "eight_bits.largest";  // raised by each run, from 0
// The same, raised by Compiled::parameter_copies instead; there only where these are.
inline constexpr const char* kParameterMagnitudes = "eight_bits.largest_of_parameters";

// The names that commands and bindings give them (docs/fp8.md), "fp8" first.
std::vector<std::string> eight_bits_names();

// The recipe of such a name; none for any other.
EightBits eight_bits_of(std::string_view name);

// The text of the program that finds the scales of the next step. Its tensors are [1, N], N being
// kScaleColumns for each scale, but for `sound`, [1, 1]: where that is 0 nothing changes.
const char* next_scales_program();

}  // namespace CODA_API coda
