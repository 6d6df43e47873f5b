// SPDX-License-Identifier: Apache-2.0
// The table that chooses the tiles and schedules which the emitter serves.
// See lab/notebook/hopper.md for the method.
//   hopper_table check [--only TEXT] [--smallest]
//   hopper_table time --shapes N:K:LAYOUT,... [--m M] [--menu bare|epilogue] [--only TEXT]
//                [--bands 2048m,1024n,...] [--keep COUNT] [--no-sustained] [--screen] [--json FILE]
//                [--screen-seconds S]   screens each alone on a hot chip, not interleaved
//   hopper_table once ...             launches each candidate once, for a profiler
// --root DIR names the folder that holds device/ (default: the current one).
#include <algorithm>
#include <cstdio>
#include <exception>
#include <list>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "lab/hopper_table/check.h"
#include "lab/hopper_table/problem.h"
#include "lab/hopper_table/report.h"
#include "measure/cublas.h"
#include "measure/gpu.h"

namespace coda::hopper_table {
namespace {

using measure::Candidate;
using measure::Timer;

struct Options {
  std::string mode;
  std::string root = ".";
  std::string json;
  std::string only;
  std::string menu = "bare";
  std::string shapes = "2048:2048:tn";
  std::vector<Band> bands = {{}};
  unsigned m = 16384;
  unsigned keep = 3;
  int rounds = 5;
  double seconds = 1.2;
  double screen_seconds = 0;
  double heat_seconds = 3;
  int repetitions = 2;
  bool sustained = true;
  bool screen = false;
  bool smallest = false;
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

Options parse(int argc, char** argv) {
  Options options;
  if (argc < 2) throw std::runtime_error("usage: hopper_table check|time [options]");
  options.mode = argv[1];
  for (int i = 2; i < argc; ++i) {
    const std::string flag = argv[i];
    const auto value = [&]() -> std::string {
      if (i + 1 >= argc) throw std::runtime_error(flag + " needs a value");
      return argv[++i];
    };
    if (flag == "--root") {
      options.root = value();
    } else if (flag == "--json") {
      options.json = value();
    } else if (flag == "--only") {
      options.only = value();
    } else if (flag == "--menu") {
      options.menu = value();
    } else if (flag == "--shapes") {
      options.shapes = value();
    } else if (flag == "--m") {
      options.m = static_cast<unsigned>(std::stoul(value()));
    } else if (flag == "--keep") {
      options.keep = static_cast<unsigned>(std::stoul(value()));
    } else if (flag == "--rounds") {
      options.rounds = std::stoi(value());
    } else if (flag == "--seconds") {
      options.seconds = std::stod(value());
    } else if (flag == "--screen-seconds") {
      options.screen_seconds = std::stod(value());
    } else if (flag == "--heat") {
      options.heat_seconds = std::stod(value());
    } else if (flag == "--repetitions") {
      options.repetitions = std::stoi(value());
    } else if (flag == "--bands") {
      options.bands.clear();
      for (const std::string& length : split(value(), ',')) {
        options.bands.push_back(
            {.length = static_cast<unsigned>(std::stoul(length)), .columns = length.back() == 'n'});
      }
    } else if (flag == "--no-sustained") {
      options.sustained = false;
    } else if (flag == "--screen") {
      options.screen = true;
    } else if (flag == "--smallest") {
      options.smallest = true;
    } else {
      throw std::runtime_error("unknown option " + flag);
    }
  }
  return options;
}

// Any of the words separated by '|'.
bool selected(const Variant& variant, const std::string& only) {
  if (only.empty()) return true;
  const std::string name = variant.name() + "$";
  for (const std::string& word : split(only, '|')) {
    if (name.find(word) != std::string::npos) return true;
  }
  return false;
}

std::vector<Shape> parse_shapes(const Options& options) {
  std::vector<Shape> shapes;
  for (const std::string& text : split(options.shapes, ',')) {
    const std::vector<std::string> parts = split(text, ':');
    if (parts.size() < 3) throw std::runtime_error("a shape is N:K:LAYOUT or N:K:LAYOUT:M");
    Shape shape{.m = options.m,
                .n = static_cast<unsigned>(std::stoul(parts[0])),
                .k = static_cast<unsigned>(std::stoul(parts[1]))};
    if (parts.size() > 3) shape.m = static_cast<unsigned>(std::stoul(parts[3]));
    bool known = false;
    for (const device::OperandLayout layout :
         {device::OperandLayout::tn, device::OperandLayout::nn, device::OperandLayout::nt}) {
      if (parts[2] != layout_name(layout)) continue;
      shape.layout = layout;
      known = true;
    }
    if (!known) throw std::runtime_error("unknown layout " + parts[2]);
    shapes.push_back(shape);
  }
  return shapes;
}

std::vector<Variant> menu_variants(const Options& options, device::OperandLayout layout) {
  std::vector<Variant> variants;
  if (options.menu == "bare") {
    variants = bare_variants(layout);
  } else if (options.menu == "epilogue") {
    variants = epilogue_variants(layout);
  } else {
    throw std::runtime_error("unknown menu " + options.menu);
  }
  std::erase_if(variants, [&](const Variant& variant) { return !selected(variant, options.only); });
  return variants;
}

TensorView view_of(const Matrix& matrix, bool fp16) {
  return {.data = reinterpret_cast<void*>(matrix.data),
          .dtype = fp16 ? DType::f16 : DType::bf16,
          .rows = matrix.rows,
          .cols = matrix.columns,
          .row_stride = matrix.pitch};
}

// The `keep` fastest of each kind of epilogue in the screening.
std::vector<Candidate*> finalists(std::map<std::string, std::vector<Candidate*>>& kinds,
                                  Spread Candidate::* screened, unsigned keep) {
  std::vector<Candidate*> kept;
  for (auto& [kind, candidates] : kinds) {
    std::sort(candidates.begin(), candidates.end(), [&](const Candidate* a, const Candidate* b) {
      return (a->*screened).median_ms < (b->*screened).median_ms;
    });
    for (std::size_t i = 0; i < std::min<std::size_t>(keep, candidates.size()); ++i) {
      kept.push_back(candidates[i]);
    }
  }
  return kept;
}

// Compiled kernels by source, since shapes share them.
using KernelCache = std::map<std::string, CompiledKernel>;

void compile_missing(const NvrtcCompiler& compiler, const std::vector<Variant>& variants,
                     KernelCache& cache) {
  std::vector<std::string> missing;
  for (const Variant& variant : variants) {
    if (!cache.contains(kernel_source(variant))) missing.push_back(kernel_source(variant));
  }
  std::vector<CompiledKernel> compiled = compiler.compile_all(missing);
  for (std::size_t i = 0; i < missing.size(); ++i) cache[missing[i]] = std::move(compiled[i]);
}

void time_shape(const Device& device, const Support& support, const NvrtcCompiler& compiler,
                const Options& options, const Shape& shape, Timer& timer, Report& report,
                KernelCache& cache) {
  const std::vector<Variant> variants = menu_variants(options, shape.layout);
  compile_missing(compiler, variants, cache);

  unsigned planes = 1;
  for (const Variant& variant : variants) planes = std::max(planes, variant.shape.planes());
  const unsigned sets = shape.flops() > 1e12 ? 2 : 3;
  const Problem problem(device, support, shape, sets, planes);

  std::list<Candidate> candidates;
  std::vector<Candidate*> peers;
  std::vector<Candidate*> ours;
  std::map<std::string, std::vector<Candidate*>> kinds;
  const auto add = [&](const std::string& name, const std::string& kind,
                       std::function<void(unsigned)> launch, std::vector<Candidate*>& group) {
    Candidate& candidate = candidates.emplace_back();
    candidate.name = name;
    candidate.launch = std::move(launch);
    group.push_back(&candidates.back());
    kinds[kind].push_back(&candidates.back());
  };
  int index = 0;
  std::vector<measure::GemmOperands> operands;
  for (const TensorSet& set : problem.sets()) {
    operands.push_back({.a = view_of(set.a, shape.fp16),
                        .b = view_of(set.b, shape.fp16),
                        .out = view_of(set.stores.front(), shape.fp16)});
  }
  for (auto& launch : measure::cublas_algorithms(operands, shape.layout, device.stream())) {
    add("cuBLAS heuristic " + std::to_string(index++), "", std::move(launch), peers);
  }
  for (const Variant& variant : variants) {
    const CompiledKernel& compiled = cache.at(kernel_source(variant));
    if (!compiled.defect.empty()) {
      std::printf("%s: %s, left out\n", variant.name().c_str(), compiled.defect.c_str());
      continue;
    }
    const LoadedKernel kernel = load_variant(device, variant, compiled.cubin);
    for (const Band& band : options.bands) {
      add(variant.name() + " b" + band.name(), variant.shape_name(),
          prepare(device, kernel, variant, problem, band), ours);
    }
  }
  std::vector<Candidate*> all = peers;
  all.insert(all.end(), ours.begin(), ours.end());
  if (options.mode == "once") {
    for (Candidate* candidate : all) {
      std::printf("%s\n", candidate->name.c_str());
      candidate->launch(0);
    }
    device.synchronize();
    return;
  }
  Spread Candidate::* screened = &Candidate::interleaved;
  if (options.screen_seconds > 0) {
    timer.sustained(all, options.screen_seconds, 1, options.heat_seconds);
    screened = &Candidate::sustained;
  } else {
    timer.interleaved(all, options.rounds, 3.0);
  }

  const std::vector<Candidate*> kept = finalists(kinds, screened, options.keep);
  if (options.screen_seconds > 0) timer.interleaved(kept, 9, 10.0);
  timer.cool(kept, 9);
  if (options.sustained) {
    timer.sustained(kept, options.seconds, options.repetitions, options.heat_seconds);
  }
  report.add(shape, peers, ours, options.screen);
}

int run(const Options& options) {
  measure::Gpu gpu;
  const Device device(gpu.state());
  const NvrtcCompiler compiler(read_headers(options.root));
  const Support support(device, compiler);
  std::printf("%s, %d multiprocessors\n", gpu.text().c_str(), device.multiprocessors());
  if (options.mode == "check") {
    std::vector<Variant> variants = all_variants();
    for (const device::OperandLayout layout :
         {device::OperandLayout::tn, device::OperandLayout::nn, device::OperandLayout::nt}) {
      const std::vector<Variant> fp16 = bare_variants(layout, device::Element::f16);
      // One element type's instructions differ from the other's in one word: a few suffice.
      for (std::size_t i = 0; i < fp16.size(); i += 5) variants.push_back(fp16[i]);
    }
    std::erase_if(variants,
                  [&](const Variant& variant) { return !selected(variant, options.only); });
    return check_variants(device, compiler, support, variants, options.smallest) == 0 ? 0 : 1;
  }
  if (options.mode != "time" && options.mode != "once")
    throw std::runtime_error("unknown mode " + options.mode);
  Report report(options.json);
  KernelCache cache;
  for (const Shape& shape : parse_shapes(options)) {
    time_shape(device, support, compiler, options, shape, gpu.timer(), report, cache);
  }
  return 0;
}

}  // namespace
}  // namespace coda::hopper_table

int main(int argc, char** argv) try {
  return coda::hopper_table::run(coda::hopper_table::parse(argc, argv));
} catch (const std::exception& error) {
  std::fprintf(stderr, "hopper_table: %s\n", error.what());
  return 2;
}
