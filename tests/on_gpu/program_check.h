// SPDX-License-Identifier: Apache-2.0
// Checks a program on the GPU against its meaning in float64 (program/judge.h), from fresh random
// inputs and with poisoned memory.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <string>

#include "coda/error.h"
#include "on_gpu/device_run.h"
#include "on_gpu/program_cases.h"
#include "program/judge.h"

namespace coda::tests {

// Sums of a few hundred products of numbers around 1 in fp32, and elementary functions of about
// 1e-6: what a result may be off beside its rounding.
inline constexpr double kSinglePrecision = 1e-5;
// Random programs subtract values that are nearly equal, and round intermediate values to 16 bits,
// where one that falls to the other side of a tie changes an element by a unit in the last place.
inline constexpr double kRandomPrograms = 1e-3;

inline DType type_of(const Program& program, const std::string& name) {
  for (const TensorDecl& decl : program.tensors) {
    if (decl.name == name) return decl.dtype;
  }
  throw InternalError("no tensor " + name);
}

inline std::string sizes_text(const DimValues& sizes) {
  std::string text;
  for (const auto& [name, value] : sizes) text += " " + name + "=" + std::to_string(value);
  return text;
}

// Expects the same bits; NaN is NaN.
inline void expect_same_bits(const Values& results, const Values& others, const std::string& what) {
  for (const auto& [name, values] : results) {
    int different = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const double other = others.at(name)[i];
      if (std::isnan(values[i]) && std::isnan(other)) continue;
      different += std::bit_cast<uint64_t>(values[i]) != std::bit_cast<uint64_t>(other);
    }
    EXPECT_EQ(different, 0) << name << ": elements that differ " << what;
  }
}

// What a root is taken of is a sum of squares: partials that a finalizer with roots adds up are
// positive, as they are in a plan. (The root of a sum that cancels has no accuracy to speak of.)
inline Values inputs_of(const Program& program, const DimValues& sizes, uint64_t seed) {
  Values inputs = random_inputs(program, sizes, seed);
  const bool has_roots =
      std::any_of(program.steps.begin(), program.steps.end(), [](const Step& step) {
        return step.kind() == StepKind::elementwise &&
               (step.op() == Elementwise::rsqrt || step.op() == Elementwise::sqrt);
      });
  if (!has_roots) return inputs;
  for (const TensorDecl& decl : program.tensors) {
    if (decl.kind == TensorKind::dense || !inputs.contains(decl.name)) continue;
    for (double& x : inputs.at(decl.name)) x = std::abs(x);
  }
  return inputs;
}

// Runs twice: the same bits.
inline void check(const Program& program, const DimValues& sizes, uint64_t seed, RowGaps gaps,
                  double single_precision) {
  SCOPED_TRACE(program.name + " with" + sizes_text(sizes) + ", seed " + std::to_string(seed));
  const Values inputs = inputs_of(program, sizes, seed);
  Values results;
  try {
    results = run_on_gpu(program, sizes, inputs, gaps);
    expect_same_bits(results, run_on_gpu(program, sizes, inputs, gaps), "from run to run");
  } catch (const Error& error) {
    ADD_FAILURE() << error.what() << "\n" << text(program);
    return;
  }
  program::Judge judge(program, sizes, inputs, single_precision);
  for (const auto& [name, values] : judge.exact()) {
    const auto [error, bound] = judge.of(name, results.at(name));
    EXPECT_LE(error, bound) << name << " (" << name_of(type_of(program, name)) << ")\n"
                            << text(program);
  }
}

// Of sizes those that the program names.
inline DimValues bind(const Program& program, const DimValues& sizes) {
  DimValues bound;
  for (const TensorDecl& decl : program.tensors) {
    for (const Dim& dim : {decl.shape.rows, decl.shape.cols}) {
      for (const auto& [symbol, factor] : dim.terms()) bound[symbol] = sizes.at(symbol);
    }
  }
  return bound;
}

// Each program with the sizes that it names; compiles all of them at once.
inline void check_all(const std::vector<Program>& programs, const DimValues& sizes, uint64_t seed,
                      RowGaps gaps, double single_precision) {
  std::vector<std::pair<const Program*, gpu::LowerOptions>> kernels;
  for (const Program& program : programs) kernels.emplace_back(&program, gpu::LowerOptions());
  try {
    compile_ahead(kernels, sizes, gaps);
  } catch (const Error& error) {
    ADD_FAILURE() << error.what();
  }
  for (const Program& program : programs)
    check(program, bind(program, sizes), seed++, gaps, single_precision);
}

}  // namespace coda::tests
