// SPDX-License-Identifier: Apache-2.0
#include "measure/tune.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <map>
#include <set>
#include <thread>
#include <tuple>

#include "coda/error.h"
#include "coda/plan.h"
#include "gpu/jit/parallel_for.h"
#include "gpu/lower.h"
#include "gpu/tuned_file.h"
#include "measure/gpu_timer.h"
#include "measure/tune_tensors.h"

namespace coda::measure {
namespace {

using gpu::GemmConfig;

constexpr double kSampleMs = 15;
constexpr int kMostQueued = 400;   // that the driver queues without waiting
constexpr double kSettling = 0.3;  // of a visit: what comes first runs at the clock of those before
constexpr int kHeaterCalls = 2;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

gpu::KernelLaunch launch_of(const gpu::GemmProgram& program, size_t kernel,
                            const GemmConfig& choice, const gpu::SpilledBytes& spilled) {
  gpu::KernelLaunch launch = gpu::make(program.planned(kernel, choice), spilled).launch;
  launch.note.clear();
  launch.source = without_comments(launch.source);
  return launch;
}

// The model's best that are not known to spill, and what would be taken without tuning; best first.
std::vector<GemmConfig> candidates(const gpu::GemmProgram& program, size_t kernel,
                                   const TuneEffort& options, const gpu::SpilledBytes& spilled) {
  // Of one tile and schedule's configurations so many are timed: clusters and stages differ by
  // little.
  constexpr int kOfBestShapes = 2;
  constexpr size_t kBestShapes = 2;
  std::vector<GemmConfig> result;
  using Shape = std::tuple<uint32_t, uint32_t, device::Schedule>;
  std::vector<Shape> shapes;  // by rank
  std::map<Shape, int> taken;
  for (const gpu::RankedChoice& one : program.ranked(kernel)) {
    if (result.size() >= options.most) break;
    const Shape shape{one.choice.tile_m, one.choice.tile_n, one.choice.schedule};
    if (taken[shape] == 0) shapes.push_back(shape);
    const size_t rank =
        static_cast<size_t>(std::find(shapes.begin(), shapes.end(), shape) - shapes.begin());
    if (options.is_diverse && taken[shape] >= (rank < kBestShapes ? kOfBestShapes : 1)) continue;
    if (gpu::make(program.planned(kernel, one.choice), spilled).spilled_bytes != 0) continue;
    ++taken[shape];
    result.push_back(one.choice);
  }
  const GemmConfig chosen = program.chosen(kernel, spilled).choice;
  const bool is_there = std::any_of(result.begin(), result.end(), [&](const GemmConfig& choice) {
    return gpu::code(choice) == gpu::code(chosen);
  });
  if (!is_there) result.push_back(chosen);
  return result;
}

gpu::LowerOptions unchosen(gpu::LowerOptions options) {
  options.choice.reset();
  return options;
}

Program heating_program() {
  return parse_program(
      "program heat {\n"
      "  acc = gemm(x[M, K]:bf16, w[N, K]:bf16, nt)\n"
      "  store(y:bf16, acc)\n"
      "}\n");
}

}  // namespace

std::string without_comments(const std::string& source) {
  std::string result;
  for (size_t begin = 0; begin < source.size();) {
    const size_t end = std::min(source.find('\n', begin), source.size());
    const std::string line = source.substr(begin, end - begin);
    begin = end + 1;
    const size_t first = line.find_first_not_of(' ');
    if (first == std::string::npos || line.compare(first, 2, "//") == 0) continue;
    result += line.substr(0, line.find("  // ")) + "\n";
  }
  return result;
}

std::vector<TuneJob> tune_jobs(const Program& program, const DimValues& sizes,
                               const gpu::LowerOptions& options) {
  std::vector<TuneJob> jobs;
  for (const gpu::PlannedPart& one : gpu::plan_program(program, sizes, unchosen(options)).parts) {
    if (one.products == nullptr) continue;
    Program renamed = one.program;
    renamed.name = "tuned";
    for (size_t t = 0; t < renamed.tensors.size(); ++t)
      renamed.tensors[t].name = "t" + std::to_string(t);
    for (size_t kernel = 0; kernel < one.products->kernels(); ++kernel)
      jobs.push_back({one.program.name, renamed, sizes, one.options, kernel});
  }
  return jobs;
}

gpu::KernelClass class_of(const TuneJob& job) {
  return gpu::GemmProgram(job.program, job.sizes, job.options).class_of(job.kernel);
}

std::vector<gpu::KernelLaunch> tuned_launches(const TuneJob& job, const TuneEffort& options) {
  const gpu::GemmProgram program(job.program, job.sizes, job.options);
  std::vector<gpu::KernelLaunch> launches;
  for (const GemmConfig& choice : candidates(program, job.kernel, options, {}))
    launches.push_back(launch_of(program, job.kernel, choice, {}));
  return launches;
}

std::string measured_on(gpu::GpuState& state) {
  return state.context->info().name + ", driver " + gpu::driver_version_text() + ", NVRTC " +
         state.kernels->builder().compiler().version().text();
}

struct Tuner::Work {
  struct Timed {
    GemmConfig choice;
    std::unique_ptr<gpu::LaunchedKernel> kernel;
    bool is_well = true;  // it compiles without a defect
    double ms = 0;        // of a call, roughly
    std::vector<double> samples;
  };
  using Views = std::vector<std::vector<TensorView>>;

  explicit Work(std::shared_ptr<gpu::GpuState> shared)
      : state(std::move(shared)), tensors(*state), heater_tensors(*state) {
    const auto& driver = gpu::driver();
    gpu::check_driver(driver.event_create(&start, 0), "making an event");
    gpu::check_driver(driver.event_create(&stop, 0), "making an event");
    const TuneJob heat{"heat",
                       heating_program(),
                       {{"M", 8192}, {"N", 4096}, {"K", 8192}},
                       {.target = &state->kernels->target()},
                       0};
    const gpu::GemmProgram program(heat.program, heat.sizes, heat.options);
    heater = prepare(heat, program.ranked(0).front().choice);
    std::vector<int64_t> strides;
    for (const TensorDecl& decl : heat.program.tensors)
      strides.push_back(decl.shape.cols.evaluate(heat.sizes));
    heater_views = heater_tensors.make(heat.program, heat.sizes, strides);
  }
  ~Work() {
    stops = true;
    if (ahead.joinable()) ahead.join();
    gpu::driver().event_destroy(start);
    gpu::driver().event_destroy(stop);
  }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  // The spilled bytes of the kernels that the compiler has already compiled for timing.
  gpu::SpilledBytes known_spills() const {
    return [&builder = state->kernels->builder()](const std::string& source) {
      return builder.spilled_bytes(without_comments(source));
    };
  }

  std::unique_ptr<gpu::LaunchedKernel> prepare(const TuneJob& job, const GemmConfig& choice) {
    std::vector<gpu::KernelTensor> uses;
    for (StepTensor& use : step_tensors({"", {}, job.program, {}}))
      uses.push_back({std::move(use.name), use.read, use.written});
    return std::make_unique<gpu::LaunchedKernel>(
        state, job.name, std::move(uses),
        [this, job, choice](std::span<const int64_t> row_strides) {
          gpu::LowerOptions options = job.options;
          if (!row_strides.empty())
            options.row_strides.assign(row_strides.begin(), row_strides.end());
          const gpu::GemmProgram program(job.program, job.sizes, options);
          return std::vector{launch_of(program, job.kernel, choice, known_spills())};
        });
  }

  void heat(int calls) {
    for (int i = 0; i < calls; ++i) heater->run(heater_views[heats++ % heater_views.size()]);
  }

  // Milliseconds a call, behind the heater.
  double sample(Timed& timed, const Views& views, int calls) {
    heat(kHeaterCalls);
    const auto& driver = gpu::driver();
    gpu::check_driver(driver.event_record(start, state->stream), "timing a kernel");
    for (int i = 0; i < calls; ++i) timed.kernel->run(views[set++ % views.size()]);
    gpu::check_driver(driver.event_record(stop, state->stream), "timing a kernel");
    float ms = 0;
    gpu::check_driver(driver.event_synchronize(stop), "waiting for a kernel");
    gpu::check_driver(driver.event_elapsed_time(&ms, start, stop), "timing a kernel");
    return ms / static_cast<float>(calls);
  }

  int calls_in(const Timed& timed, double ms) const {
    return std::clamp(static_cast<int>(std::lround(ms / timed.ms)), 1, kMostQueued);
  }

  void visit(Timed& timed, const Views& views, double seconds) {
    const auto begin = std::chrono::steady_clock::now();
    const int calls = calls_in(timed, std::min(kSampleMs, seconds * 1e3));
    do {
      const double ms = sample(timed, views, calls);
      if (seconds * 1e3 >= 4 * kSampleMs && seconds_since(begin) < kSettling * seconds) continue;
      timed.samples.push_back(ms);
    } while (seconds_since(begin) < seconds);
  }

  std::shared_ptr<gpu::GpuState> state;
  TuneTensors tensors;
  TuneTensors heater_tensors;
  std::unique_ptr<gpu::LaunchedKernel> heater;
  Views heater_views;
  gpu::DriverHandle start = nullptr;
  gpu::DriverHandle stop = nullptr;
  size_t set = 0;
  size_t heats = 0;
  std::atomic<bool> stops = false;  // compiling ahead
  std::thread ahead;
};

Tuner::Tuner(std::shared_ptr<gpu::GpuState> state)
    : work_(std::make_unique<Work>(std::move(state))) {}
Tuner::~Tuner() = default;

void Tuner::compile_ahead(const std::vector<TuneJob>& jobs, const TuneEffort& options) {
  invariant(!work_->ahead.joinable(), "kernels are compiled ahead once");
  work_->ahead = std::thread([jobs, options, state = work_->state, &stops = work_->stops] {
    std::set<std::string> sources;
    std::vector<std::pair<std::string, gpu::KernelLaunch>> launches;
    for (const TuneJob& job : jobs) {
      try {
        for (gpu::KernelLaunch& launch : tuned_launches(job, options)) {
          if (sources.insert(launch.source).second)
            launches.emplace_back(job.name, std::move(launch));
        }
      } catch (const Error&) {  // met again where the kernel is timed
      }
    }
    const unsigned threads = std::max(2U, std::thread::hardware_concurrency()) - 1;
    gpu::parallel_for(launches.size(), threads, [&](size_t i) {
      if (stops) return;
      try {
        state->kernels->compile(launches[i].first, launches[i].second.source);
      } catch (const Error&) {  // likewise
      }
    });
  });
}

TimedKernel Tuner::tune(const TuneJob& job, const TuneEffort& options) {
  const gpu::GemmProgram program(job.program, job.sizes, job.options);
  const gpu::SpilledBytes spilled = work_->known_spills();
  gpu::LoadedKernels& kernels = *work_->state->kernels;
  std::vector<GemmConfig> choices;
  std::vector<std::string> defects;
  for (;;) {
    std::vector<GemmConfig> now = candidates(program, job.kernel, options, spilled);
    const auto same = [](const GemmConfig& a, const GemmConfig& b) {
      return gpu::code(a) == gpu::code(b);
    };
    if (std::equal(now.begin(), now.end(), choices.begin(), choices.end(), same)) break;
    choices = std::move(now);
    defects.assign(choices.size(), "");
    gpu::parallel_for(choices.size(), 0, [&](size_t i) {
      gpu::PlannedKernel kernel = program.planned(job.kernel, choices[i]);
      kernel.emit = [emit = kernel.emit](size_t way) {
        gpu::KernelLaunch launch = emit(way);
        launch.source = without_comments(launch.source);
        return launch;
      };
      try {
        const auto compiled = [&](const std::string& source) {
          return kernels.compile(job.name, source);
        };
        const std::string source = gpu::make(kernel, compiled).launch.source;
        defects[i] = kernels.builder().build(job.name, source).defect;
      } catch (const Error& error) {
        defects[i] = error.what();
      }
    });
  }
  TimedKernel result{program.class_of(job.kernel),
                     program.work_of(job.kernel),
                     program.chosen(job.kernel, spilled),
                     0,
                     {}};
  const auto is_chosen = [&](const GemmConfig& choice) {
    return gpu::code(choice) == gpu::code(result.chosen.choice);
  };
  const Work::Views views = work_->tensors.make(job.program, job.sizes, job.options.row_strides);

  std::vector<Work::Timed> timed;
  // One with a defect is no choice; it is only timed if it would be taken without tuning.
  for (size_t i = 0; i < choices.size(); ++i) {
    if (defects[i].empty() || is_chosen(choices[i]))
      timed.push_back({choices[i], work_->prepare(job, choices[i]), defects[i].empty(), 0, {}});
  }
  for (Work::Timed& one : timed) {
    work_->sample(one, views, 1);
    one.ms = std::max(1e-4, work_->sample(one, views, 2));
  }
  std::vector<Work::Timed*> order;
  for (Work::Timed& one : timed) order.push_back(&one);
  const auto sort = [&] {
    std::stable_sort(order.begin(), order.end(),
                     [](const auto* a, const auto* b) { return a->ms < b->ms; });
  };
  for (Work::Timed* one : order) {
    work_->visit(*one, views, options.screen_seconds);
    one->ms = median(one->samples);
  }
  sort();
  // The chosen one is timed as long as those that it is compared with.
  std::vector<Work::Timed*> finalists(
      order.begin(),
      order.begin() + static_cast<std::ptrdiff_t>(std::min(options.finalists, order.size())));
  for (Work::Timed* one : order) {
    const bool is_final = std::find(finalists.begin(), finalists.end(), one) != finalists.end();
    if (is_chosen(one->choice) && !is_final && options.finalists != 0) finalists.push_back(one);
  }
  if (finalists.size() > 1) {
    const double screened = finalists.front()->ms;
    for (Work::Timed* one : finalists) one->samples.clear();
    for (int round = 0; round < 2; ++round) {
      for (Work::Timed* one : finalists) work_->visit(*one, views, options.seconds);
    }
    for (Work::Timed* one : finalists) one->ms = median(one->samples);
    // What was left out is as far behind the first as it was; and behind those timed for longer.
    const double change = finalists.front()->ms / screened;
    double least = finalists.front()->ms;
    for (const Work::Timed* one : finalists) least = std::min(least, one->ms);
    for (Work::Timed* one : order) {
      if (std::find(finalists.begin(), finalists.end(), one) == finalists.end())
        one->ms = std::max(one->ms * change, 1.001 * least);
    }
  }
  sort();
  for (const Work::Timed* one : order) {
    if (one->is_well) result.choices.push_back({one->choice, one->ms * 1e3});
    if (is_chosen(one->choice)) result.chosen_microseconds = one->ms * 1e3;
  }
  require(
      !result.choices.empty(),
      "program '" + job.name + "': no configuration compiles without a defect: " + defects.front());
  return result;
}

}  // namespace coda::measure
