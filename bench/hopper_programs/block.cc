// SPDX-License-Identifier: Apache-2.0
#include "block.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <list>
#include <map>
#include <string>

#include "bench/llama_block/block_graph.h"
#include "coda/compile.h"
#include "coda/device.h"
#include "hopper/hopper_backend.h"
#include "measure/program_run.h"
#include "measure/random_fill.h"
#include "runtime/session.h"

namespace coda::hopper_programs {
namespace {

using measure::Candidate;

constexpr int64_t kTokens = 16384;

// The plan with tensors of its own.
class PlanRun {
 public:
  PlanRun(hopper::HopperState& state, const Plan& plan, const DimValues& sizes)
      : backend_(hopper::make_hopper_backend()) {
    backend_->use_stream(Stream::of(state.stream));
    session_ = std::make_unique<Session>(plan, *backend_, sizes);
    uint64_t seed = 1;
    for (const PlanTensor& tensor : plan.tensors) {
      const bool callers = tensor.role == TensorRole::input ||
                           tensor.role == TensorRole::parameter ||
                           tensor.role == TensorRole::output;
      if (!callers || !tensor.view_of.empty()) continue;
      const PhysicalShape shape = physical_shape(tensor.decl, sizes);
      tensors_.emplace_back(tensor.decl.dtype, shape.rows, shape.cols, Stream::of(state.stream));
      measure::fill_random(state, tensors_.back().view(), seed++, 1.0F,
                           static_cast<uint32_t>(kTokens));
      session_->bind(tensor.decl.name, tensors_.back().view());
    }
  }

  void run(bool backward) {
    session_->forward();
    if (backward) session_->backward();
  }
  double megabytes() const {
    return static_cast<double>(session_->arena_bytes() + session_->saved_bytes()) * 1e-6;
  }

 private:
  std::unique_ptr<hopper::HopperBackend> backend_;
  std::unique_ptr<Session> session_;
  std::list<DeviceTensor> tensors_;
};

}  // namespace

void measure_block(std::shared_ptr<hopper::HopperState> state, const BlockOptions& options,
                   measure::Timer& timer, std::ofstream& json) {
  const bench::BlockSize size{.tokens = kTokens,
                              .width = options.hidden,
                              .mlp = options.mlp,
                              .heads = options.hidden / 128,
                              .kv_heads = options.hidden / 128};
  Graph graph;
  const CompileRequest request = bench::add_block(graph, size, DType::bf16, options.backward);
  CompileOptions compile_options;
  compile_options.rates = h200_rates();
  compile_options.storage = DType::bf16;
  compile_options.objective = Objective::speed;
  compile_options.sizes = {{"M", kTokens}};
  const Plan plan = compile(graph, request, compile_options).plan;
  PlanRun plan_run(*state, plan, compile_options.sizes);

  // Each product alone, with its fastest algorithm; equal shapes share their tensors.
  double flops = 0;
  std::list<measure::ProductPeer> peers;
  std::map<std::string, const std::function<void(unsigned)>*> fastest;
  std::vector<const std::function<void(unsigned)>*> products;
  for (const auto* steps : {&plan.forward, &plan.backward}) {
    for (const PlanStep& step : *steps) {
      const auto* program = std::get_if<Program>(&step.work);
      if (program == nullptr) continue;
      for (const measure::ProductShape& shape :
           measure::products_of(*program, compile_options.sizes)) {
        flops += shape.flops();
        const auto [entry, is_new] = fastest.try_emplace(shape.text(), nullptr);
        if (is_new) {
          const measure::ProductPeer& peer = peers.emplace_back(*state, shape, 1);
          std::list<Candidate> candidates;
          std::vector<Candidate*> all;
          for (const auto& launch : peer.algorithms()) {
            candidates.emplace_back().launch = launch;
            all.push_back(&candidates.back());
          }
          timer.sustained(all, 0.12, 1, 0.1);
          size_t best = 0;
          for (size_t i = 1; i < all.size(); ++i) {
            if (all[i]->sustained.median_ms < all[best]->sustained.median_ms) best = i;
          }
          entry->second = &peer.algorithms()[best];
        }
        products.push_back(entry->second);
      }
    }
  }
  Candidate alone;
  alone.name = "products alone, cuBLAS";
  alone.launch = [&](unsigned set) {
    for (const auto* product : products) (*product)(set);
  };
  Candidate ours;
  ours.name = "plan";
  ours.launch = [&](unsigned) { plan_run.run(options.backward); };
  timer.sustained({&alone, &ours}, options.seconds, 2, 1.0);
  timer.cool({&alone, &ours}, 15);
  const char* const phase = options.backward ? "forward + backward" : "forward";
  std::printf(
      "block, %-18s D %5ld  cuBLAS %8.3f ms %6.0f TF %4.0f MHz %3.0f W  |  plan %.3f cool "
      "%.3f %4.0f MHz %3.0f W, %.0f MB\n",
      phase, options.hidden, alone.sustained.median_ms, flops / alone.sustained.median_ms * 1e-9,
      alone.clock_mhz, alone.watts, ours.sustained.median_ms / alone.sustained.median_ms,
      ours.cool.median_ms / alone.cool.median_ms, ours.clock_mhz, ours.watts, plan_run.megabytes());
  std::fflush(stdout);
  for (const Candidate* candidate : {&alone, &ours}) {
    json << nlohmann::json{{"row", std::string("block, ") + phase},
                           {"hidden", options.hidden},
                           {"candidate", candidate->name},
                           {"sustained_ms", candidate->sustained.median_ms},
                           {"cool_ms", candidate->cool.median_ms},
                           {"sm_mhz", candidate->clock_mhz},
                           {"watts", candidate->watts}}
                .dump()
         << "\n";
  }
}

}  // namespace coda::hopper_programs
