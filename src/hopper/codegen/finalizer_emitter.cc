// SPDX-License-Identifier: Apache-2.0
// A step's value is a scalar, or has one float a line of some length. All vectors of one length are
// made line by line together, transposed or not. Sums of vectors divide a program in levels: what a
// sum needs, then the sum, then what needs it.
// Three ways: without sums, many blocks; with sums that only scalars need, many blocks make the
// vectors and a second launch, one block, sums them; else one block does all, level by level, and
// stores last, so that what is stored in place is still there when it is needed again.
#include "hopper/codegen/finalizer_emitter.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "base/rounding.h"
#include "coda/error.h"
#include "device/tiles/tile_position.cuh"
#include "hopper/codegen/argument_text.h"
#include "hopper/codegen/expressions.h"
#include "hopper/codegen/kernel_names.h"
#include "hopper/legalise/program_sizes.h"
#include "program/vocabulary.h"

namespace coda::hopper {
namespace {

constexpr int64_t kBlockThreads = 256;
constexpr int64_t kMostBlockThreads = 512;  // device/kernels/finalizer.cuh: kFinalizerThreads
constexpr int64_t kManyRows = 512;  // of column partials: a block with so many has more threads
constexpr int64_t kSingleThreads = 1024;  // kSingleThreads
constexpr int64_t kSlotLines = 32;
constexpr int64_t kFewLanes = 8;       // of a line with row partials: 128 bytes at a time
constexpr int64_t kLanePartials = 16;  // that a lane has in flight: device/kernels/finalizer.cuh
constexpr int64_t kLinesOfOneBlock =
    32768;  // so many elementwise lines are no work for two launches

// What is known of a program before any text is written.
struct Analysis {
  Analysis(const Program& p, const DimValues& s) : program(p), sizes(s) {
    levels.assign(p.steps.size(), 0);
    for (size_t i = 0; i < p.steps.size(); ++i) {
      const Step& step = p.steps[i];
      for (int o : step.operands) levels[i] = std::max(levels[i], levels[o]);
      if (step.kind() == StepKind::reduce_vector) ++levels[i];
      top = std::max(top, levels[i]);
      if (program::is_combination(step)) combines = true;
      if (!program::is_vector_store(step)) continue;
      if (is_line(step)) {
        line_stores.push_back(static_cast<int>(i));
        line_level = std::max(line_level, levels[i]);
      } else {
        scalar_stores.push_back(static_cast<int>(i));
      }
      stored.insert(step.tensor());
    }
  }

  static bool is_line(const Step& step) { return !step.shape.is_scalar(); }
  static const Dim& length(const Step& step) {
    return step.shape.is_per_row() ? step.shape.rows : step.shape.cols;
  }
  const Step& step(int i) const { return program.steps[i]; }
  int64_t size(const Dim& dim) const { return dim.evaluate(sizes); }

  // The store of the value itself in fp32, from which it can be read back as it was.
  int exact_store(int value) const {
    for (int i : line_stores) {
      if (step(i).operands[0] == value && program.tensors[step(i).tensor()].dtype == DType::f32) {
        return i;
      }
    }
    return -1;
  }

  // Whether the value is made, at any distance, of what is read from a tensor that is also stored.
  bool reads_stored(int value, bool stops_at_exact_stores) const {
    if (stops_at_exact_stores && exact_store(value) >= 0) return false;
    const Step& s = step(value);
    if (s.operands.empty() && s.tensor() >= 0 && stored.contains(s.tensor())) return true;
    return std::any_of(s.operands.begin(), s.operands.end(),
                       [&](int o) { return reads_stored(o, stops_at_exact_stores); });
  }

  // A scalar that is stored in place must not be read by one block after another has stored it.
  bool scalars_are_private() const {
    std::set<int> scalar_tensors;
    for (int i : scalar_stores) scalar_tensors.insert(step(i).tensor());
    for (size_t i = 0; i < program.steps.size(); ++i) {
      const Step& s = program.steps[i];
      if (program::is_vector_load(s) && scalar_tensors.contains(s.tensor())) return false;
    }
    return true;
  }

  // Second launch possible and worth it: every summed vector can be made again after the first.
  bool divides_in_two() const {
    if (line_level > 0 || line_stores.empty()) return false;
    int64_t most_lines = 0;
    for (const Step& s : program.steps) {
      if (is_line(s)) most_lines = std::max(most_lines, size(length(s)));
      if (s.kind() == StepKind::reduce_vector && reads_stored(s.operands[0], true)) return false;
    }
    return combines || most_lines > kLinesOfOneBlock;
  }

  const Program& program;
  const DimValues& sizes;
  std::vector<int> levels;  // how many sums of vectors lie before a step's value
  int top = 0;
  int line_level = 0;  // of stored vectors
  bool combines = false;
  std::vector<int> line_stores;
  std::vector<int> scalar_stores;
  std::set<int> stored;  // tensors
};

// The text of one kernel.
class KernelWriter {
 public:
  KernelWriter(const Analysis& analysis, const LowerOptions& options, bool is_single,
               bool reads_stored_back)
      : analysis_(analysis),
        program_(analysis.program),
        arguments_(analysis.program, analysis.sizes, options),
        is_single_(is_single),
        reads_stored_back_(reads_stored_back) {}

  KernelLaunch run(const std::string& function, const std::vector<int>& line_stores,
                   const std::vector<int>& scalar_stores) {
    find_needed(line_stores, scalar_stores);
    choose_threads();
    for (int level = 0; level <= analysis_.top; ++level) {
      if (level > 0) write_sums(level);
      write_scalars(level);
    }
    // Stored vectors by length, in the order of their first store.
    std::vector<Dim> lengths;
    for (int i : line_stores) {
      const Dim& length = Analysis::length(step(i));
      if (std::find(lengths.begin(), lengths.end(), length) == lengths.end()) {
        lengths.push_back(length);
      }
    }
    for (size_t l = 0; l < lengths.size(); ++l) {
      std::vector<int> stores;
      for (int i : line_stores) {
        if (Analysis::length(step(i)) == lengths[l]) stores.push_back(i);
      }
      write_stores(lengths[l], stores, lengths.size() == 1);
    }
    write_scalar_stores(scalar_stores);

    KernelLaunch launch;
    launch.function = function;
    launch.source =
        program_comment(program_) + "#include \"device/kernels/finalizer.cuh\"\n\n" +
        "namespace coda::device::precise {\nnamespace {\n\n" + arguments_.declarations() +
        "\n}  // namespace\n\nextern \"C\" __global__ void __launch_bounds__(" +
        (is_single_ ? "kSingleThreads" : "kFinalizerThreads") + ", 1) " + function +
        "(const __grid_constant__ Arguments a) {\n" +
        "  __shared__ float scratch[kFinalizerScratch];\n  launch_dependents();\n" +
        "  wait_for_predecessor();\n" + body_ + "}\n\n}  // namespace coda::device::precise\n";
    launch.grid = static_cast<uint32_t>(is_single_ ? 1 : std::max<int64_t>(1, blocks_));
    launch.threads = static_cast<uint32_t>(is_single_ ? kSingleThreads : block_threads_);
    launch.waits_for_predecessor = true;
    arguments_.fill(launch);
    return launch;
  }

 private:
  const Step& step(int i) const { return program_.steps[i]; }
  const TensorDecl& tensor(int i) const { return program_.tensors[i]; }
  static std::string name(int i) { return "v" + std::to_string(i); }

  // All that the launch's stores need. A summed vector that was stored is read back.
  void find_needed(const std::vector<int>& line_stores, const std::vector<int>& scalar_stores) {
    std::vector<int> pending = line_stores;
    pending.insert(pending.end(), scalar_stores.begin(), scalar_stores.end());
    while (!pending.empty()) {
      const int i = pending.back();
      pending.pop_back();
      if (!needed_.insert(i).second) continue;
      if (reads_back(i)) continue;
      for (int o : step(i).operands) pending.push_back(o);
    }
  }
  bool reads_back(int i) const {
    return reads_stored_back_ && !program::is_effect(step(i)) && Analysis::is_line(step(i)) &&
           analysis_.exact_store(i) >= 0;
  }

  void choose_threads() {
    for (int i : needed_) {
      const Step& s = step(i);
      if (!program::is_combination(s) || reads_back(i)) continue;
      const bool is_long =
          tensor(s.tensor()).kind == TensorKind::column_partial && partials_of(s) > kManyRows;
      if (is_long) block_threads_ = kMostBlockThreads;
    }
  }

  // An operand: a literal or a name.
  std::string operand(int o) const {
    if (program::is_constant(step(o))) return "(" + number_text(step(o).number()) + ")";
    return name(o);
  }

  std::string made(const Step& s) const {
    if (s.kind() == StepKind::transpose_vector) return operand(s.operands[0]);
    std::vector<std::string> operands;
    for (int o : s.operands) operands.push_back(operand(o));
    return expression(s, operands);
  }

  void write_scalars(int level) {
    for (int i : needed_) {
      const Step& s = step(i);
      if (program::is_effect(s) || Analysis::is_line(s) || analysis_.levels[i] != level ||
          program::is_constant(s) || s.kind() == StepKind::reduce_vector) {
        continue;
      }
      body_ += "  const float " + name(i) + " = ";
      if (program::is_vector_load(s)) {
        body_ += "load_element<" + arguments_.stored_type(s.tensor()) + ">(" +
                 arguments_.pointer(s.tensor()) + ", 0);" + arguments_.comment(s.tensor());
      } else {
        body_ += made(s) + ";\n";
      }
    }
  }

  // The sums of one level: one walk over the lines of each length.
  void write_sums(int level) {
    std::map<Dim, std::vector<int>> sums;
    for (int i : needed_) {
      if (step(i).kind() == StepKind::reduce_vector && analysis_.levels[i] == level) {
        sums[Analysis::length(step(step(i).operands[0]))].push_back(i);
      }
    }
    for (const auto& [length, steps] : sums) {
      std::vector<int> roots;
      std::string ends;
      for (int i : steps) {
        body_ += "  float sum" + std::to_string(i) + " = 0.0f;\n";
        roots.push_back(step(i).operands[0]);
        ends += "        sum" + std::to_string(i) + " += " + operand(step(i).operands[0]) + ";\n";
      }
      write_lines(length, roots, ends, "0", "1");
      for (int i : steps) {
        body_ +=
            "  const float " + name(i) + " = block_sum(sum" + std::to_string(i) + ", scratch);\n";
      }
    }
  }

  void write_stores(const Dim& length, const std::vector<int>& stores, bool is_only) {
    std::vector<int> roots;
    std::string ends;
    for (int i : stores) {
      const Step& s = step(i);
      roots.push_back(s.operands[0]);
      ends += "        store_element<" + arguments_.stored_type(s.tensor()) + ">(" +
              arguments_.pointer(s.tensor()) + ", " + line_index(s) + ", " +
              operand(s.operands[0]) + ");" + arguments_.comment(s.tensor());
    }
    if (is_single_) return write_lines(length, roots, ends, "0", "1");
    const std::string id = length_id(length);
    const int64_t own = ceil_div(analysis_.size(length), lines_of_block(roots));
    const std::string first = is_only ? "" : arguments_.number("first_block_" + id, blocks_);
    const std::string count = arguments_.number("blocks_" + id, own);
    blocks_ += own;
    if (is_only) return write_lines(length, roots, ends, "block_index()", count);
    body_ +=
        "  if (block_index() >= " + first + " && block_index() - " + first + " < " + count + ")\n";
    write_lines(length, roots, ends, "(block_index() - " + first + ")", count);
  }

  // How many threads work on a line that the roots are made of, and how.
  enum class Work { alone, lanes, slots };
  Work work_of(const std::vector<int>& roots) const {
    bool rows = false;
    bool columns = false;
    for (int i : lines_needed(roots)) {
      if (!program::is_combination(step(i)) || reads_back(i)) continue;
      (tensor(step(i).tensor()).kind == TensorKind::row_partial ? rows : columns) = true;
    }
    return rows ? Work::lanes : columns ? Work::slots : Work::alone;
  }
  int64_t lanes_of_line(const std::vector<int>& roots) const {
    int64_t most = 0;
    for (int i : lines_needed(roots)) {
      if (program::is_combination(step(i)) && !reads_back(i)) {
        most = std::max(most, partials_of(step(i)));
      }
    }
    int64_t lanes = kFewLanes;
    while (lanes < 32 && lanes * kLanePartials < most) lanes *= 2;
    return lanes;
  }
  int64_t partials_of(const Step& s) const {
    const TensorDecl& decl = tensor(s.tensor());
    const bool rows = decl.kind == TensorKind::row_partial;
    return partial_spans(analysis_.size(rows ? decl.shape.cols : decl.shape.rows));
  }
  int64_t lines_of_block(const std::vector<int>& roots) const {
    switch (work_of(roots)) {
      case Work::alone: return block_threads_;
      case Work::lanes: return block_threads_ / lanes_of_line(roots);
      case Work::slots: return kSlotLines;
    }
    return 1;
  }

  // Ascending.
  std::set<int> lines_needed(const std::vector<int>& roots) const {
    std::set<int> result;
    std::vector<int> pending = roots;
    while (!pending.empty()) {
      const int i = pending.back();
      pending.pop_back();
      if (!Analysis::is_line(step(i)) || !result.insert(i).second || reads_back(i)) continue;
      for (int o : step(i).operands) pending.push_back(o);
    }
    return result;
  }

  std::string length_id(const Dim& length) {
    const auto [found, is_new] = length_ids_.try_emplace(length, length_ids_.size());
    return std::to_string(found->second);
  }
  std::string line_index(const Step& s) {
    return s.shape.is_per_row() ? arguments_.row_start("at.line", s.tensor())
                                : std::string("at.line");
  }

  // Walks over lines `block`, `block` + `blocks`, ... and does `ends` for each, by its first
  // thread.
  void write_lines(const Dim& length, const std::vector<int>& roots, const std::string& ends,
                   const std::string& block, const std::string& blocks) {
    const Work work = work_of(roots);
    require(analysis_.size(length) < int64_t{1} << 31,
            "program '" + program_.name + "' has " + std::to_string(analysis_.size(length)) +
                " lines, too many for one launch; run it on fewer rows at a time");
    const std::string lines =
        arguments_.number("lines_" + length_id(length), analysis_.size(length));
    std::string members = "1";
    if (work == Work::lanes) {
      members = arguments_.number("lanes_" + std::to_string(walks_++), lanes_of_line(roots));
    }
    const std::string own = work == Work::slots ? "kSlotLines" : "block_threads() / members";
    const std::string place = work == Work::slots
                                  ? "place_in_slots(thread_index(), block_threads(), first, lines)"
                                  : "place_in_lanes(thread_index(), first, lines, members)";
    body_ += "  {  // " + length.text() + " lines\n    const u32 lines = " + lines + ";\n";
    if (work != Work::slots) body_ += "    const u32 members = " + members + ";\n";
    body_ += "    const u32 own = " + own + ";\n";
    // One block alone has many lines of a thread in flight.
    is_batched_ = work == Work::alone && is_single_;
    if (is_batched_) {
      body_ +=
          "    for (u32 batch = 0; batch < lines; batch += kLineBatch * own) {\n#pragma unroll\n"
          "      for (u32 i = 0; i < kLineBatch; ++i) {\n      const u32 first = batch + i * "
          "own;\n";
    } else {
      body_ += "    for (u32 first = " + (block == "0" ? block : block + " * own") +
               "; first < lines; first += " + (blocks == "1" ? "" : blocks + " * ") + "own) {\n";
    }
    // In a batch nothing branches: who has no line reads the last one, and drops it.
    body_ += is_batched_ ? "      LinePlace at = " + place +
                               ";\n      at.line = smaller(at.line, lines - 1);\n"
                         : "      const LinePlace at = " + place + ";\n";
    combined_.clear();
    // What is loaded for the line's first thread does not wait for partials.
    const std::set<int> needed = lines_needed(roots);
    for (int i : needed) {
      if (is_loaded(i)) write_line(i, work);
    }
    for (int i : needed) {
      if (!is_loaded(i)) write_line(i, work);
    }
    body_ += "      if (at.is_first()) {\n" + ends + "      }\n    }\n" +
             (is_batched_ ? "    }\n" : "") + "  }\n";
  }

  bool is_loaded(int i) const { return reads_back(i) || program::is_vector_load(step(i)); }

  // An element of a vector, for the line's first thread.
  std::string loaded(int t, const Step& s) {
    const std::string load = "load_element<" + arguments_.stored_type(t) + ">(" +
                             arguments_.pointer(t) + ", " + line_index(s) + ")";
    return is_batched_ ? load : "at.is_first() ? " + load + " : 0.0f";
  }

  void write_line(int i, Work work) {
    const Step& s = step(i);
    if (program::is_effect(s)) return;
    std::string value;
    int from = -1;
    if (reads_back(i)) {
      const Step& store = step(analysis_.exact_store(i));
      from = store.tensor();
      value = loaded(from, store);
    } else if (program::is_vector_load(s)) {
      from = s.tensor();
      value = loaded(from, s);
    } else if (program::is_column_index(s)) {
      value = "static_cast<float>(at.line)";
    } else if (program::is_combination(s)) {
      value = combined(s, work) + ".lane(" + std::to_string(s.lane()) + ")";
      const PartialInfo& kind = info(s.partial());
      if (kind.finish && s.lane() == kind.lanes - 1) value = expression(*kind.finish, {value});
    } else {
      value = made(s);
    }
    body_ += "      const float " + name(i) + " = " + value + ";" +
             (from >= 0 ? arguments_.comment(from) : "\n");
  }

  // The name of a line's combined partials; both results of one reduction share it.
  std::string combined(const Step& s, Work work) {
    const std::string result =
        "p" + std::to_string(s.tensor()) + "_" + std::string(info(s.partial()).name);
    if (!combined_.insert(result).second) return result;
    const TensorDecl& decl = tensor(s.tensor());
    const bool rows = decl.kind == TensorKind::row_partial;
    const int64_t reduced = analysis_.size(rows ? decl.shape.cols : decl.shape.rows);
    const std::string id = std::to_string(s.tensor());
    // Lines of rows may be made of column partials too.
    body_ += "      const auto " + result + " = combine_in_" +
             (work == Work::slots ? "slots" : "lanes") + "<" + reduction_text(s.partial()) +
             (work == Work::slots ? ""
              : rows              ? ", true"
                                  : ", false") +
             ">({.tensor = " + arguments_.pointer(s.tensor()) +
             ", .pitch = " + arguments_.stride(s.tensor()) + ", .lines = lines, .count = " +
             arguments_.number("partials_" + id, partial_spans(reduced)) +
             ", .reduced = " + arguments_.number("reduced_" + id, reduced) + "}, at" +
             (work == Work::slots ? ", scratch" : "") + ");" + arguments_.comment(s.tensor());
    return result;
  }

  void write_scalar_stores(const std::vector<int>& stores) {
    if (stores.empty()) return;
    // One that is stored in place has been read by then.
    if (is_single_) body_ += "  synchronize_block();\n";
    body_ += "  if (block_index() == 0 && thread_index() == 0) {\n";
    for (int i : stores) {
      const Step& s = step(i);
      body_ += "    store_element<" + arguments_.stored_type(s.tensor()) + ">(" +
               arguments_.pointer(s.tensor()) + ", 0, " + operand(s.operands[0]) + ");" +
               arguments_.comment(s.tensor());
    }
    body_ += "  }\n";
  }

  const Analysis& analysis_;
  const Program& program_;
  ArgumentText arguments_;
  const bool is_single_;
  const bool reads_stored_back_;
  std::set<int> needed_;
  std::map<Dim, size_t> length_ids_;
  std::set<std::string> combined_;  // in the walk that is being written
  int walks_ = 0;
  bool is_batched_ = false;  // the walk that is being written
  int64_t block_threads_ = kBlockThreads;
  int64_t blocks_ = 0;
  std::string body_;
};

std::vector<KernelLaunch> lower_as_named(const Program& program, const DimValues& sizes,
                                         const LowerOptions& options) {
  const Analysis analysis(program, sizes);
  const std::string function = identifier(program.name + "_vectors");
  if (analysis.top == 0 && analysis.scalars_are_private()) {
    return {KernelWriter(analysis, options, analysis.line_stores.empty(), false)
                .run(function, analysis.line_stores, analysis.scalar_stores)};
  }
  if (analysis.top > 0 && analysis.divides_in_two()) {
    return {KernelWriter(analysis, options, false, false).run(function, analysis.line_stores, {}),
            KernelWriter(analysis, options, true, true)
                .run(function + "_sums", {}, analysis.scalar_stores)};
  }
  return {KernelWriter(analysis, options, true, false)
              .run(function, analysis.line_stores, analysis.scalar_stores)};
}

}  // namespace

std::vector<KernelLaunch> lower_finalizer(const Program& program, const DimValues& sizes,
                                          const LowerOptions& options) {
  try {
    return lower_as_named(with_kernel_names(program), sizes, options);
  } catch (const Error&) {
    lower_as_named(program, sizes, options);  // says it with the caller's names
    throw;
  }
}

}  // namespace coda::hopper
