// SPDX-License-Identifier: Apache-2.0
// Checks that backends compute what a program says. Runs each backend on random inputs and compares
// with float64. All memory that is not an input is poisoned, every tensor has guard bytes around
// it, and the bits must agree between two runs and between several configurations.
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
  std::string target{};       // of the GPU's kernels, as BackendOptions::target
  size_t configurations = 4;  // number of tilings whose bits are compared
  uint64_t seed = 1;          // of the inputs
  bool traps = true;          // also run the tests described at CheckedBackend::traps
  // Reports what is about to run, if it takes seconds.
  std::function<void(const std::string&)> says = [](const std::string&) {};
};

// A tensor that a backend stored. `bound` is the error of rounding to the stored types plus 1e-5
// for fp32 arithmetic, or the error that evaluations with random perturbations of that size
// predict.
struct CheckedTensor {
  TensorDecl decl;
  double error = 0;  // |computed - exact| / |exact|, norms over all elements; exact is float64
  double bound = 0;
  int64_t not_finite = 0;  // non-finite elements of the exact result
  bool is_nan = false;     // the exact result is all NaN, so nothing can be compared
  bool is_right() const { return error <= bound && !is_nan; }
};

struct CheckedBackend {
  std::string name;       // "cpu", "gpu"
  std::string refused{};  // why the backend rejects the program; empty: it accepts it
  std::vector<CheckedTensor> tensors{};
  std::vector<std::string> overrun{};    // tensors with damaged guard bytes
  size_t configurations = 0;             // number of configurations that ran
  std::vector<std::string> different{};  // configurations whose bits differ
  std::vector<std::string> left_out{};   // configurations that reject the program, and why
  // Edge cases that passed, and those that failed: zeros, huge and tiny inputs, infinity around
  // tensors, results stored over inputs. Skipped if the reference is slow.
  std::vector<std::string> traps{};
  std::vector<std::string> wrong_traps{};
  std::vector<std::string> notes{};  // where fp32 is not accurate enough on any backend
  bool is_right() const;             // a rejected program is not wrong
};

struct CheckReport {
  bool has_positive_inputs = false;  // because negative inputs give non-finite results
  std::vector<CheckedBackend> backends{};
  bool is_right() const;
};
std::string text(const CheckReport& report);  // several lines, for people

// Throws Error if a size is missing, if the float64 reference would take more than ten minutes, or
// if the machine lacks the requested backend.
CheckReport check_program(const Program& program, const DimValues& sizes,
                          const CheckOptions& options = {});

// The gradient "grad_to_NAME" of an input, as the compiler derives it.
struct CheckedGradient {
  std::string name;
  double error = 0;  // of the derivative along a random direction, relative to the gradient's size
  double bound = 0;
  bool is_right() const { return error <= bound; }
};
struct BackwardReport {
  std::string left_out{};  // why nothing was checked; empty: checked
  std::vector<CheckedGradient> gradients{};
  // Only for a hand-written backward: forward results that contribute no gradient.
  std::vector<std::string> without_gradient{};
  std::vector<std::string> not_compared{};  // stored, but no input's gradient
  bool is_right() const;
};
std::string text(const BackwardReport& report);  // several lines, for people

// Compares the derived backward of programs that run one after another (coda/lift.h) with finite
// differences in float64. Skipped if no backward can be derived or if the check would be slow.
BackwardReport check_backward(std::span<const Program> programs, const DimValues& sizes,
                              uint64_t seed = 1);

// Compares a hand-written backward with finite differences of the forward, both in float64. The
// backward reads the forward's tensors by name. Gradients of the forward's results are inputs named
// grad_of_NAME, grad_NAME, d_NAME or dNAME (for a partial: the gradient of the whole reduction).
// Gradients of the forward's inputs are results named grad_to_NAME or in one of the same ways. A
// result whose gradient is not read counts as unused. Throws Error if no tensor has such a name.
BackwardReport check_written_backward(std::span<const Program> forward,
                                      std::span<const Program> backward, const DimValues& sizes,
                                      uint64_t seed = 1);

}  // namespace CODA_API coda
