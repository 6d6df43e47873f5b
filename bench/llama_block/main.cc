// SPDX-License-Identifier: Apache-2.0
// Measures a LLaMA block without attention on the CPU: forward, and forward + backward, in fp32 and
// bf16. One process measures all variants in turns:
// - the fused plan, and the GEMMs of the fused plan alone;
// - "op by op": one kernel for each operation of a framework, on the same backend;
// - "unfused": each GEMM only stores its result, and one fused kernel computes everything between
//   two GEMMs;
// - PyTorch, eager and compiled.
// Prints medians and ratios; writes JSON.
#include <omp.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "block_graph.h"
#include "coda/backend.h"
#include "coda/error.h"
#include "coda/float16.h"
#include "coda/measure.h"
#include "coda/session.h"
#include "op_by_op.h"
#include "peer_process.h"

namespace coda::bench {
namespace {

using Json = nlohmann::ordered_json;

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  std::string line;
  std::string name = "unknown processor";
  std::string flags;
  while (std::getline(info, line)) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    if (line.rfind("model name", 0) == 0) name = line.substr(colon + 2);
    if (line.rfind("flags", 0) == 0) flags = line.substr(colon + 2);
  }
  for (const char* flag : {"avx2", "avx512f", "avx512_bf16", "amx_bf16"}) {
    if (flags.find(flag) != std::string::npos) name += std::string(" ") + flag;
  }
  return name + ", " + std::to_string(omp_get_max_threads()) + " threads";
}

// A plan ready to run, with memory for everything that a caller binds, filled with random values.
class Runner {
 public:
  Runner(const Plan& plan, Backend& backend, const DimValues& sizes)
      : session_(plan, backend, sizes, {.timing = true}) {
    std::mt19937_64 random(1);
    for (const PlanTensor& t : plan.tensors) {
      if (t.role == TensorRole::temporary || t.role == TensorRole::saved || !t.view_of.empty())
        continue;
      const int64_t rows = t.decl.shape.rows.evaluate(sizes);
      const int64_t cols = t.decl.shape.cols.evaluate(sizes);
      const Tensor tensor(t.decl.dtype, rows, cols);
      fill(tensor.view().data, t.decl, tensor.size(), random);
      session_.bind(t.decl.name, tensor);
    }
  }

  double seconds() {
    const auto start = std::chrono::steady_clock::now();
    session_.forward();
    if (!session_.plan().backward.empty()) session_.backward();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  // Medians of `rounds` runs for each step, in order.
  std::vector<StepTiming> steps(int rounds) {
    std::vector<StepTiming> steps;
    std::vector<std::vector<double>> times;
    for (int round = 0; round < rounds; ++round) {
      seconds();
      steps = session_.forward_timings();
      steps.insert(steps.end(), session_.backward_timings().begin(),
                   session_.backward_timings().end());
      times.resize(steps.size());
      for (size_t i = 0; i < steps.size(); ++i) times[i].push_back(steps[i].seconds);
    }
    for (size_t i = 0; i < steps.size(); ++i) {
      std::sort(times[i].begin(), times[i].end());
      steps[i].seconds = times[i][times[i].size() / 2];
    }
    return steps;
  }

  // What a step needs beside weights, inputs and gradients.
  int64_t bytes() const { return session_.arena_bytes() + session_.saved_bytes(); }

 private:
  static void fill(void* memory, const TensorDecl& decl, int64_t count, std::mt19937_64& random) {
    std::normal_distribution<float> normal;
    const float scale = decl.shape.is_tensor() && !decl.shape.rows.is_constant() ? 1.0F : 0.03F;
    for (int64_t i = 0; i < count; ++i) {
      const float x = scale * normal(random);
      if (decl.dtype == DType::f32) static_cast<float*>(memory)[i] = x;
      if (decl.dtype == DType::bf16) static_cast<uint16_t*>(memory)[i] = bf16_from_float(x);
      if (decl.dtype == DType::i32) static_cast<int32_t*>(memory)[i] = static_cast<int32_t>(i);
    }
  }

  Session session_;
};

struct Candidate {
  std::string name;
  std::function<double()> seconds;
  std::vector<double> times;

  double median() const {
    std::vector<double> sorted = times;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
};

// The median over rounds of a's time by b's in the same round.
double ratio(const Candidate& a, const Candidate& b) {
  std::vector<double> ratios;
  for (size_t i = 0; i < a.times.size(); ++i) ratios.push_back(a.times[i] / b.times[i]);
  std::sort(ratios.begin(), ratios.end());
  return ratios[ratios.size() / 2];
}

struct Options {
  std::string peer;
  std::string json;
  std::vector<std::string> sizes{"2048,576,1536", "4096,1024,2816", "2048,2048,5632"};
  std::vector<std::string> types{"f32", "bf16"};
  std::string only;
  int rounds = 15;
  bool steps = false;
  bool plan = false;
};

BlockSize parse_size(const std::string& text) {
  int64_t tokens = 0;
  int64_t width = 0;
  int64_t mlp = 0;
  const int fields = std::sscanf(text.c_str(), "%ld,%ld,%ld", &tokens, &width, &mlp);
  require(fields == 3 && tokens > 0 && width > 0 && mlp > 0,
          "a size is TOKENS,WIDTH,MLP with positive numbers, not \"" + text + "\"");
  return block_size(tokens, width, mlp);
}

// Where a plan's time goes.
void print_steps(const char* name, Runner& runner, int rounds) {
  double total = 0;
  for (const StepTiming& step : runner.steps(rounds)) {
    std::printf("%9.3f ms  %s\n", step.seconds * 1e3, step.name.c_str());
    total += step.seconds;
  }
  std::printf("%9.3f ms  all steps, %s\n", total * 1e3, name);
}

Json measure(const BlockSize& size, DType type, bool backward, Backend& backend, PeerProcess* peer,
             const Options& settings) {
  const DimValues sizes{{"M", size.tokens}};
  auto plan_of = [&](bool fuse) {
    Graph graph;
    CompileOptions options;
    options.sizes = sizes;
    options.storage = type;
    options.rates = cpu_rates();
    options.fuse = fuse;
    options.overwrite_saved = true;  // as in training: one backward for each forward
    const CompileRequest request = add_block(graph, size, type, backward);
    return compile(graph, request, options).plan;
  };
  const Plan fused_plan = plan_of(true);
  if (!settings.only.empty()) {
    Runner runner(settings.only == "fused"      ? fused_plan
                  : settings.only == "op_by_op" ? op_by_op_plan(size, type, backward, sizes)
                  : settings.only == "unfused"  ? plan_of(false)
                                                : products_alone(fused_plan),
                  backend, sizes);
    print_steps(settings.only.c_str(), runner, settings.rounds);
    return {};
  }
  Runner fused(fused_plan, backend, sizes);
  Runner unfused(plan_of(false), backend, sizes);
  Runner op_by_op(op_by_op_plan(size, type, backward, sizes), backend, sizes);
  Runner products(products_alone(fused_plan), backend, sizes);
  std::vector<Candidate> candidates{{"fused", [&] { return fused.seconds(); }, {}},
                                    {"op_by_op", [&] { return op_by_op.seconds(); }, {}},
                                    {"unfused", [&] { return unfused.seconds(); }, {}},
                                    {"products", [&] { return products.seconds(); }, {}}};
  const std::string shape = std::string(name_of(type)) + " " + std::to_string(size.tokens) + " " +
                            std::to_string(size.width) + " " + std::to_string(size.mlp);
  const std::string phase = backward ? "fwdbwd" : "fwd";
  for (const char* variant : {"eager", "compile"}) {
    if (peer == nullptr) continue;
    const std::string request = phase + " " + variant + " " + shape;
    candidates.push_back(
        {std::string("torch_") + variant, [peer, request] { return peer->seconds(request); }, {}});
  }
  if (settings.plan) std::printf("%s\n", text(fused_plan, sizes, cpu_rates()).c_str());
  for (Candidate& c : candidates) c.seconds();  // warm caches, compile
  std::mt19937 random(2);
  std::vector<size_t> order(candidates.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  for (int round = 0; round < settings.rounds; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    for (size_t i : order) candidates[i].times.push_back(candidates[i].seconds());
  }

  const double flops = size.gemm_flops(backward);
  Json result{{"phase", phase},
              {"dtype", name_of(type)},
              {"M", size.tokens},
              {"D", size.width},
              {"I", size.mlp}};
  std::printf("%-6s %-4s M %-5ld D %-4ld I %-4ld", phase.c_str(),
              std::string(name_of(type)).c_str(), static_cast<long>(size.tokens),
              static_cast<long>(size.width), static_cast<long>(size.mlp));
  for (const Candidate& c : candidates) {
    std::printf("  %s %.1f ms (%.0f GFLOP/s)", c.name.c_str(), c.median() * 1e3,
                flops / c.median() / 1e9);
    result[c.name + "_seconds"] = c.median();
    result[c.name + "_fastest_seconds"] = *std::min_element(c.times.begin(), c.times.end());
    result[c.name + "_gflops"] = flops / c.median() / 1e9;
  }
  const Candidate& ours = candidates[0];
  result["op_by_op_over_fused"] = ratio(candidates[1], ours);
  result["unfused_over_fused"] = ratio(candidates[2], ours);
  result["fused_over_products"] = ratio(ours, candidates[3]);
  std::printf("\n       op by op/fused %.3f  unfused/fused %.3f  fused/products %.3f",
              ratio(candidates[1], ours), ratio(candidates[2], ours), ratio(ours, candidates[3]));
  if (peer != nullptr) {
    const size_t best = candidates[4].median() < candidates[5].median() ? 4 : 5;
    result["torch_over_fused"] = ratio(candidates[best], ours);
    std::printf("  best torch/fused %.3f (%s)", ratio(candidates[best], ours),
                candidates[best].name.c_str());
    long run = 0;
    const std::string answer = peer->ask("peak " + phase + " eager " + shape);
    if (std::sscanf(answer.c_str(), "bytes %ld", &run) == 1) result["torch_eager_bytes"] = run;
    std::printf("  memory %.1f MB, torch eager %.1f MB",
                static_cast<double>(fused.bytes() + backend.scratch_bytes()) / 1e6,
                static_cast<double>(run) / 1e6);
  }
  result["fused_bytes"] = fused.bytes() + backend.scratch_bytes();
  std::printf("\n");
  if (settings.steps) {
    print_steps("fused", fused, settings.rounds);
    print_steps("products alone", products, settings.rounds);
    print_steps("unfused", unfused, settings.rounds);
    print_steps("op by op", op_by_op, settings.rounds);
  }
  std::fflush(stdout);
  return result;
}

int run(const Options& options) {
  std::unique_ptr<PeerProcess> peer;
  Json report{{"processor", processor_name()}, {"rounds", options.rounds}};
  std::printf("%s\n", processor_name().c_str());
  if (!options.peer.empty()) {
    peer = std::make_unique<PeerProcess>(options.peer);
    const std::string version = peer->ask("version");
    report["peer"] = version;
    std::printf("peer: PyTorch %s\n", version.c_str());
  }
  const auto backend = make_backend("cpu");
  for (const std::string& size : options.sizes) {
    for (const std::string& type : options.types) {
      require(type == "f32" || type == "bf16", "a type is f32 or bf16, not \"" + type + "\"");
      for (bool backward : {false, true}) {
        report["results"].push_back(measure(parse_size(size),
                                            type == "f32" ? DType::f32 : DType::bf16, backward,
                                            *backend, peer.get(), options));
      }
    }
  }
  if (!options.json.empty()) std::ofstream(options.json) << report.dump(2) << "\n";
  return 0;
}

}  // namespace
}  // namespace coda::bench

int main(int argc, char** argv) {
  coda::bench::Options options;
  CLI::App app(
      "A LLaMA block without attention: fused, op by op, unfused, its products alone, and PyTorch");
  app.add_option("--peer", options.peer,
                 "command of the PyTorch server; none: our own variants only");
  app.add_option("--json", options.json, "file for the results");
  app.add_option("--size", options.sizes, "TOKENS,WIDTH,MLP; may be repeated");
  app.add_option("--type", options.types, "f32 or bf16; may be repeated");
  app.add_option("--rounds", options.rounds, "rounds of interleaved runs")
      ->check(CLI::PositiveNumber);
  app.add_option("--only", options.only,
                 "the steps of one of our plans, nothing else (for a profiler): fused, op_by_op, "
                 "unfused or products")
      ->check(CLI::IsMember({"fused", "op_by_op", "unfused", "products"}));
  app.add_flag("--steps", options.steps, "also the time of each step of our plans");
  app.add_flag("--plan", options.plan, "also the fused plans as text");
  CLI11_PARSE(app, argc, argv);
  try {
    return coda::bench::run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "block: %s\n", error.what());
    return 1;
  }
}
