// SPDX-License-Identifier: Apache-2.0
// Implements coda/kernels.h with the parts of the GPU backend.
#include "coda/kernels.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <semaphore>
#include <set>
#include <thread>
#include <utility>

#include "gpu/configure/tuned_table.h"
#include "gpu/jit/kernel_builder.h"
#include "gpu/jit/parallel_for.h"
#include "gpu/launch/operation_launches.h"
#include "gpu/lower.h"
#include "gpu/tuned_file.h"
#include "gpu/workspace.h"
#include "runtime/plan_programs.h"

namespace coda {

namespace {

const gpu::Target& target_of(const KernelOptions& options) {
  return gpu::target_for(options.target, options.major, options.minor, options.device);
}

gpu::LowerOptions lowering_of(const KernelOptions& options) {
  gpu::LowerOptions lowering{.target = &target_of(options)};
  if (options.multiprocessors != 0) lowering.multiprocessors = options.multiprocessors;
  lowering.is_h100 = gpu::is_h100(options.device);
  lowering.tuned = gpu::load_tuned_rows(gpu::latest_tuned_file(
      gpu::default_cache_folder(), *lowering.target, lowering.multiprocessors));
  return lowering;
}

// Spills that are recorded in the cache; never runs the compiler.
gpu::SpilledBytes cached_spills(const KernelOptions& options) {
  gpu::CacheOptions cache;
  std::error_code none;
  if (!std::filesystem::is_directory(cache.folder / "cubins", none)) return {};
  cache.notice = [](const std::string&) {};
  return
      [builder = std::make_shared<gpu::KernelBuilder>(std::move(cache), target_of(options))](
          const std::string& source) { return builder->cached_spilled_bytes(source).value_or(0); };
}

}  // namespace

std::vector<KernelChoice> kernel_choices(const Plan& plan, const DimValues& sizes,
                                         const KernelOptions& options) {
  gpu::LowerOptions lowering = lowering_of(options);
  const gpu::SpilledBytes spilled = cached_spills(options);
  std::vector<KernelChoice> choices;
  for (const AnnouncedProgram& one : programs_of(plan, sizes)) {
    lowering.row_strides = one.row_strides;
    for (const auto& part : gpu::plan_program(*one.program, one.sizes, lowering).parts) {
      if (part.products == nullptr) continue;
      const gpu::GemmProgram& program = *part.products;
      for (size_t kernel = 0; kernel < program.kernels(); ++kernel) {
        const gpu::ChosenConfig chosen = program.chosen(kernel, spilled);
        const gpu::KernelClass own = program.class_of(kernel);
        choices.push_back({part.program.name,
                           gpu::text(chosen.choice),
                           gpu::text(chosen),
                           own.name,
                           gpu::text(own.extents),
                           {}});
        for (const gpu::RankedChoice& ranked : program.ranked(kernel))
          choices.back().ranked.push_back(gpu::text(ranked.choice));
      }
    }
  }
  return choices;
}

namespace {

// The kernels that a plan launches, with the name of their program or operation.
using NamedPlans = std::vector<std::pair<std::string, gpu::KernelPlan>>;

void add_plans(const Plan& plan, const DimValues& sizes, const gpu::LowerOptions& lowering,
               NamedPlans& plans) {
  for (const AnnouncedProgram& one : programs_of(plan, sizes)) {
    gpu::LowerOptions strided = lowering;
    strided.row_strides = one.row_strides;
    strided.owns_padding = one.owns_padding;
    plans.emplace_back(one.program->name, gpu::plan_program(*one.program, one.sizes, strided).plan);
  }
  for (const auto& [call, tensors, call_sizes] : calls_of(plan, sizes)) {
    // Skips operations that enqueue their own work, which has no text.
    if (find_operation(call->function).gpu_function != nullptr) continue;
    plans.emplace_back(call->function, gpu::lower_call(*call, tensors, call_sizes, lowering));
  }
}

// The kernels of the plans, each source once.
std::vector<KernelText> texts_of(const NamedPlans& plans, const gpu::SpilledBytes& spilled) {
  std::vector<KernelText> kernels;
  std::set<std::string> seen;
  for (const auto& [program, plan] : plans) {
    for (gpu::KernelLaunch& launch : gpu::make(plan, spilled)) {
      if (!seen.insert(launch.source).second) continue;
      kernels.push_back({program, std::move(launch.source), launch.grid, launch.cluster,
                         launch.threads, launch.shared_bytes, std::move(launch.note)});
    }
  }
  return kernels;
}

// The plans, but only one of those with equal kernel texts (equal layers have such). Those with the
// longest texts come first, because they take the longest to compile.
std::vector<const NamedPlans::value_type*> distinct(const NamedPlans& plans) {
  std::map<std::string, const NamedPlans::value_type*> found;
  for (const auto& one : plans) {
    std::string texts;
    for (const gpu::KernelLaunch& launch : gpu::make(one.second, {})) texts += launch.source;
    found.try_emplace(std::move(texts), &one);
  }
  std::vector<std::pair<size_t, const NamedPlans::value_type*>> sized;
  for (const auto& [texts, one] : found) sized.emplace_back(texts.size(), one);
  std::ranges::stable_sort(sized, std::greater<>{}, [](const auto& one) { return one.first; });
  std::vector<const NamedPlans::value_type*> sorted;
  for (const auto& [size, one] : sized) sorted.push_back(one);
  return sorted;
}

// One of as many compilations as there are hardware threads. Concurrent calls of precompile() share
// this limit, because each compilation takes hundreds of MB of memory.
class Slot {
 public:
  Slot() { all().acquire(); }
  ~Slot() { all().release(); }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

 private:
  static std::counting_semaphore<>& all() {
    static std::counting_semaphore<> slots(std::max(1U, std::thread::hardware_concurrency()));
    return slots;
  }
};

}  // namespace

std::vector<KernelText> emit_kernels(const Plan& plan, const DimValues& sizes,
                                     const KernelOptions& options) {
  NamedPlans plans;
  add_plans(plan, sizes, lowering_of(options), plans);
  return texts_of(plans, cached_spills(options));
}

int64_t gpu_workspace_bytes(const Plan& plan, const DimValues& sizes,
                            const KernelOptions& options) {
  return gpu::workspace_bytes(plan, sizes, lowering_of(options), GpuAttention::repeatable);
}

Precompiled precompile(const std::vector<SizedPlan>& plans, const KernelOptions& options) {
  gpu::KernelBuilder builder({}, target_of(options));
  Precompiled result;
  result.compiler =
      "NVRTC " + builder.compiler().version().text() + " at " + builder.compiler().location();
  NamedPlans planned;
  for (const SizedPlan& one : plans) add_plans(one.plan, one.sizes, lowering_of(options), planned);
  const auto spilled = [&](const std::string& source) { return builder.spilled_bytes(source); };
  std::mutex mutex;
  std::map<std::string, std::string> defects;  // of each text that was built
  const std::vector<const NamedPlans::value_type*> jobs = distinct(planned);
  gpu::parallel_for(jobs.size(), options.threads, [&](size_t i) {
    const auto& [program, plan] = *jobs[i];
    std::set<std::string> built;
    // If a kernel spills registers, make() returns the program's next configuration, with new
    // texts.
    for (bool is_new = true; is_new;) {
      is_new = false;
      for (const gpu::KernelLaunch& launch : gpu::make(plan, spilled)) {
        if (!built.insert(launch.source).second) continue;
        is_new = true;
        const Slot slot;
        std::string defect = builder.build(program, launch.source).defect;
        const std::lock_guard lock(mutex);
        defects[launch.source] = std::move(defect);
      }
    }
  });
  const std::vector<KernelText> kernels = texts_of(planned, spilled);
  for (const KernelText& kernel : kernels) {
    const std::string& defect = defects.at(kernel.source);
    if (!defect.empty())
      result.defects.push_back("the kernel of program '" + kernel.program + "': " + defect);
  }
  result.kernels = std::ssize(defects);
  result.compiled = builder.cache().misses();
  result.spilled = std::ssize(defects) - std::ssize(kernels);
  result.folder = builder.cache().folder();
  return result;
}

}  // namespace coda
