// SPDX-License-Identifier: Apache-2.0
#include "block.h"

#include <nlohmann/json.hpp>

#include <cstdio>
#include <numeric>

#include "bandwidth.h"
#include "bench/llama_block/block_graph.h"
#include "coda/compile.h"
#include "gpu/lower.h"
#include "measure/random_fill.h"

namespace coda::hopper_memory {

int BlockPlan::launches() const {
  size_t count = 0;
  for (const auto* steps : {&plan.forward, &plan.backward}) {
    for (const PlanStep& step : *steps) {
      if (const auto* program = std::get_if<Program>(&step.work)) {
        count += gpu::lower(*program, sizes, {}).size();
      }
    }
  }
  return static_cast<int>(count);
}

BlockPlan block_plan(int64_t hidden, int64_t tokens, bool backward) {
  const int64_t mlp = hidden == 2048 ? 5632 : hidden == 4096 ? 11008 : hidden * 11 / 4;
  return {bench::block_plan(bench::wide_headed(tokens, hidden, mlp), DType::bf16, h200_rates(),
                            backward),
          {{"M", tokens}},
          hidden,
          backward};
}

BlockRun::BlockRun(gpu::GpuState& state, const BlockPlan& block, bool dependent_launch)
    : backward_(block.backward),
      backend_(gpu::make_gpu_backend({.device = -1,
                                      .cache = {},
                                      .compile_threads = 0,
                                      .lowering = {},
                                      .dependent_launch = dependent_launch})) {
  backend_->use_stream(Stream::of(state.stream));
  session_ = std::make_unique<Session>(block.plan, *backend_, block.sizes,
                                       SessionOptions{.own_results = true});
  uint64_t seed = 1;
  for (const PlanTensor& tensor : block.plan.tensors) {
    const bool callers = tensor.role == TensorRole::input || tensor.role == TensorRole::parameter ||
                         tensor.role == TensorRole::output;
    if (!callers || !tensor.view_of.empty() || session_->owns(tensor.decl.name)) continue;
    const PhysicalShape shape = physical_shape(tensor.decl, block.sizes);
    tensors_.emplace_back(tensor.decl.dtype, shape.rows, shape.cols, Stream::of(state.stream));
    measure::fill_random(state, tensors_.back().view(), seed++, 1.0F,
                         static_cast<uint32_t>(block.sizes.at("M")));
    session_->bind(tensor.decl.name, tensors_.back().view());
  }
}

void BlockRun::run() {
  session_->forward();
  if (backward_) session_->backward();
}

void measure_block(std::shared_ptr<gpu::GpuState> state, const BlockPlan& block, double seconds,
                   measure::Timer& timer, std::ofstream& json) {
  measure::Candidate ordinary;
  measure::Candidate dependent;
  {
    BlockRun without(*state, block, false);
    BlockRun with(*state, block, true);
    ordinary.launch = [&](unsigned) { without.run(); };
    dependent.launch = [&](unsigned) { with.run(); };
    timer.sustained({&ordinary, &dependent}, seconds, 3, 0.5);
    timer.cool({&ordinary, &dependent}, 15);
    timer.interleaved({&ordinary, &dependent}, 15, 20.0);  // one clock for both
  }
  const std::vector<double> steps = measure_bandwidth(
      state, cases_of(block.plan, block.sizes, block.hidden), 0.05, false, timer, json);
  const double sum = std::accumulate(steps.begin(), steps.end(), 0.0);
  std::printf(
      "block M %ld, D %ld%s: %d launches, %.4f ms, cool %.4f; dependent %.4f (%.4f), "
      "cool %.4f (%.4f), in turns (%.4f); %zu steps without a product %.4f ms (%.4f)\n",
      block.sizes.at("M"), block.hidden, block.backward ? " forward + backward" : " forward",
      block.launches(), ordinary.sustained.median_ms, ordinary.cool.median_ms,
      dependent.sustained.median_ms, dependent.sustained.median_ms / ordinary.sustained.median_ms,
      dependent.cool.median_ms, dependent.cool.median_ms / ordinary.cool.median_ms,
      dependent.interleaved.median_ms / ordinary.interleaved.median_ms, steps.size(), sum,
      sum / ordinary.sustained.median_ms);
  std::fflush(stdout);
  json << nlohmann::json{{"row", "block"},
                         {"hidden", block.hidden},
                         {"tokens", block.sizes.at("M")},
                         {"backward", block.backward},
                         {"sustained_ms", ordinary.sustained.median_ms},
                         {"cool_ms", ordinary.cool.median_ms},
                         {"dependent_sustained_ms", dependent.sustained.median_ms},
                         {"dependent_cool_ms", dependent.cool.median_ms},
                         {"interleaved_ms", ordinary.interleaved.median_ms},
                         {"dependent_interleaved_ms", dependent.interleaved.median_ms},
                         {"launches", block.launches()},
                         {"without_product_ms", sum}}
              .dump()
       << "\n";
}

}  // namespace coda::hopper_memory
