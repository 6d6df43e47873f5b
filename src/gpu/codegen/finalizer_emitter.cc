// SPDX-License-Identifier: Apache-2.0
// The value of a step is a scalar, or a vector with one fp32 number per line. All vectors of one
// length are computed line by line in one loop, whether transposed or not. Sums of vectors divide a
// program into levels: the inputs of a sum, then the sum, then its users.
// There are three forms. Without sums: many blocks. With sums that only scalars need: many blocks
// compute the vectors, and a second launch of one block sums them. Otherwise one block computes
// everything level by level, and stores last, so that tensors that are stored in place can still be
// read.
#include "gpu/codegen/finalizer_emitter.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "base/rounding.h"
#include "coda/error.h"
#include "device/tiles/tile_position.cuh"
#include "gpu/codegen/expressions.h"
#include "gpu/codegen/function_text.h"
#include "gpu/codegen/kernel_text.h"
#include "gpu/codegen/value_text.h"
#include "gpu/legalise/program_sizes.h"
#include "program/vocabulary.h"

namespace coda::gpu {
namespace {

constexpr int64_t kBlockThreads = 256;
constexpr int64_t kMostBlockThreads = 512;  // device/kernels/finalizer.cuh: kFinalizerThreads
constexpr int64_t kManyRows = 512;        // column partials: with so many, a block has more threads
constexpr int64_t kSingleThreads = 1024;  // kSingleThreads
constexpr int64_t kSlotLines = 32;
constexpr int64_t kFewLanes = 8;       // per line with row partials: 128 bytes at a time
constexpr int64_t kLanePartials = 16;  // in flight per lane: device/kernels/finalizer.cuh
constexpr int64_t kLinesOfOneBlock =
    32768;  // up to so many elementwise lines, a second launch is not worth it

// Properties of a program, found before any text is written.
struct Analysis {
  explicit Analysis(const ProgramSizes& s) : program(s.program()), sizes(s) {
    const Program& p = program;
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
  int64_t size(const Dim& dim) const { return sizes.size(dim); }

  // A store of the value in fp32, from which it can be read back exactly.
  int exact_store(int value) const {
    for (int i : line_stores) {
      if (step(i).operands[0] == value && program.tensors[step(i).tensor()].dtype == DType::f32) {
        return i;
      }
    }
    return -1;
  }

  // Whether the value depends on a tensor that the program also stores.
  bool reads_stored(int value) const {
    if (exact_store(value) >= 0) return false;
    const Step& s = step(value);
    if (s.operands.empty() && s.tensor() >= 0 && stored.contains(s.tensor())) return true;
    return std::any_of(s.operands.begin(), s.operands.end(),
                       [&](int o) { return reads_stored(o); });
  }

  // False if another block could read a scalar after one block has stored it in place.
  bool scalars_are_private() const {
    return std::none_of(scalar_stores.begin(), scalar_stores.end(), [&](int i) {
      return std::any_of(program.steps.begin(), program.steps.end(), [&](const Step& s) {
        return program::is_vector_load(s) && s.tensor() == step(i).tensor();
      });
    });
  }

  // Whether a second launch is possible and worth it: the first launch stores or can recompute
  // every summed vector.
  bool divides_in_two() const {
    if (line_level > 0 || line_stores.empty()) return false;
    int64_t most_lines = 0;
    for (const Step& s : program.steps) {
      if (is_line(s)) most_lines = std::max(most_lines, size(length(s)));
      if (s.kind() == StepKind::reduce_vector && reads_stored(s.operands[0])) return false;
    }
    return combines || most_lines > kLinesOfOneBlock;
  }

  const Program& program;
  const ProgramSizes& sizes;
  std::vector<int> levels;  // number of nested sums before a step's value
  int top = 0;
  int line_level = 0;  // the highest level of a stored vector
  bool combines = false;
  std::vector<int> line_stores;
  std::vector<int> scalar_stores;
  std::set<int> stored;  // tensors that the program stores
};

// The text of one kernel.
class KernelWriter {
 public:
  KernelWriter(const Analysis& analysis, bool is_single, bool reads_stored_back)
      : analysis_(analysis),
        program_(analysis.program),
        arguments_(analysis.sizes),
        is_single_(is_single),
        reads_stored_back_(reads_stored_back),
        values_(
            analysis.sizes, nullptr, nullptr,
            {.place = [this](const At& at) { return is_line(at) ? std::to_string(walks_) : ""; },
             .source = [this](const At& at) { return source(at.step); },
             .name = [](const At& at) { return name(at.step); },
             .write = [this](const At& at, const std::string& name,
                             const std::string& text) { write(at.step, name, text); }}) {}

  KernelLaunch run(const std::string& function, const std::vector<int>& line_stores,
                   const std::vector<int>& scalar_stores) {
    std::vector<int> stores = line_stores;
    stores.insert(stores.end(), scalar_stores.begin(), scalar_stores.end());
    needed_ = made_of(stores, false);
    if (partials_of(needed_).columns > kManyRows) block_threads_ = kMostBlockThreads;
    for (int level = 0; level <= analysis_.top; ++level) {
      if (level > 0) write_sums(level);
      write_scalars(level);
    }
    // Stored vectors by length, in the order of their first stores.
    std::vector<std::vector<int>> lengths;
    for (int i : line_stores) {
      const auto has_length = [&](const std::vector<int>& others) {
        return Analysis::length(step(others[0])) == Analysis::length(step(i));
      };
      const auto found = std::find_if(lengths.begin(), lengths.end(), has_length);
      (found != lengths.end() ? *found : lengths.emplace_back()).push_back(i);
    }
    for (const std::vector<int>& one : lengths) write_stores(one, lengths.size() == 1);
    write_scalar_stores(scalar_stores);

    KernelParts text = KernelParts::plain(
        function, {"kernels/finalizer.cuh"}, "",
        filled("__launch_bounds__($, 1)", {is_single_ ? "kSingleThreads" : "kFinalizerThreads"}),
        "  __shared__ float scratch[kFinalizerScratch];\n", body_.text());
    text.space = "coda::device::precise";
    return launch_of(text, analysis_.sizes, arguments_,
                     is_single_ ? 1 : std::max<int64_t>(1, blocks_),
                     static_cast<uint32_t>(is_single_ ? kSingleThreads : block_threads_));
  }

 private:
  using At = ValueText::At;
  const Step& step(int i) const { return program_.steps[i]; }
  const TensorDecl& tensor(int i) const { return program_.tensors[i]; }
  bool is_line(const At& at) const { return Analysis::is_line(step(at.step)); }
  static std::string name(int i) { return "v" + std::to_string(i); }

  // All steps that the roots depend on, ascending. A summed vector that was stored is read back.
  std::set<int> made_of(std::vector<int> pending, bool only_lines) const {
    std::set<int> result;
    while (!pending.empty()) {
      const int i = pending.back();
      pending.pop_back();
      if (only_lines && !Analysis::is_line(step(i))) continue;
      if (!result.insert(i).second || reads_back(i)) continue;
      pending.insert(pending.end(), step(i).operands.begin(), step(i).operands.end());
    }
    return result;
  }
  bool reads_back(int i) const {
    return reads_stored_back_ && !program::is_effect(step(i)) && Analysis::is_line(step(i)) &&
           analysis_.exact_store(i) >= 0;
  }

  // The largest number of row and of column partials that are combined for one line.
  struct Partials {
    int64_t rows = 0;
    int64_t columns = 0;
  };
  Partials partials_of(const std::set<int>& values) const {
    Partials most;
    for (int i : values) {
      if (!program::is_combination(step(i)) || reads_back(i)) continue;
      const bool is_row = tensor(step(i).tensor()).kind == TensorKind::row_partial;
      int64_t& count = is_row ? most.rows : most.columns;
      count = std::max({count, int64_t{1}, partial_spans(reduced(step(i)))});
    }
    return most;
  }
  int64_t reduced(const Step& s) const {
    const TensorDecl& decl = tensor(s.tensor());
    return analysis_.size(decl.kind == TensorKind::row_partial ? decl.shape.cols : decl.shape.rows);
  }

  std::string value(int i) { return values_.value({.step = i}); }

  void write(int i, const std::string& name, const std::string& text,
             const std::string& comment = "") {
    body_.line("$const float $ = $;$",
               {Analysis::is_line(step(i)) ? "    " : "", name, text, comment});
  }

  // Values that are loaded, counted or combined, and sums, whose lines are already written.
  std::optional<std::string> source(int i) {
    const Step& s = step(i);
    std::string text;
    int from = -1;
    if (s.kind() == StepKind::reduce_vector) return name(i);
    if (reads_back(i) || program::is_vector_load(s)) {
      const Step& stored = reads_back(i) ? step(analysis_.exact_store(i)) : s;
      from = stored.tensor();
      text = loaded(stored);
    } else if (program::is_column_index(s)) {
      text = "static_cast<float>(at.line)";
    } else if (program::is_combination(s)) {
      text = s.lane() == kBothResults ? result(s, 0) + " + " + result(s, 1) : result(s, s.lane());
    } else {
      return std::nullopt;
    }
    write(i, name(i), text, from >= 0 ? arguments_.comment(from) : "");
    return name(i);
  }

  // One result of a Combine step.
  std::string result(const Step& s, int lane) {
    const std::string of = combined(s);
    std::string text = filled("$.lane($)", {of, std::to_string(lane)});
    if (lane == 0 || !info(s.partial()).result) return text;
    const std::string log_sum = expression(Elementwise::log, {of + ".lane(1)"});
    // Below an infinite value there is no entropy.
    return lane == 1 ? log_sum
                     : filled("$ - $ / $.lane(1) + 0.0f * $.lane(0)", {log_sum, text, of, of});
  }

  // Loads a scalar, or the vector element of the line, in the line's first thread.
  std::string loaded(const Step& s) {
    const std::string load =
        filled("load_element<$>($, $)",
               {arguments_.stored_type(s.tensor()), arguments_.pointer(s.tensor()), place_of(s)});
    const bool is_plain = !Analysis::is_line(s) || is_batched_;
    return is_plain ? load : filled("at.is_first() ? $ : 0.0f", {load});
  }
  std::string place_of(const Step& s) {
    return !Analysis::is_line(s)  ? "0"
           : s.shape.is_per_row() ? arguments_.row_start("at.line", s.tensor())
           : s.repeat().is(1)     ? "at.line"
                                  : "at.line % " + arguments_.stored_columns(s.tensor());
  }
  std::string store_of(const Step& s) {
    return filled("store_element<$>($, $, $);$",
                  {arguments_.stored_type(s.tensor()), arguments_.pointer(s.tensor()), place_of(s),
                   value(s.operands[0]), arguments_.comment(s.tensor())});
  }

  void write_scalars(int level) {
    for (int i : needed_) {
      const Step& s = step(i);
      if (!program::is_effect(s) && !Analysis::is_line(s) && analysis_.levels[i] == level) value(i);
    }
  }

  // The sums of one level, with one loop over lines for each length.
  void write_sums(int level) {
    std::map<Dim, std::vector<int>> sums;
    for (int i : needed_) {
      if (step(i).kind() == StepKind::reduce_vector && analysis_.levels[i] == level) {
        sums[Analysis::length(step(step(i).operands[0]))].push_back(i);
      }
    }
    for (const auto& [length, steps] : sums) {
      std::vector<int> roots;
      for (int i : steps) {
        body_.line("float sum$ = 0.0f;", {std::to_string(i)});
        roots.push_back(step(i).operands[0]);
      }
      const auto add = [&](Body& ends) {
        for (int i : steps)
          ends.line("sum$ += $;", {std::to_string(i), value(step(i).operands[0])});
      };
      write_lines(length, roots, add, "0", "1");
      for (int i : steps) {
        body_.line("const float $ = block_sum(sum$, scratch);", {name(i), std::to_string(i)});
      }
    }
  }

  void write_stores(const std::vector<int>& stores, bool is_only) {
    const Dim& length = Analysis::length(step(stores[0]));
    std::vector<int> roots;
    for (int i : stores) roots.push_back(step(i).operands[0]);
    const auto store = [&](Body& ends) {
      for (int i : stores) ends.line(store_of(step(i)));
    };
    if (is_single_) return write_lines(length, roots, store, "0", "1");
    const std::string id = length_id(length);
    const int64_t own = ceil_div(analysis_.size(length), lines_of_block(roots));
    const std::string first = is_only ? "" : arguments_.number("first_block_" + id, blocks_);
    const std::string count = arguments_.number("blocks_" + id, own);
    blocks_ += own;
    if (is_only) return write_lines(length, roots, store, "block_index()", count);
    body_.line("if (block_index() >= $ && block_index() - $ < $)", {first, first, count});
    write_lines(length, roots, store, filled("(block_index() - $)", {first}), count);
  }

  // How threads share the work of a line that the roots depend on.
  enum class Work { alone, lanes, slots };
  Work work_of(const std::vector<int>& roots) const {
    const Partials most = partials_of(made_of(roots, true));
    return most.rows > 0 ? Work::lanes : most.columns > 0 ? Work::slots : Work::alone;
  }
  int64_t lanes_of_line(const std::vector<int>& roots) const {
    const Partials most = partials_of(made_of(roots, true));
    int64_t lanes = kFewLanes;
    while (lanes < 32 && lanes * kLanePartials < std::max(most.rows, most.columns)) lanes *= 2;
    return lanes;
  }
  int64_t lines_of_block(const std::vector<int>& roots) const {
    const Work work = work_of(roots);
    return work == Work::slots   ? kSlotLines
           : work == Work::lanes ? block_threads_ / lanes_of_line(roots)
                                 : block_threads_;
  }

  std::string length_id(const Dim& length) {
    const auto [found, is_new] = length_ids_.try_emplace(length, length_ids_.size());
    return std::to_string(found->second);
  }

  // Writes a loop over the lines `block`, `block` + `blocks`, ...; in each, the first thread of the
  // line runs what `end` writes.
  void write_lines(const Dim& length, const std::vector<int>& roots,
                   const std::function<void(Body&)>& end, const std::string& block,
                   const std::string& blocks) {
    work_ = work_of(roots);
    ++walks_;
    require(analysis_.size(length) < int64_t{1} << 31,
            "program '" + analysis_.sizes.given().name + "' has " +
                std::to_string(analysis_.size(length)) +
                " lines, too many for one launch; run it on fewer rows at a time");
    const bool has_slots = work_ == Work::slots;
    body_.line("{  // $ lines", {length.text()});
    body_.line("  const u32 lines = $;",
               {arguments_.number("lines_" + length_id(length), analysis_.size(length))});
    if (!has_slots)
      body_.line("  const u32 members = $;",
                 {work_ == Work::alone ? "1"
                                       : arguments_.number("lanes_" + std::to_string(lane_walks_++),
                                                           lanes_of_line(roots))});
    body_.line("  const u32 own = $;", {has_slots ? "kSlotLines" : "block_threads() / members"});
    // A single block batches several lines per thread to have more loads in flight.
    is_batched_ = work_ == Work::alone && is_single_;
    if (is_batched_) {
      body_.line(
          "  for (u32 batch = 0; batch < lines; batch += kLineBatch * own) {\n#pragma unroll");
      body_.line("    for (u32 i = 0; i < kLineBatch; ++i) {");
      body_.line("    const u32 first = batch + i * own;");
    } else {
      body_.line("  for (u32 first = $; first < lines; first += $own) {",
                 {block == "0" ? block : block + " * own", blocks == "1" ? "" : blocks + " * "});
    }
    body_.line("    $LinePlace at = place_in_$, first, lines$);",
               {is_batched_ ? "" : "const ",
                has_slots ? "slots(thread_index(), block_threads()" : "lanes(thread_index()",
                has_slots ? "" : ", members"});
    // A batch has no branches: a thread without a line reads the last line and discards the result.
    if (is_batched_) body_.line("    at.line = smaller(at.line, lines - 1);");
    combined_.clear();
    // Loads for the line's first thread are issued before partials are combined.
    const std::set<int> needed = made_of(roots, true);
    for (const bool loads : {true, false}) {
      for (int i : needed) {
        const bool is_loaded = reads_back(i) || program::is_vector_load(step(i));
        if (is_loaded == loads && !program::is_effect(step(i))) value(i);
      }
    }
    Body ends(8);
    end(ends);
    body_.line("    if (at.is_first()) {");
    body_.add(ends);
    body_.line("    }");
    body_.line("  }");
    if (is_batched_) body_.line("  }");
    body_.line("}");
  }

  // The name of a line's combined partials. Both results of a reduction share it.
  std::string combined(const Step& s) {
    const int t = s.tensor();
    const std::string id = std::to_string(t);
    const std::string kind(info(s.partial()).name);
    const std::string result = filled("p$_$", {id, kind});
    if (!combined_.insert(result).second) return result;
    const bool rows = tensor(t).kind == TensorKind::row_partial;
    const bool slots = work_ == Work::slots;
    // Row vectors may also be combined from column partials.
    body_.line(
        "    const auto $ = combine_in_$<$$>({.tensor = $, .pitch = $, .lines = lines, .count "
        "= $, .reduced = $}, at$);$",
        {result, slots ? "slots" : "lanes", reduction_text(s.partial()),
         slots  ? ""
         : rows ? ", true"
                : ", false",
         arguments_.pointer(t), arguments_.stride(t),
         arguments_.number("partials_" + id, partial_spans(reduced(s))),
         arguments_.number("reduced_" + id, reduced(s)), slots ? ", scratch" : "",
         arguments_.comment(t)});
    return result;
  }

  void write_scalar_stores(const std::vector<int>& stores) {
    if (stores.empty()) return;
    // All reads of a scalar that is stored in place must come first.
    if (is_single_) body_.line("synchronize_block();");
    body_.line("if (block_index() == 0 && thread_index() == 0) {");
    for (int i : stores) body_.line("  " + store_of(step(i)));
    body_.line("}");
  }

  const Analysis& analysis_;
  const Program& program_;
  LaunchArguments arguments_;
  const bool is_single_;
  const bool reads_stored_back_;
  std::set<int> needed_;
  std::map<Dim, size_t> length_ids_;
  std::set<std::string> combined_;  // in the current loop
  int walks_ = 0;
  int lane_walks_ = 0;       // loops with several threads per line
  Work work_ = Work::alone;  // of the current loop
  bool is_batched_ = false;
  int64_t block_threads_ = kBlockThreads;
  int64_t blocks_ = 0;
  Body body_{2};
  ValueText values_;
};

}  // namespace

std::vector<KernelLaunch> lower_finalizer(const ProgramSizes& sizes) {
  const Analysis analysis(sizes);
  const std::string function = identifier(sizes.program().name + "_vectors");
  const auto one = [&](bool is_single) {
    return std::vector<KernelLaunch>{
        KernelWriter(analysis, is_single, false)
            .run(function, analysis.line_stores, analysis.scalar_stores)};
  };
  if (analysis.top == 0 && analysis.scalars_are_private()) return one(analysis.line_stores.empty());
  if (analysis.top == 0 || !analysis.divides_in_two()) return one(true);
  return {KernelWriter(analysis, false, false).run(function, analysis.line_stores, {}),
          KernelWriter(analysis, true, true).run(function + "_sums", {}, analysis.scalar_stores)};
}

}  // namespace coda::gpu
