// SPDX-License-Identifier: Apache-2.0
// coda check: whether a program is well formed, and whether the backends compute what it says: on
// random inputs against float64, at sizes that fill tiles and at ragged ones, with poisoned memory,
// and with the same bits whatever the configuration.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>

#include "check_run.h"
#include "coda/device.h"
#include "coda/error.h"
#include "coda/graph.h"
#include "coda/lift.h"
#include "commands.h"
#include "cpu/cpu_backend.h"
#include "explained_plan.h"
#include "hopper/configure/choose_config.h"
#include "hopper/hopper_backend.h"
#include "hopper/jit/parallel_for.h"
#include "hopper/launch/device_memory.h"
#include "hopper/lower.h"
#include "measure/products.h"
#include "program/judge.h"
#include "program_file.h"

namespace coda::tools {
namespace {

struct CheckFlags {
  std::vector<std::string> files;
  std::vector<std::string> sizes;
  std::string backend;  // empty: all that there are
  std::string storage;  // of matrices that are fp32 in the files; empty: as they are
  size_t configurations = 4;
  uint64_t seed = 1;
  bool brief = false;
};

// A backend with one way to cut a program into tiles.
struct Configuration {
  std::string name;
  std::shared_ptr<Backend> backend;
  Runner runner;
};

std::vector<Configuration> cpu_configurations(size_t count) {
  std::vector<Configuration> made;
  const auto add = [&](const char* name, const cpu::CpuOptions& options) {
    if (made.size() >= std::max<size_t>(count, 1)) return;
    std::shared_ptr<Backend> backend = cpu::make_cpu_backend(options);
    made.push_back({name, backend, runner_on_host(*backend)});
  };
  add("as chosen", {});
  add("one thread", {.threads = 1});
  add("tiles of 64 x 64", {.tile_rows = 64, .tile_cols = 64});
  add("tiles of 128 x 256", {.tile_rows = 128, .tile_cols = 256});
  return made;
}

Runner runner_on_gpu(Backend& backend, const Stream& stream) {
  const auto words = [](const std::vector<std::byte>& image) {
    return dense_view(const_cast<std::byte*>(image.data()), DType::i32, 1,
                      static_cast<int64_t>(image.size() / 4));
  };
  return {.backend = &backend,
          .upload = [=](const std::vector<std::byte>& image) -> BackendMemory {
            const auto tensor = std::make_shared<DeviceTensor>(
                DType::i32, 1, static_cast<int64_t>(image.size() / 4), stream);
            tensor->upload(words(image), stream);
            stream.synchronize();
            return {tensor, static_cast<std::byte*>(tensor->view().data)};
          },
          .download =
              [=](const BackendMemory& memory, std::vector<std::byte>& image) {
                hopper::copy_to_host(
                    dense_view(memory.get(), DType::i32, 1, static_cast<int64_t>(image.size() / 4)),
                    words(image), stream.handle());
                stream.synchronize();
              }};
}

std::vector<Configuration> gpu_configurations(const Program& program, const DimValues& sizes,
                                              size_t count) {
  std::vector<std::optional<hopper::GemmConfig>> choices{std::nullopt};
  for (const hopper::GemmConfig& choice : hopper::legal_choices(program, sizes, {})) {
    if (choices.size() < count) choices.emplace_back(choice);
  }
  const Stream stream = Stream::make();
  std::vector<Configuration> made;
  for (const auto& choice : choices) {
    hopper::HopperOptions options;
    options.lowering = [choice](const Program& lowered, const DimValues& of,
                                const hopper::LowerOptions& asked) {
      hopper::LowerOptions with = asked;
      if (choice) with.choice = choice;
      return hopper::lower(lowered, of, with);
    };
    std::shared_ptr<Backend> backend = hopper::make_hopper_backend(options);
    backend->use_stream(stream);
    made.push_back(
        {choice ? hopper::text(*choice) : "as chosen", backend, runner_on_gpu(*backend, stream)});
  }
  // At once; what cannot be compiled says so when it is run.
  hopper::parallel_for(made.size(), 0, [&](size_t i) {
    const AnnouncedProgram announced{&program, sizes};
    try {
      made[i].backend->announce({&announced, 1});
    } catch (const Error&) {
    }
  });
  return made;
}

// Sizes that fill tiles, ragged ones, and ones smaller than any tile.
std::vector<DimValues> usual_sizes(const Program& program) {
  constexpr int64_t kRagged[] = {77, 131, 203, 67, 95, 149};
  std::vector<DimValues> all(3);
  int64_t i = 0;
  for (const std::string& symbol : symbols_of(program)) {
    all[0][symbol] = 128 + 64 * i;
    all[1][symbol] = kRagged[i % 6];
    all[2][symbol] = 1 + 7 * i;
    ++i;
  }
  if (i == 0) all.resize(1);
  return all;
}

void print_graph(const Program& program) {
  fmt::print("{}: well formed; {} tensors, {} steps\n", program.name, program.tensors.size(),
             program.steps.size());
  try {
    Graph graph;
    LiftedTensors lifted;
    lift(program, graph, lifted);
    std::vector<int> roots;
    for (const auto* group : {&lifted.values, &lifted.reduced}) {
      for (const auto& [name, value] : *group) {
        if (graph.node(value.id).op != Op::input) roots.push_back(value.id);
      }
    }
    fmt::print("as mathematics:\n{}", text(graph, roots));
    for (const auto* group : {&lifted.values, &lifted.reduced}) {
      for (const auto& [name, value] : *group) {
        if (graph.node(value.id).op != Op::input)
          fmt::print("{} is {}%{}\n", name, group == &lifted.reduced ? "reduced from " : "",
                     value.id);
      }
    }
  } catch (const Error& error) {
    fmt::print("no graph: {}\n", error.what());
  }
}

// The reference multiplies on one core: says how long that will take, before it does.
void announce_reference(const Program& program, const DimValues& sizes) {
  constexpr double kMultiplyAdds = 8e8;  // a second
  constexpr double kEvaluations = 3;     // whether the inputs serve, exact, rounded as stored
  constexpr double kWorthALine = 3;
  constexpr double kMost = 600;
  double seconds = 0;
  for (const measure::ProductShape& product : measure::products_of(program, sizes))
    seconds += kEvaluations * product.flops() / 2 / kMultiplyAdds;
  require(seconds <= kMost,
          fmt::format("program '{}' at{}: the reference in float64 would take about {:.0f} "
                      "minutes; check it at smaller sizes, or without --sizes",
                      program.name, text_of(sizes), seconds / 60));
  if (seconds > kWorthALine)
    fmt::print("  the reference in float64 takes about {:.0f} s\n", seconds);
}

bool is_finite(const TensorValues& tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [](const auto& tensor) {
    return std::all_of(tensor.second.begin(), tensor.second.end(),
                       [](double x) { return std::isfinite(x); });
  });
}

class Checker {
 public:
  explicit Checker(const CheckFlags& flags) : flags_(flags) {
    if (flags.backend == "cpu") return;
    const std::string why = why_no_gpu();
    require(flags.backend.empty() || why.empty(), "--backend gpu: " + why);
    has_gpu_ = why.empty();
    fmt::print("{}\n", has_gpu_ ? describe_gpu() : "no GPU: " + why);
  }

  int refused() const { return refused_; }  // by the GPU

  bool check(const Program& program, const DimValues& sizes) {
    fmt::print("\nsizes{}\n", sizes.empty() ? " as written" : text_of(sizes));
    announce_reference(program, sizes);
    TensorValues inputs = random_inputs(program, sizes, flags_.seed);
    if (!is_finite(program::evaluate(program, sizes, inputs))) {
      // A root of a sum of squares, say, which negative numbers are not.
      for (auto& [name, values] : inputs) {
        for (double& x : values) x = std::abs(x);
      }
      fmt::print("  inputs are positive: of negative ones not all results are finite\n");
    }
    judge_.emplace(program, sizes, inputs);
    bool is_right = true;
    if (flags_.backend != "gpu") {
      is_right = check(program, sizes, inputs, "cpu", 1, cpu_configurations(flags_.configurations));
    }
    if (!has_gpu_) return is_right;
    std::vector<Configuration> configurations;
    try {
      configurations = gpu_configurations(program, sizes, flags_.configurations);
      hopper::lower(program, sizes, {});
    } catch (const Error& error) {
      const bool helps = flags_.storage.empty() &&
                         std::string_view(error.what()).find("tensor cores") != std::string::npos;
      fmt::print("  gpu: refused: {}{}\n", error.what(),
                 helps ? "; --storage bf16 checks it with matrices in bf16" : "");
      refused_ += 1;
      return is_right;
    }
    return check(program, sizes, inputs, "gpu", 8, configurations) && is_right;
  }

 private:
  bool check(const Program& program, const DimValues& sizes, const TensorValues& inputs,
             const char* backend, int64_t row_multiple,
             const std::vector<Configuration>& configurations) {
    const auto run = [&](const Configuration& configuration) {
      return run_between_guards(configuration.runner, program, sizes, inputs, row_multiple);
    };
    const CheckedRun first = run(configurations.front());
    bool is_right = first.outside.empty();
    if (!is_right)
      fmt::print("  {}: WRONG: memory outside was written, beside {}\n", backend, first.outside);
    for (const TensorDecl& decl : program.tensors) {
      const auto expected = judge_->exact().find(decl.name);
      if (expected == judge_->exact().end()) continue;
      const program::Judge::Verdict verdict = judge_->of(decl.name, first.results.at(decl.name));
      is_right = is_right && verdict.is_right();
      const auto odd = std::count_if(expected->second.begin(), expected->second.end(),
                                     [](double x) { return !std::isfinite(x); });
      fmt::print("  {}: {:20} {:4} {:24} error {:.2e}, bound {:.2e}  {}{}\n", backend, decl.name,
                 name_of(decl.dtype), kind_of(decl), verdict.error, verdict.bound,
                 verdict.is_right() ? "ok" : "WRONG",
                 odd > 0 ? fmt::format(" ({} elements are not finite)", odd) : "");
    }
    std::string different;
    if (run(configurations.front()).bits != first.bits) different = "a second run";
    size_t ran = 1;
    for (size_t i = 1; i < configurations.size(); ++i) {
      const std::string& name = configurations[i].name;
      try {
        if (run(configurations[i]).bits != first.bits)
          different += (different.empty() ? "" : ", ") + name;
        ++ran;
      } catch (const Error& error) {
        fmt::print("  {}: {}: refused: {}\n", backend, name, error.what());
      }
    }
    if (different.empty()) {
      fmt::print("  {}: the same bits in two runs and {} configuration{}\n", backend, ran,
                 ran == 1 ? "" : "s");
    } else {
      fmt::print("  {}: WRONG: other bits in: {}\n", backend, different);
    }
    return is_right && different.empty();
  }

  static std::string kind_of(const TensorDecl& decl) {
    const char* kind = decl.kind == TensorKind::row_partial      ? " by rows"
                       : decl.kind == TensorKind::column_partial ? " by columns"
                                                                 : "";
    return decl.shape.text() + (*kind != 0 ? " partials" : "") + kind;
  }

  const CheckFlags& flags_;
  bool has_gpu_ = false;
  int refused_ = 0;
  std::optional<program::Judge> judge_;
};

void run(const CheckFlags& flags) {
  const DimValues given = parse_sizes(flags.sizes);
  std::vector<Program> programs;
  for (const std::string& file : flags.files) {
    programs.push_back(read_program(file));
    if (flags.storage.empty()) continue;
    programs.back() =
        stored_as(std::move(programs.back()), flags.storage == "bf16" ? DType::bf16 : DType::f16);
  }
  refuse_other_sizes(programs, given);
  // A line is seen when it is written, also where the output is a file.
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  Checker checker(flags);
  bool is_right = true;
  for (const Program& program : programs) {
    if (!flags.brief) fmt::print("\n");
    if (!flags.brief) print_graph(program);
    std::vector<DimValues> all = usual_sizes(program);
    if (!given.empty()) {
      require_sizes(program, given);
      all = {given};
    }
    fmt::print("{}{}", flags.brief ? "\n" : "", flags.brief ? program.name : "");
    for (const DimValues& sizes : all) is_right = checker.check(program, sizes) && is_right;
  }
  if (!is_right) throw Error("a backend does not compute what the program says: see WRONG above");
  require(flags.backend != "gpu" || checker.refused() == 0,
          "--backend gpu: not all was checked: see refused above");
}

}  // namespace

void add_check(CLI::App& app) {
  auto flags = std::make_shared<CheckFlags>();
  CLI::App& command = *app.add_subcommand(
      "check",
      "Whether programs are well formed, and whether the backends compute what they say: random "
      "inputs against float64");
  command.add_option("programs", flags->files, "Files of programs (.coda)")
      ->required()
      ->type_name("FILE");
  command
      .add_option(
          "--sizes", flags->sizes,
          "Sizes of the programs' symbols, as in M=256,N=512 [sizes that fill tiles, ragged "
          "ones and tiny ones]")
      ->delimiter(',')
      ->type_name("LIST");
  command.add_option("--backend", flags->backend, "cpu or gpu [all that there are]")
      ->check(CLI::IsMember({"cpu", "gpu"}));
  command
      .add_option(
          "--storage", flags->storage,
          "bf16 or f16: matrices that are fp32 in the files are stored so, as products on a "
          "GPU need it [as written]")
      ->check(CLI::IsMember({"bf16", "f16"}));
  command
      .add_option("--configurations", flags->configurations,
                  "Ways to cut it into tiles whose bits are compared")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command.add_option("--seed", flags->seed, "Of the inputs")->capture_default_str();
  command.add_flag("--brief", flags->brief, "Leave the mathematics out");
  command.callback([flags] { run(*flags); });
}

}  // namespace coda::tools
