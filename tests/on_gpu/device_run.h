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
#include "gpu/jit/parallel_for.h"
#include "gpu/launch/device_memory.h"
#include "gpu/launch/launched_kernel.h"
#include "gpu/lower.h"

namespace coda::tests {

inline std::shared_ptr<gpu::GpuState> gpu() {
  static const std::shared_ptr<gpu::GpuState> state = [] {
    auto made = std::make_shared<gpu::GpuState>();
    made->context = std::make_shared<gpu::Context>();
    made->kernels = std::make_unique<gpu::LoadedKernels>(made->context, gpu::CacheOptions{});
    return made;
  }();
  return state;
}

// Why a program cannot be lowered for these sizes; empty if it can.
inline std::string refusal(const Program& program, const DimValues& sizes) {
  try {
    gpu::lower(program, sizes, {});
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

inline std::vector<gpu::KernelTensor> kernel_tensors(const Program& program) {
  std::vector<gpu::KernelTensor> tensors;
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
inline void compile_ahead(const std::vector<std::pair<const Program*, gpu::LowerOptions>>& programs,
                          const DimValues& sizes, RowGaps gaps) {
  gpu::parallel_for(programs.size(), 0, [&](size_t i) {
    const Program& program = *programs[i].first;
    gpu::LowerOptions options = programs[i].second;
    for (const bool is_dense : {true, false}) {
      if (!is_dense) {
        for (const TensorDecl& decl : program.tensors) {
          const TensorView view = GuardedTensor(decl, sizes, nullptr, gaps).view();
          options.row_strides.push_back(view.rows == 1 ? view.cols : view.row_stride);
        }
      }
      for (const gpu::KernelLaunch& launch : gpu::lower(program, sizes, options))
        gpu()->kernels->compile(program.name, launch.source);
    }
  });
}

// The tensors that the program stores, after one run. `options` without strides, which are those of
// the gaps.
inline Values run_on_gpu(const Program& program, const DimValues& sizes, const Values& inputs,
                         RowGaps gaps, const gpu::LowerOptions& options = {}) {
  const auto state = gpu();
  const gpu::Context::Scope scope(*state->context);
  gpu::LaunchedKernel kernel(state, program.name, kernel_tensors(program),
                             [&](std::span<const int64_t> row_strides) {
                               gpu::LowerOptions strided = options;
                               strided.row_strides.assign(row_strides.begin(), row_strides.end());
                               return gpu::lower(program, sizes, strided);
                             });
  std::vector<GuardedTensor> images;
  std::vector<gpu::DeviceMemory> memory;
  std::vector<TensorView> views;
  images.reserve(program.tensors.size());
  for (const TensorDecl& decl : program.tensors) {
    const auto found = inputs.find(decl.name);
    images.emplace_back(decl, sizes, found == inputs.end() ? nullptr : &found->second, gaps);
    std::vector<char>& bytes = images.back().bytes();
    memory.emplace_back(state->context, bytes.size(), state->stream, decl.name);
    gpu::check_driver(gpu::driver().memcpy_htod_async(memory.back().address(), bytes.data(),
                                                      bytes.size(), state->stream),
                      "copying inputs to the device");
    views.push_back(images.back().view_at(reinterpret_cast<char*>(memory.back().data())));
  }
  kernel.run(views);
  for (size_t i = 0; i < images.size(); ++i) {
    std::vector<char>& bytes = images[i].bytes();
    gpu::check_driver(gpu::driver().memcpy_dtoh_async(bytes.data(), memory[i].address(),
                                                      bytes.size(), state->stream),
                      "copying results to the host");
  }
  gpu::check_driver(gpu::driver().stream_synchronize(state->stream),
                    "running program '" + program.name + "'");
  Values results;
  const std::vector<gpu::KernelTensor> uses = kernel_tensors(program);
  for (size_t i = 0; i < images.size(); ++i) {
    images[i].check_guards();
    if (uses[i].written) results[program.tensors[i].name] = images[i].values();
  }
  return results;
}

}  // namespace coda::tests
