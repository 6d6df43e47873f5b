// SPDX-License-Identifier: Apache-2.0
#include <set>

#include "coda/error.h"
#include "coda/tune.h"
#include "gpu/configure/tuned_table.h"
#include "gpu/tuned_file.h"
#include "measure/gpu.h"
#include "measure/tune.h"
#include "runtime/plan_programs.h"

namespace coda {
namespace {

TimedConfiguration timed(const gpu::GemmConfig& choice, double microseconds) {
  return {gpu::code(choice), microseconds};
}

TunedKernel as_public(const measure::TuneJob& job, const measure::TimedKernel& kernel) {
  TunedKernel result{job.name,
                     kernel.kernel.name,
                     gpu::text(kernel.kernel.extents),
                     timed(kernel.chosen.choice, kernel.chosen_microseconds),
                     gpu::text(kernel.chosen),
                     {}};
  for (const gpu::TimedChoice& one : kernel.choices)
    result.configurations.push_back(timed(one.choice, one.microseconds));
  return result;
}

}  // namespace

TuneReport tune(const Plan& plan, const DimValues& sizes, const TuneOptions& options) {
  const measure::Gpu gpu(options.target);
  const gpu::DeviceInfo& device = gpu.state()->context->info();
  const std::filesystem::path file = gpu::tuned_file(
      gpu::default_cache_folder(), device, gpu.state()->kernels->builder().compiler().version(),
      gpu.state()->kernels->target());
  require(!options.keeps || !file.empty(),
          "what is measured cannot be kept: set CODA_CACHE_DIR to a folder");
  TuneReport report;
  gpu::LowerOptions lowering = gpu.lowering();
  lowering.multiprocessors = static_cast<uint32_t>(device.multiprocessors);
  lowering.is_h100 = gpu::is_h100(device.name);
  lowering.tuned = gpu::load_tuned_rows(file);
  std::vector<measure::TuneJob> jobs;
  std::set<std::string> seen;
  for (const AnnouncedProgram& one : programs_of(plan, sizes)) {
    lowering.row_strides = one.row_strides;
    if (one.row_strides.empty()) {
      for (const TensorDecl& tensor : one.program->tensors)
        lowering.row_strides.push_back(physical_shape(tensor, one.sizes).cols);
    }
    try {
      for (measure::TuneJob& job : measure::tune_jobs(*one.program, one.sizes, lowering)) {
        const gpu::KernelClass own = measure::class_of(job);
        const gpu::TunedRow* known =
            options.again || !lowering.tuned ? nullptr : lowering.tuned->nearest(own);
        if (known != nullptr && known->extents == own.extents) continue;
        if (seen.insert(own.name + gpu::text(own.extents)).second) jobs.push_back(std::move(job));
      }
    } catch (const Error& error) {
      options.says(std::string("not tuned: ") + error.what());
    }
  }
  require(!jobs.empty() || !options.again, "none of the programs has a product that can be tuned");
  const measure::TuneEffort effort{
      .most = options.most, .screen_seconds = options.seconds / 6, .seconds = options.seconds};
  measure::Tuner tuner(gpu.state());
  tuner.compile_ahead(jobs, effort);
  gpu::TunedRows rows;
  for (const measure::TuneJob& job : jobs) {
    const measure::TimedKernel kernel = tuner.tune(job, effort);
    rows.set(kernel.kernel, kernel.choices);
    report.kernels.push_back(as_public(job, kernel));
    options.done(report.kernels.back());
  }
  if (options.keeps) gpu::save_tuned_rows(report.file = file, rows);
  return report;
}

}  // namespace coda
