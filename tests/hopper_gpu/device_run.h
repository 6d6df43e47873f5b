// SPDX-License-Identifier: Apache-2.0
// Runs a program on the GPU between guards: host images of every tensor, poisoned outside it, in
// the gaps between rows and where nothing is given, are copied to the device, the program runs, and
// the images come back. So reading or writing outside, or not writing at all, shows.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "coda/error.h"
#include "cpu/program_run.h"
#include "hopper/jit/parallel_for.h"
#include "hopper/launch/device_memory.h"
#include "hopper/launch/launched_kernel.h"
#include "hopper/lower.h"

namespace coda::tests {

inline std::shared_ptr<hopper::HopperState> gpu() {
  static const std::shared_ptr<hopper::HopperState> state = [] {
    auto made = std::make_shared<hopper::HopperState>();
    made->context = std::make_shared<hopper::Context>();
    made->kernels = std::make_unique<hopper::LoadedKernels>(made->context, hopper::CacheOptions{});
    return made;
  }();
  return state;
}

// Why a program cannot be lowered for these sizes; empty if it can.
inline std::string refusal(const Program& program, const DimValues& sizes) {
  try {
    hopper::lower(program, sizes, {});
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

inline std::vector<hopper::KernelTensor> kernel_tensors(const Program& program) {
  std::vector<hopper::KernelTensor> tensors;
  for (const TensorDecl& decl : program.tensors) tensors.push_back({decl.name, false, false});
  for (const Step& step : program.steps) {
    for (const GemmSegment& segment : step.segments()) {
      for (const int t : {segment.a, segment.scales_a, segment.b, segment.scales_b})
        if (t >= 0) tensors[t].read = true;
    }
    if (step.row_index() >= 0) tensors[step.row_index()].read = true;
    if (step.tensor() < 0) continue;
    (step.operands.empty() ? tensors[step.tensor()].read : tensors[step.tensor()].written) = true;
  }
  return tensors;
}

// Compiles what run_on_gpu will need, all of it at once.
inline void compile_ahead(
    const std::vector<std::pair<const Program*, hopper::LowerOptions>>& programs,
    const DimValues& sizes, RowGaps gaps) {
  hopper::parallel_for(programs.size(), 0, [&](size_t i) {
    const Program& program = *programs[i].first;
    hopper::LowerOptions options = programs[i].second;
    for (const bool is_dense : {true, false}) {
      if (!is_dense) {
        for (const TensorDecl& decl : program.tensors) {
          const TensorView view = GuardedTensor(decl, sizes, nullptr, gaps).view();
          options.row_strides.push_back(view.rows == 1 ? view.cols : view.row_stride);
        }
      }
      for (const hopper::KernelLaunch& launch : hopper::lower(program, sizes, options))
        gpu()->kernels->compile(program.name, launch);
    }
  });
}

// The tensors that the program stores, after one run. `options` without strides, which are those of
// the gaps.
inline Values run_on_gpu(const Program& program, const DimValues& sizes, const Values& inputs,
                         RowGaps gaps, const hopper::LowerOptions& options = {}) {
  const auto state = gpu();
  const hopper::Context::Scope scope(*state->context);
  hopper::LaunchedKernel kernel(
      state, program.name, kernel_tensors(program), [&](std::span<const int64_t> row_strides) {
        hopper::LowerOptions strided = options;
        strided.row_strides.assign(row_strides.begin(), row_strides.end());
        return hopper::lower(program, sizes, strided);
      });
  std::vector<GuardedTensor> images;
  std::vector<hopper::DeviceMemory> memory;
  std::vector<TensorView> views;
  images.reserve(program.tensors.size());
  for (const TensorDecl& decl : program.tensors) {
    const auto found = inputs.find(decl.name);
    images.emplace_back(decl, sizes, found == inputs.end() ? nullptr : &found->second, gaps);
    std::vector<char>& bytes = images.back().bytes();
    memory.emplace_back(state->context, bytes.size(), state->stream, decl.name);
    hopper::check_driver(hopper::driver().memcpy_htod_async(memory.back().address(), bytes.data(),
                                                            bytes.size(), state->stream),
                         "copying inputs to the device");
    views.push_back(images.back().view_at(reinterpret_cast<char*>(memory.back().data())));
  }
  kernel.run(views);
  for (size_t i = 0; i < images.size(); ++i) {
    std::vector<char>& bytes = images[i].bytes();
    hopper::check_driver(hopper::driver().memcpy_dtoh_async(bytes.data(), memory[i].address(),
                                                            bytes.size(), state->stream),
                         "copying results to the host");
  }
  hopper::check_driver(hopper::driver().stream_synchronize(state->stream),
                       "running program '" + program.name + "'");
  Values results;
  const std::vector<hopper::KernelTensor> uses = kernel_tensors(program);
  for (size_t i = 0; i < images.size(); ++i) {
    images[i].check_guards();
    if (uses[i].written) results[program.tensors[i].name] = images[i].values();
  }
  return results;
}

}  // namespace coda::tests
