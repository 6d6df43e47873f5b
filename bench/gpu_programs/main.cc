// SPDX-License-Identifier: Apache-2.0
// Measures the time of each program of a block, and of whole blocks, relative to their GEMMs alone
// on cuBLAS, for the table in lab/notebook/hopper.md. cuBLAS runs the best of the first 16
// algorithms that its heuristics propose; a program is also compared with the first proposal, which
// a framework gets. Prints one line per case, and writes one JSON object per candidate to a file.
// With --tune the configurations that the model ranks first are timed too. (`coda bench` measures
// any single program or block.)
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "bench/llama_block/block_graph.h"
#include "cases.h"
#include "coda/compile.h"
#include "coda/device.h"
#include "coda/error.h"
#include "coda/measure.h"

namespace coda::gpu_programs {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string folder = "programs";
  std::vector<std::string> rows;  // only cases whose row contains one of these; none: all
  std::string json;
  int64_t hidden = 0;  // only this one
  std::vector<int64_t> tokens{16384};
  bool square = false;
  bool tune = false;
  bool all = false;
  bool no_cool = false;
  bool interleaved = false;
  size_t most = 32;  // configurations that are tuned: the best by the model
  double seconds = 1.2;
  int repetitions = 2;
  double heat = 1.0;

  MeasureOptions measured() const {
    return {.backend = "gpu",
            .gpu = {.seconds = seconds,
                    .repetitions = repetitions,
                    .heat_seconds = heat,
                    .cool_rounds = no_cool ? 0 : 15,
                    .interleaved_rounds = interleaved ? 9 : 0,
                    .tuned = tune || all ? most : 0,
                    .times_all = all}};
  }
};

Program read_program(const std::string& path) {
  std::ifstream file(path);
  require(file.good(), "cannot read " + path);
  std::stringstream text;
  text << file.rdbuf();
  return parse_program(text.str());
}

class Table {
 public:
  explicit Table(const Options& options) : options_(options) {
    if (!options.json.empty()) json_.open(options.json);
  }

  void measure_case(const Case& one) {
    const Program program = read_program(options_.folder + "/" + one.file + ".coda");
    const Measured result = measure_program(program, one.sizes, options_.measured());
    print(one.row, one.tokens, one.hidden, result);
    end_line();
    for (const auto* group : {&result.candidates, &result.screened}) {
      for (const Timed& timed : *group) {
        Json line{{"row", one.row},
                  {"hidden", one.hidden},
                  {"tokens", one.tokens},
                  {"product", result.product}};
        line.update(Json::parse(json_text(timed)));
        if (group == &result.screened) line["screened"] = true;
        json_ << line.dump() << "\n";
      }
    }
  }

  void measure_block(int64_t tokens, const Width& width, bool backward) {
    const Plan plan = bench::block_plan(bench::wide_headed(tokens, width.hidden, width.mlp),
                                        DType::bf16, h200_rates(), backward);
    const Measured result = measure_plan({plan, {}}, {{"M", tokens}}, options_.measured());
    const Timed& ours = result.candidates.back();
    const std::string row = std::string("block, ") + (backward ? "forward + backward" : "forward");
    print(row, tokens, width.hidden, result);
    const int64_t bytes = result.session_bytes + result.bound_bytes;
    const auto joules_a_token = [&](const Timed& timed) {
      return timed.watts * timed.sustained.median_ms * 1e-3 / static_cast<double>(tokens);
    };
    std::printf(", %.0f W, %.3f mJ a token, %.0f MB (%.0f of them the session's)", ours.watts,
                joules_a_token(ours) * 1e3, static_cast<double>(bytes) * 1e-6,
                static_cast<double>(result.session_bytes) * 1e-6);
    end_line();
    for (const Timed& timed : result.candidates) {
      Json line{{"row", row}, {"hidden", width.hidden}, {"tokens", tokens}};
      line.update(Json::parse(json_text(timed)));
      line["joules_a_token"] = joules_a_token(timed);
      if (&timed == &ours) {
        line["peak_bytes"] = bytes;
        line["session_bytes"] = result.session_bytes;
      }
      json_ << line.dump() << "\n";
    }
  }

  // An error of one case does not end the others.
  void attempt(const std::string& row, int64_t hidden, const std::function<void()>& action) {
    const auto is_in_row = [&](const std::string& text) {
      return row.find(text) != std::string::npos;
    };
    if (!options_.rows.empty() && std::ranges::none_of(options_.rows, is_in_row)) return;
    if (options_.hidden != 0 && hidden != options_.hidden) return;
    attempts_ += 1;
    try {
      action();
    } catch (const Error& error) {
      std::printf("%s, D %ld: %s\n", row.c_str(), hidden, error.what());
    }
    json_.flush();
  }
  int attempts() const { return attempts_; }

 private:
  // The peer, which is the first, and the others beside it.
  void print(const std::string& row, int64_t tokens, int64_t hidden, const Measured& result) {
    if (device_ != result.device) std::printf("%s\n", (device_ = result.device).c_str());
    const Timed& peer = result.candidates.front();
    std::printf("%-34s M %5ld D %5ld  cuBLAS %9.4f ms %4.0f TF %4.0f MHz", row.c_str(), tokens,
                hidden, peer.sustained.median_ms, result.flops / peer.sustained.median_ms * 1e-9,
                peer.sustained.mhz);
    for (size_t i = 1; i < result.candidates.size(); ++i) print(result.candidates[i], peer);
  }
  void print(const Timed& candidate, const Timed& peer) const {
    std::printf("  |  %s %.3f", candidate.name.c_str(),
                candidate.sustained.median_ms / peer.sustained.median_ms);
    if (!options_.no_cool)
      std::printf(" cool %.3f", candidate.cool.median_ms / peer.cool.median_ms);
    if (options_.interleaved)
      std::printf(" interleaved %.3f",
                  candidate.interleaved.median_ms / peer.interleaved.median_ms);
    std::printf(" %4.0f MHz", candidate.sustained.mhz);
    if (!options_.no_cool) std::printf(", cool %4.0f of %4.0f", candidate.cool.mhz, peer.cool.mhz);
  }
  static void end_line() {
    std::printf("\n");
    std::fflush(stdout);
  }

  const Options& options_;
  const Stream stream_ = Stream::make();  // keeps the GPU's context between the cases
  std::string device_;                    // what was printed
  std::ofstream json_;
  int attempts_ = 0;
};

void measure_cases(Table& table, const std::vector<Case>& cases) {
  for (const Case& one : cases)
    table.attempt(one.row, one.hidden, [&] { table.measure_case(one); });
}

void measure_blocks(Table& table, int64_t tokens) {
  for (const Width& width : widths()) {
    for (const bool backward : {false, true})
      table.attempt("block", width.hidden, [&] { table.measure_block(tokens, width, backward); });
  }
}

void run(const Options& options) {
  Table table(options);
  if (options.square) {
    measure_cases(table, square_cases());
  } else {
    for (const int64_t tokens : options.tokens) {
      measure_cases(table, block_cases(tokens));
      measure_blocks(table, tokens);
    }
  }
  require(table.attempts() > 0, "no row is named so: see --rows and --hidden in --help");
}

}  // namespace
}  // namespace coda::gpu_programs

int main(int argc, char** argv) {
  coda::gpu_programs::Options options;
  CLI::App app("Programs of a block, and blocks, on a GPU against the bare products on cuBLAS");
  app.add_option("--programs", options.folder, "folder of the programs")->capture_default_str();
  app.add_option("--rows", options.rows,
                 "only rows that contain one of these; blocks are \"block\"");
  app.add_option("--hidden", options.hidden, "only 2048, 4096 or 8192");
  app.add_option("--tokens", options.tokens, "rows, M")->delimiter(',')->capture_default_str();
  app.add_flag("--square", options.square, "M = N = K, programs only");
  app.add_flag("--tune", options.tune, "also time the configurations that the model ranks first");
  app.add_flag("--all", options.all, "time all of these in all regimes, instead of the fastest");
  app.add_option("--most", options.most, "configurations that are tuned")->capture_default_str();
  app.add_flag("--no-cool", options.no_cool, "without the cool regime");
  app.add_flag("--interleaved", options.interleaved, "also the interleaved regime");
  app.add_option("--seconds", options.seconds, "sustained, each, at a time")->capture_default_str();
  app.add_option("--repetitions", options.repetitions,
                 "sustained: turns of each; even, so that none is always second")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--heat", options.heat, "seconds of heat before each row")->capture_default_str();
  app.add_option("--json", options.json, "file for the results");
  CLI11_PARSE(app, argc, argv);
  try {
    coda::gpu_programs::run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_programs: %s\n", error.what());
    return 2;
  }
}
