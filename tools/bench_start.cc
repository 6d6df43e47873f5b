// SPDX-License-Identifier: Apache-2.0
// coda bench start: measures start-up costs. Each part runs in its own process and cache folder,
// first with an empty cache and then with all kernels, because a process that has already compiled
// is warm. Times start when the driver's context exists.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>

#include "bench.h"
#include "bench/llama_block/block_graph.h"
#include "coda/compile.h"
#include "coda/device.h"
#include "coda/error.h"
#include "coda/session.h"

namespace coda::tools {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

constexpr int64_t kTokens = 16384;
constexpr int64_t kHidden = 4096;
constexpr int64_t kMlp = 11008;

constexpr const char* kFirst = R"(program first {
  acc = gemm(y[M, K]:bf16, w[N, K]:bf16, nt)
  x = as_stored(tile(x0[M, N]:bf16) + acc, bf16)
  store(x:bf16, x)
  store(h:bf16, x * per_column(norm[N]:bf16))
  row_partial(squares, sum(x * x))
})";
constexpr const char* kSecond = R"(program second {
  gate = gemm(h[M, K]:bf16, w_gate[N, K]:bf16, nt)
  up = gemm(h, w_up[N, K]:bf16, nt)
  r = per_row(r[M])
  store(a:bf16, silu(gate * r) * (up * r))
})";
constexpr const char* kTiny = "program tiny { store(y:bf16, tile(x[M, N]:bf16)) }";

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// Runs `part` in a new process with this cache and returns its result.
Json in_its_own_process(const std::string& cache, const std::function<Json()>& part) {
  int ends[2];
  require(pipe(ends) == 0, "cannot make a pipe for a new process");
  std::fflush(stdout);
  const pid_t child = fork();
  require(child >= 0, "cannot start a new process");
  if (child == 0) {
    close(ends[0]);
    setenv("CODA_CACHE_DIR", cache.c_str(), 1);
    Json result;
    try {
      result = part();
    } catch (const std::exception& error) {
      result = {{"error", error.what()}};
    }
    const std::string text = result.dump();
    for (size_t done = 0; done < text.size();) {
      const ssize_t written = write(ends[1], text.data() + done, text.size() - done);
      if (written <= 0) _exit(1);
      done += static_cast<size_t>(written);
    }
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t got = 0; (got = read(ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(got));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  require(!text.empty(), "a measuring process ended without a result");
  Json result = Json::parse(text);
  if (result.contains("error")) throw Error(result["error"].get<std::string>());
  return result;
}

class Part {
 public:
  std::unique_ptr<Backend> backend() const {
    auto made = make_backend("gpu");
    made->use_stream(stream_);
    return made;
  }

  // Milliseconds from the program's text to its first result.
  double first_call(Backend& backend, const char* text, const DimValues& sizes) {
    const Program parsed = parse_program(text);
    std::vector<TensorView> views = tensors(backend, parsed, sizes);
    const auto start = Clock::now();
    const Program program = parse_program(text);
    const std::unique_ptr<Kernel> kernel = backend.prepare(program, sizes);
    kernel->run(views);
    backend.synchronize();
    return ms_since(start);
  }

  std::vector<TensorView> tensors(Backend& backend, const Program& program,
                                  const DimValues& sizes) {
    std::vector<TensorView> views;
    for (const TensorDecl& decl : program.tensors) {
      const PhysicalShape shape = physical_shape(decl, sizes);
      memory_.push_back(backend.allocate(
          static_cast<size_t>(shape.rows * shape.cols * size_of(decl.dtype)), decl.name));
      views.push_back(dense_view(memory_.back().get(), decl.dtype, shape.rows, shape.cols));
      backend.fill(views.back(), std::byte{0});
    }
    backend.synchronize();
    return views;
  }

 private:
  Stream stream_ = Stream::make();
  std::vector<BackendMemory> memory_;
};

void run(Session& session) {
  session.forward();
  session.backward();
}

// A block's plan, backend, session and first run.
Json block_start(const Part& part) {
  Json times;
  auto start = Clock::now();
  const Plan plan = bench::block_plan(bench::wide_headed(kTokens, kHidden, kMlp), DType::bf16,
                                      h200_rates(), true);
  times["plan_ms"] = ms_since(start);
  start = Clock::now();
  const auto backend = part.backend();
  Session session(plan, *backend, {{"M", kTokens}}, {.own_results = true});
  times["ready_ms"] = ms_since(start);
  session.allocate();
  backend->synchronize();
  start = Clock::now();
  run(session);
  times["first_run_enqueued_ms"] = ms_since(start);
  backend->synchronize();
  return times;
}

Json cold() {
  Part part;
  Json times;
  const auto start = Clock::now();
  const auto backend = part.backend();
  times["backend_ms"] = ms_since(start);
  const DimValues sizes{{"M", 4096}, {"N", 2048}, {"K", 2048}};
  times["first_program_ms"] = part.first_call(*backend, kFirst, sizes);
  times["next_program_ms"] = part.first_call(*backend, kSecond, sizes);
  times["block"] = block_start(part);
  return times;
}

// Host time in microseconds: the median over rounds that start with an idle GPU.
double host_us(Backend& backend, int calls, const std::function<void()>& call) {
  constexpr int kRounds = 21;
  std::vector<double> rounds;
  call();
  for (int round = 0; round < kRounds; ++round) {
    backend.synchronize();
    const auto start = Clock::now();
    for (int i = 0; i < calls; ++i) call();
    rounds.push_back(ms_since(start) * 1e3 / calls);
  }
  backend.synchronize();
  std::nth_element(rounds.begin(), rounds.begin() + kRounds / 2, rounds.end());
  return rounds[kRounds / 2];
}

Json warm() {
  Part part;
  Json times;
  times["block"] = block_start(part);
  const auto backend = part.backend();
  const DimValues sizes{{"M", 128}, {"N", 256}, {"K", 64}};
  const auto launch_us = [&](const char* text) {
    const Program program = parse_program(text);
    const std::vector<TensorView> views = part.tensors(*backend, program, sizes);
    const std::unique_ptr<Kernel> kernel = backend->prepare(program, sizes);
    return host_us(*backend, 500, [&] { kernel->run(views); });
  };
  times["launch_us"] = launch_us(kTiny);
  times["gemm_launch_us"] = launch_us(kFirst);
  const Plan plan =
      bench::block_plan(bench::wide_headed(128, 256, 512), DType::bf16, h200_rates(), true);
  Session session(plan, *backend, {{"M", 128}}, {.own_results = true});
  session.allocate();
  const size_t steps = plan.forward.size() + plan.backward.size();
  times["block_steps"] = steps;
  times["block_step_us"] =
      host_us(*backend, 20, [&] { run(session); }) / static_cast<double>(steps);
  return times;
}

}  // namespace

void bench_start(bool as_json) {
  // This process must not have a context, because a driver context does not survive a fork.
  std::string folder = (fs::temp_directory_path() / "coda-start-XXXXXX").string();
  require(mkdtemp(folder.data()) != nullptr, "cannot make a folder for a cache at " + folder);
  Json result;
  try {
    const auto say = [](const char* what) { fmt::print(stderr, "coda: {}\n", what); };
    result["device"] =
        in_its_own_process(folder, [] { return Json{{"gpu", describe_gpu()}}; })["gpu"];
    say("a process with nothing in its cache: some 10 s");
    result["cold"] = in_its_own_process(folder, cold);
    say("a process that finds all kernels");
    result["warm"] = in_its_own_process(folder, warm);
  } catch (...) {
    fs::remove_all(folder);
    throw;
  }
  fs::remove_all(folder);
  if (as_json) {
    fmt::print("{}\n", result.dump(2));
    return;
  }
  const Json& cold = result["cold"];
  const Json& warm = result["warm"];
  const auto row = [](const char* what, const Json& value, const char* unit) {
    fmt::print("{:66} {:9.2f} {}\n", what, value.get<double>(), unit);
  };
  fmt::print("{}\n", result["device"].get<std::string>());
  row("a new program's first call, the first of a process", cold["first_program_ms"], "ms");
  row("a new program's first call, a further one", cold["next_program_ms"], "ms");
  row("a block ready to run, forward + backward, nothing in the cache", cold["block"]["ready_ms"],
      "ms");
  row("the same in a process that finds all in the cache", warm["block"]["ready_ms"], "ms");
  row("its plan, compiled from the graph", warm["block"]["plan_ms"], "ms");
  row("the host's time for its first run", warm["block"]["first_run_enqueued_ms"], "ms");
  row("the host's time for a launch without a product", warm["launch_us"], "us");
  row("the host's time for a launch with a product", warm["gemm_launch_us"], "us");
  row(fmt::format("the host's time for a step of a block ({} of them)",
                  warm["block_steps"].get<int>())
          .c_str(),
      warm["block_step_us"], "us");
}

}  // namespace coda::tools
