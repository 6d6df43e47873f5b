// SPDX-License-Identifier: Apache-2.0
// Whether the backends compute what a program says: random inputs against float64, everything that
// is not an input poisoned, guards around every tensor, and the same bits in two runs and in
// several configurations.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "coda/api.h"
#include "coda/program.h"

namespace CODA_API coda {

struct CheckOptions {
  std::string backend{};      // "cpu" or "gpu"; empty: every available backend
  size_t configurations = 4;  // ways to cut the program into tiles whose bits are compared
  uint64_t seed = 1;          // of the inputs
  bool traps = true;          // also the inputs and memory of CheckedBackend::traps
  // Told what comes next, as far as it takes seconds.
  std::function<void(const std::string&)> says = [](const std::string&) {};
};

// What a backend stored. `bound` is the error that rounding to the stored types makes, plus 1e-5
// for arithmetic in single precision, or what evaluations with random errors of that size predict.
struct CheckedTensor {
  TensorDecl decl;
  double error = 0;  // |computed - exact| / |exact|, norms over all elements; exact is float64
  double bound = 0;
  int64_t not_finite = 0;  // elements that are not, in the exact result
  bool is_nan = false;     // the exact result is NaN everywhere, so nothing can be compared
  bool is_right() const { return error <= bound && !is_nan; }
};

struct CheckedBackend {
  std::string name;       // "cpu", "gpu"
  std::string refused{};  // why it does not take the program; empty: it does
  std::vector<CheckedTensor> tensors{};
  std::vector<std::string> overrun{};    // tensors beside which memory was written
  size_t configurations = 0;             // that ran
  std::vector<std::string> different{};  // those of them that gave other bits
  std::vector<std::string> left_out{};   // configurations that do not take the program, and why
  // Zeros, huge and tiny inputs, infinity around tensors, results in the place of inputs: what was
  // tried and is right, and what is wrong. Left out where the reference takes long.
  std::vector<std::string> traps{};
  std::vector<std::string> wrong_traps{};
  std::vector<std::string> notes{};  // where the program does not hold in fp32, on any backend
  bool is_right() const;             // what is refused is not wrong
};

struct CheckReport {
  bool has_positive_inputs = false;  // of negative ones not all results would be finite
  std::vector<CheckedBackend> backends{};
  bool is_right() const;
};
std::string text(const CheckReport& report);  // lines, for people

// Throws Error if a size is missing, if the float64 reference would take more than ten minutes, and
// if the machine lacks the backend that is asked for.
CheckReport check_program(const Program& program, const DimValues& sizes,
                          const CheckOptions& options = {});

// The gradient of an input, "grad_to_NAME", as the compiler derives it.
struct CheckedGradient {
  std::string name;
  double error = 0;  // along a random direction, of the size of the gradient along it
  double bound = 0;
  bool is_right() const { return error <= bound; }
};
struct BackwardReport {
  std::string left_out{};  // why nothing was checked; empty: it was
  std::vector<CheckedGradient> gradients{};
  // Of a written backward: what the forward stores and no gradient comes from.
  std::vector<std::string> without_gradient{};
  std::vector<std::string> not_compared{};  // stored by a written backward, no input's gradient
  bool is_right() const;
};
std::string text(const BackwardReport& report);  // lines, for people

// The derived backward of programs one behind the other (coda/lift.h) against finite differences in
// float64, all numbers in fp32. Not where no backward can be derived, or where it takes long.
BackwardReport check_backward(std::span<const Program> programs, const DimValues& sizes,
                              uint64_t seed = 1);

// A backward that was written by hand, or edited, against finite differences of the forward, both
// in float64. It reads the forward's tensors by their names, and the gradients of what the forward
// stores, of a partial that of its whole reduction, as grad_of_NAME, grad_NAME, d_NAME or dNAME; it
// stores those of the forward's inputs as grad_to_NAME, or named in the same ways. What is not read
// counts as 0. Throws Error where nothing is named so.
BackwardReport check_written_backward(std::span<const Program> forward,
                                      std::span<const Program> backward, const DimValues& sizes,
                                      uint64_t seed = 1);

}  // namespace CODA_API coda
