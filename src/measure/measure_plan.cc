// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gpu/gpu_backend.h"
#include "measure/measure_on_gpu.h"
#include "measure/plan_run.h"
#include "measure/program_run.h"
#include "measure/random_fill.h"

namespace coda::measure {
namespace {

constexpr double kBriefMs = 4;
constexpr size_t kFinalists = 4;

// Each product of a plan alone, with its fastest algorithm, in the plan's order; products of equal
// shapes share their tensors, which together are far larger than the L2 cache.
class ProductsAlone {
 public:
  ProductsAlone(Gpu& gpu, const Plan& plan, const DimValues& sizes, const MeasureOptions& options) {
    std::map<std::string, Fastest> fastest;
    for (const auto* steps : {&plan.forward, &plan.backward}) {
      for (const PlanStep& step : *steps) {
        const auto* program = std::get_if<Program>(&step.work);
        if (program == nullptr) continue;
        for (const ProductShape& shape : products_of(*program, sizes)) {
          flops_ += shape.flops();
          const auto [entry, is_new] = fastest.try_emplace(shape.text());
          if (is_new) {
            options.says("cuBLAS, " + shape.text());
            entry->second = fastest_of(gpu, peers_.emplace_back(*gpu.state(), shape, 1));
          }
          products_.push_back(entry->second.launch);
          ms_of_step_[step.name] += entry->second.ms;
        }
      }
    }
  }

  void run() const {
    for (const auto* product : products_) (*product)(0);
  }
  double flops() const { return flops_; }
  double ms_of_step(const std::string& name) const {
    const auto found = ms_of_step_.find(name);
    return found == ms_of_step_.end() ? 0 : found->second;
  }

 private:
  struct Fastest {
    const std::function<void(unsigned)>* launch = nullptr;
    double ms = 0;  // sustained
  };

  static Fastest fastest_of(Gpu& gpu, const ProductPeer& peer) {
    std::list<Candidate> candidates;
    std::vector<Candidate*> all;
    for (const auto& launch : peer.algorithms()) {
      candidates.push_back({"", launch, 1});
      all.push_back(&candidates.back());
    }
    // All briefly, then those that may be the fastest alone: a plan has a dozen products.
    const std::vector<Candidate*> in_order = all;
    gpu.timer().interleaved(all, 1, kBriefMs);
    std::stable_sort(all.begin(), all.end(), [](const Candidate* a, const Candidate* b) {
      return a->interleaved.median_ms < b->interleaved.median_ms;
    });
    all.resize(std::min(all.size(), kFinalists));
    gpu.timer().sustained(all, kScreenSeconds, 1, 0.1);
    const auto best =
        std::min_element(all.begin(), all.end(), [](const Candidate* a, const Candidate* b) {
          return a->sustained.median_ms < b->sustained.median_ms;
        });
    const auto place = std::find(in_order.begin(), in_order.end(), *best);
    return {&peer.algorithms()[static_cast<size_t>(place - in_order.begin())],
            (*best)->sustained.median_ms};
  }

  std::list<ProductPeer> peers_;
  std::vector<const std::function<void(unsigned)>*> products_;
  std::map<std::string, double> ms_of_step_;
  double flops_ = 0;
};

// Medians of some runs, each step waited for.
std::vector<TimedStep> steps_of(PlanRun& run, const ProductsAlone& products) {
  constexpr int kRuns = 9;
  std::vector<std::vector<StepTiming>> runs;
  for (int i = 0; i < kRuns; ++i) {
    run.run();
    std::vector<StepTiming>& all = runs.emplace_back(run.session().forward_timings());
    const std::vector<StepTiming>& backward = run.session().backward_timings();
    all.insert(all.end(), backward.begin(), backward.end());
  }
  std::vector<TimedStep> steps;
  for (size_t i = 0; i < runs[0].size(); ++i) {
    std::vector<double> seconds;
    for (const std::vector<StepTiming>& one : runs) seconds.push_back(one[i].seconds);
    std::ranges::sort(seconds);
    const std::string& name = runs[0][i].name;
    steps.push_back({name, 1e3 * seconds[kRuns / 2], products.ms_of_step(name)});
  }
  return steps;
}

}  // namespace

Measured measure_plan_on_gpu(const Compiled& compiled, const DimValues& sizes,
                             const MeasureOptions& options) {
  const Plan& plan = compiled.plan;
  Gpu gpu;
  options.says("compiling the plan's kernels");
  const auto backend = gpu::make_gpu_backend();
  backend->use_stream(Stream::of(gpu.state()->stream));
  const auto fill = [&](const TensorView& view, uint64_t seed, float size, uint32_t limit) {
    fill_random(*gpu.state(), view, seed, size, limit);
  };
  PlanRun plan_run(plan, compiled.parameter_copies, *backend, sizes, fill);
  const ProductsAlone products(gpu, plan, sizes, options);
  Candidate peer{"products alone, cuBLAS", [&](unsigned) { products.run(); }, 1};
  Candidate ours{"plan", [&](unsigned) { plan_run.run(); }, 1};
  time_on_gpu(gpu.timer(), {&peer, &ours}, options);
  std::vector<TimedStep> steps;
  if (options.steps) {
    PlanRun timed(plan, compiled.parameter_copies, *backend, sizes, fill, true);
    steps = steps_of(timed, products);
  }
  return {.device = gpu.text(),
          .candidates = {peer, ours},
          .steps = std::move(steps),
          .flops = products.flops(),
          .session_bytes = plan_run.session_bytes(),
          .bound_bytes = plan_run.bound_bytes()};
}

}  // namespace coda::measure
