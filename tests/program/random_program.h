// SPDX-License-Identifier: Apache-2.0
// Random well-formed programs with sizes and inputs: every kind of step, all pairings, K segments,
// several tile spaces, partials and a finalizer that combines them. Values stay of moderate size
// and away from discontinuities, so that arithmetic in fp32 can be compared with float64.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/stored_element.h"
#include "coda/program_builder.h"
#include "program/step_table.h"
#include "program/tile_map.h"

namespace coda::tests {

struct RandomProgram {
  Program program;
  std::optional<Program> finalizer;  // of all its partials, if it has any
  DimValues sizes;
};

class RandomProgramGenerator {
 public:
  explicit RandomProgramGenerator(uint64_t seed)
      : random_(seed), builder_("random_" + std::to_string(seed)) {}

  RandomProgram run() {
    rows_ = one_in(6) ? Dim(pick<int>({2, 37, 64, 100})) : symbol("M");
    const int spaces = pick<int>({1, 1, 1, 2, 3});
    for (int i = 0; i < spaces; ++i) tile_space();
    RandomProgram result{builder_.build(), std::nullopt, sizes_};
    if (one_in(2)) shuffle_steps(result.program);
    if (one_in(4)) shuffle_tensors(result.program);
    result.finalizer = make_finalizer(result.program);
    return result;
  }

 private:
  // Values of one width in the space that is being made.
  struct Pool {
    Dim width = 0;
    std::vector<TileValue> values;
  };

  template <typename T>
  T pick(std::vector<T> from) {
    return from[random_() % from.size()];
  }
  bool one_in(int n) { return random_() % n == 0; }

  Dim symbol(const std::string& name, std::vector<int64_t> values = {}) {
    if (values.empty()) values = {1, 1, 2, 3, 7, 16, 31, 63, 64, 65, 96, 127, 130};
    sizes_.try_emplace(name, values[random_() % values.size()]);
    return Dim(name);
  }
  std::string new_name() {
    const std::string number = std::to_string(tensors_++);
    return pick<std::string>(
        {"t" + number, "t" + number, "layers." + number + ".w", "\"odd name, " + number + "\""});
  }
  std::string type() { return pick<std::string>({"", "", "", ":bf16", ":f16", ":f64"}); }
  std::string tensor(const Dim& rows, const Dim& cols) {
    return new_name() + "[" + rows.text() + ", " + cols.text() + "]" + type();
  }
  std::string vector(const Dim& length) { return new_name() + "[" + length.text() + "]" + type(); }
  double number() { return pick<double>({0.5, -0.25, 2, 1e-5, -1.5, 0.1, 3, 0, -0.044715}); }

  TileValue use(TileValue value) {
    used_.insert(value.step());
    return value;
  }
  TileValue any(Pool& pool) { return use(pool.values[random_() % pool.values.size()]); }

  void tile_space() {
    const std::string suffix = std::to_string(space_++);
    const int head = pick<int>({2, 4, 8, 16});
    const int kind = pick<int>({0, 1, 2, 3});
    Dim width = kind == 0   ? symbol("N" + suffix)
                : kind == 1 ? int64_t{2} * symbol("I" + suffix)
                : kind == 2 ? Dim(head * pick<int>({1, 2, 3, 5}))
                            : int64_t{head} * symbol("H" + suffix, {1, 2, 3, 5, 9});
    if (width.is(1)) width = 2;
    const bool has_groups = kind >= 2;
    const bool pairs = kind != 0 && !one_in(3);
    full_ = {width, {}};
    half_ = {pairs ? *width.half() : width, {}};
    if (half_.width.is(1)) half_ = {width, {}};
    has_pairs_ = pairs && half_.width != full_.width;
    head_ = has_groups ? std::optional<Dim>(head) : std::nullopt;
    std::vector<Pairs> pairings = {Pairs::concatenated, Pairs::interleaved};
    if (has_groups) pairings.push_back(Pairs::within(head));
    pairs_ = pick(pairings);
    other_pairs_ = pick(pairings);

    full_.values.push_back(one_in(5) ? tile(width) : gemm(width));
    if (has_pairs_) split();
    const int length = 3 + static_cast<int>(random_() % 14);
    for (int i = 0; i < length; ++i) grow();
    const int effects = 1 + static_cast<int>(random_() % 3);
    for (int i = 0; i < effects; ++i) effect();
    finish_space();
  }

  TileValue gemm(const Dim& width) {
    // Each segment with a contraction of its own; shapes that would allow two contractions get
    // their layout.
    std::vector<std::string> names;
    std::vector<Segment> segments;
    const int count = pick<int>({1, 1, 1, 2, 3});
    names.reserve(3 * count);
    for (int i = 0; i < count; ++i) {
      const Dim k = one_in(5)   ? width
                    : one_in(4) ? Dim(pick<int>({1, 2, 24, 65}))
                                : symbol("K" + std::to_string(random_() % 4));
      const std::string layout = pick<std::string>({"nt", "nt", "nn", "tn", "tt"});
      names.push_back(layout[0] == 't' ? tensor(k, rows_) : tensor(rows_, k));
      names.push_back(layout[1] == 't' ? tensor(width, k) : tensor(k, width));
      names.push_back(layout);
    }
    for (int i = 0; i < count; ++i)
      segments.push_back({names[3 * i], names[3 * i + 1], names[3 * i + 2]});
    switch (count) {
      case 1: return builder_.gemm({segments[0]});
      case 2: return builder_.gemm({segments[0], segments[1]});
      default: return builder_.gemm({segments[0], segments[1], segments[2]});
    }
  }

  TileValue tile(const Dim& width) {
    ProgramBuilder::TileOptions options;
    std::string rows;
    Dim stored_rows = rows_;
    Dim stored_cols = width;
    if (one_in(4)) {
      if (index_.empty()) {
        index_ = new_name();
        rows = index_ + "[" + rows_.text() + "]";
      } else {
        rows = index_;
      }
      stored_rows = symbol("S");
      options.rows = rows;
    }
    if (width.is_constant() && width.constant() % 2 == 0 && width.constant() > 2 && one_in(2)) {
      options.repeat = 2;
      stored_cols = *width.half();
    }
    return builder_.load_tile(tensor(stored_rows, stored_cols), options);
  }

  // A vector of columns; where the width is a multiple, often one that is repeated.
  TileValue columns(const Dim& width) {
    const auto& terms = width.terms();
    const bool is_even = width.is_constant() && width.constant() % 2 == 0 && width.constant() > 2;
    if (is_even && one_in(2)) return builder_.load_per_column(vector(*width.half()), 2);
    if (terms.size() == 1 && width.constant() == 0 && terms.begin()->second > 1 && !one_in(3)) {
      const auto& [name, factor] = *terms.begin();
      return builder_.load_per_column(vector(factor), Dim(name));
    }
    return builder_.load_per_column(vector(width));
  }

  void split() {
    const auto [first, second] = builder_.split_pairs(any(full_), pairs_);
    const bool only_second = one_in(6);
    if (!only_second) half_.values.push_back(first);
    if (only_second || !one_in(6)) half_.values.push_back(second);
  }

  Pool& any_pool() { return has_pairs_ && !half_.values.empty() && !one_in(3) ? half_ : full_; }

  void grow() {
    const int choice = static_cast<int>(random_() % 12);
    if (choice == 10 && has_pairs_) return one_in(2) || half_.values.empty() ? split() : merge();
    Pool& pool = any_pool();
    const TileValue x = any(pool);
    switch (choice) {
      case 0: pool.values.push_back(unary(x)); break;
      case 1: pool.values.push_back(unary(x)); break;
      case 2: pool.values.push_back(binary(x, any(pool))); break;
      case 3: pool.values.push_back(x * builder_.load_per_row(vector(rows_))); break;
      case 4: pool.values.push_back(x + columns(pool.width)); break;
      case 5: pool.values.push_back(one_in(2) ? x * number() : number() - x); break;
      case 6:
        pool.values.push_back(x + builder_.load_scalar(new_name()) *
                                      builder_.load_per_row(vector(rows_)));
        break;
      case 7: pool.values.push_back(x - tile(pool.width)); break;
      case 8:
        pool.values.push_back(has_pairs_ || one_in(2) ? binary(x, tile(pool.width))
                                                      : x + gemm(pool.width));
        break;
      case 9:
        pool.values.push_back(
            builder_.as_stored(x, pick<DType>({DType::bf16, DType::f16, DType::f32})));
        break;
      case 10: {
        const std::string target = new_name() + "[" + rows_.text() + "]:i32";
        const TileValue at =
            equal(builder_.column_index(pool.width), builder_.load_per_row(target));
        pool.values.push_back(one_in(2) ? select(at, x, number()) : x - at);
        break;
      }
      default: group(pool, x); break;
    }
  }

  void merge() {
    const TileValue first = any(half_);
    const TileValue merged = builder_.merge_pairs(first, any(half_), pairs_);
    full_.values.push_back(merged);
    // Another pairing is fine for a value that meets no other of its width.
    if (one_in(3))
      builder_.store(new_name() + type(), builder_.merge_pairs(first, any(half_), other_pairs_));
  }

  void group(Pool& pool, TileValue x) {
    if (!head_) {
      pool.values.push_back(x * x);
      return;
    }
    const bool is_half = has_pairs_ && &pool == &half_;
    const Dim group = is_half ? Dim(head_->constant() / 2) : *head_;
    const TileValue sums = builder_.reduce_group(x * x, group);
    const TileValue factor = rsqrt(sums * 0.125 + 0.5);
    if (one_in(3)) builder_.store(new_name() + type(), factor);
    pool.values.push_back(x * builder_.repeat_group(factor, group));
  }

  TileValue unary(TileValue x) {
    switch (random_() % 17) {
      case 0: return exp(tanh(x));
      case 1: return log(x * x + 0.5);
      case 2: return rsqrt(x * x + 0.5);
      case 3: return sqrt(x * x + 0.5);
      case 4: return recip(0.5 + x * x);
      case 5: return sigmoid(x);
      case 6: return tanh(x);
      case 7: return erf(x);
      case 8: return -x;
      case 9: return silu(x);
      case 10: return gelu(x);
      case 11: return gelu_tanh(x);
      case 12: return x * sigmoid(1.5 * x) - (x - 2.0) / 3.0;
      case 13: return -(x * -0.5) + 1.0;
      case 14: return relu(x) - 0.25 * abs(x);
      case 15: return abs(x - 0.5);
      default: return max(x, 0.0);
    }
  }
  TileValue binary(TileValue x, TileValue y) {
    switch (random_() % 8) {
      case 0: return x + y;
      case 1: return x - y;
      case 2: return tanh(x) * y;
      case 3: return x / (y * y + 1.0);
      case 4: return max(x, y);
      case 5: return min(y, x);
      case 6: {
        const TileValue row = builder_.load_per_row(new_name() + "[" + rows_.text() + "]:i32");
        const TileValue column = builder_.column_index();
        switch (random_() % 6) {
          case 0: return select(column < row, x, y);
          case 1: return x * random(3.0, abs(row), column) + y;
          case 2: return select(column <= row, x, y);
          case 3: return select(column > row, x, y);
          case 4: return select(column >= row, x, y);
          default: return select(not_equal(column, row), x, y);
        }
      }
      default: return x - (y - 0.5 * x);
    }
  }

  void effect() {
    Pool& pool = any_pool();
    const TileValue x = any(pool);
    switch (random_() % 6) {
      case 0: {  // accumulates in place
        const std::string name = new_name();
        const TileValue old =
            builder_.load_tile(name + "[" + rows_.text() + ", " + pool.width.text() + "]");
        builder_.store(name, old + x);
        return;
      }
      case 1: {
        const auto kind = pick<PartialKind>(
            {PartialKind::sum, PartialKind::max, PartialKind::log_sum_exp, PartialKind::mean_m2});
        const bool wide = has_pairs_ && &pool == &full_;
        builder_.row_partial(new_name(),
                             wide && kind == PartialKind::mean_m2 ? PartialKind::sum : kind, x);
        return;
      }
      case 2:
        builder_.column_partial(new_name(),
                                pick<PartialKind>({PartialKind::sum, PartialKind::max,
                                                   PartialKind::log_sum_exp, PartialKind::mean_m2}),
                                one_in(2) ? x : x * builder_.load_per_row(vector(rows_)));
        return;
      case 3: {
        const std::string target = new_name() + "[" + rows_.text() + "]:i32";
        builder_.store(new_name(), builder_.select_column(x, builder_.load_per_row(target)));
        return;
      }
      default: builder_.store(new_name() + type(), x); return;
    }
  }

  // Values that nothing uses are summed and stored: a program has no dead steps.
  void finish_space() {
    for (Pool* pool : {&half_, &full_}) {
      std::optional<TileValue> sum;
      for (const TileValue& value : pool->values) {
        if (used_.contains(value.step())) continue;
        sum = sum ? *sum + value : value;
      }
      if (sum) builder_.store(new_name() + type(), *sum);
      pool->values.clear();
    }
  }

  // Another order of the steps that their operands allow; loads stay before a store in place.
  void shuffle_steps(Program& program) {
    const int count = static_cast<int>(program.steps.size());
    std::vector<int> place(count, -1);
    std::vector<Step> steps;
    const auto is_ready = [&](int i) {
      if (place[i] >= 0) return false;
      const Step& step = program.steps[i];
      for (int operand : step.operands) {
        if (place[operand] < 0) return false;
      }
      for (int j = 0; j < i && !step.operands.empty() && step.tensor() >= 0; ++j) {
        if (program.steps[j].tensor() == step.tensor() && place[j] < 0) return false;
      }
      return true;
    };
    while (static_cast<int>(steps.size()) < count) {
      // Mostly the first that is ready, so that some expressions stay together.
      int i = one_in(3) ? static_cast<int>(random_() % count) : 0;
      while (!is_ready(i)) i = (i + 1) % count;
      place[i] = static_cast<int>(steps.size());
      steps.push_back(program.steps[i]);
    }
    for (Step& step : steps) {
      for (int& operand : step.operands) operand = place[operand];
    }
    program.steps = std::move(steps);
  }

  void shuffle_tensors(Program& program) {
    std::vector<int> place(program.tensors.size());
    for (size_t i = 0; i < place.size(); ++i) place[i] = static_cast<int>(i);
    std::shuffle(place.begin(), place.end(), random_);
    std::vector<TensorDecl> tensors(place.size());
    for (size_t i = 0; i < place.size(); ++i) tensors[place[i]] = program.tensors[i];
    program.tensors = std::move(tensors);
    for (Step& step : program.steps) {
      for (int* tensor : program::tensor_fields(step)) *tensor = place[*tensor];
    }
  }

  std::optional<Program> make_finalizer(const Program& program) {
    ProgramBuilder builder(program.name + "_finalizer");
    bool any = false;
    for (const Step& step : program.steps) {
      if (step.kind() != StepKind::row_partial && step.kind() != StepKind::column_partial) continue;
      const TensorDecl& decl = program.tensors[step.tensor()];
      any = true;
      const std::string name = "\"" + decl.name + "\"";
      const bool rows = step.kind() == StepKind::row_partial;
      const bool is_whole = !info(step.partial()).both.empty() && one_in(3);
      const int lane =
          is_whole ? kBothResults : static_cast<int>(random_() % info(step.partial()).lanes);
      const std::string partial = name + decl.shape.text();
      const TileValue total = rows ? builder.combine_rows(partial, step.partial(), lane)
                                   : builder.combine_columns(partial, step.partial(), lane);
      const std::string result = new_name();
      switch (random_() % 5) {
        case 0: builder.store(result, rsqrt(total * total + 1.0)); break;
        case 1: {
          const TileValue mean = builder.reduce_vector(total) * 0.125;
          builder.store(result, total - mean);
          break;
        }
        case 2: builder.store(result, builder.transpose_vector(total)); break;
        case 3: {  // accumulates in place
          const std::string old =
              result + "[" + (rows ? decl.shape.rows : decl.shape.cols).text() + "]";
          const TileValue before = rows ? builder.load_per_row(old) : builder.load_per_column(old);
          builder.store(result, before + total);
          break;
        }
        default: builder.store(result + type(), total); break;
      }
    }
    if (!any) return std::nullopt;
    return builder.build();
  }

  std::mt19937_64 random_;
  ProgramBuilder builder_;
  DimValues sizes_;
  Dim rows_ = 0;
  int tensors_ = 0;
  int space_ = 0;
  std::string index_;
  std::set<int> used_;
  Pool full_;
  Pool half_;
  std::optional<Dim> head_;
  bool has_pairs_ = false;
  Pairs pairs_;
  Pairs other_pairs_;
};

inline RandomProgram random_program(uint64_t seed) { return RandomProgramGenerator(seed).run(); }

// Values for every tensor that a program reads: uniform in [-1, 1] and representable in the
// tensor's type; row indices are valid rows, columns to select lie over the whole width of the
// widest tensor and up to two outside, half of them among the first, which a narrow value has too.
inline std::map<std::string, std::vector<double>> random_inputs(const Program& program,
                                                                const DimValues& sizes,
                                                                uint64_t seed) {
  std::mt19937_64 random(seed);
  std::map<int, int64_t> last;  // of an i32 tensor: its largest value
  std::set<int> read;
  std::set<int> maxima;  // of magnitudes: from 0
  int64_t widest = 0;
  for (const Step& step : program.steps) {
    for (const GemmSegment& segment : step.segments()) {
      for (const int t : {segment.a, segment.scales_a, segment.b, segment.scales_b})
        if (t >= 0) read.insert(t);
      widest = std::max(widest, program.tensors[segment.b].shape.rows.evaluate(sizes));
    }
    const bool is_load = (step.operands.empty() && step.tensor() >= 0) || program::is_maximum(step);
    if (is_load) read.insert(step.tensor());
    if (program::is_maximum(step)) maxima.insert(step.tensor());
    if (step.row_index() >= 0) {
      read.insert(step.row_index());
      const int64_t rows = program.tensors[step.tensor()].shape.rows.evaluate(sizes);
      const auto [found, is_new] = last.try_emplace(step.row_index(), rows - 1);
      if (!is_new) found->second = std::min(found->second, rows - 1);
    }
  }
  for (const TensorDecl& decl : program.tensors) {
    widest = std::max(widest, decl.shape.cols.evaluate(sizes));
  }
  std::map<std::string, std::vector<double>> inputs;
  for (int t : read) {
    const TensorDecl& decl = program.tensors[t];
    const auto [rows, cols] = physical_shape(decl, sizes);
    std::vector<double>& values = inputs[decl.name];
    values.resize(rows * cols);
    const bool is_row_index = last.contains(t);
    for (size_t i = 0; i < values.size(); ++i) {
      if (decl.dtype == DType::i32) {
        const auto draw = [&](int64_t low, int64_t high) {
          return static_cast<double>(
              low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1)));
        };
        values[i] = is_row_index ? draw(0, last[t]) : draw(-2, random() % 2 == 0 ? 37 : widest + 1);
        continue;
      }
      if (decl.dtype == DType::u8) {  // a mask
        values[i] = static_cast<double>(random() >> 63);
        continue;
      }
      const double unit = static_cast<double>(random() >> 11) * 0x1p-53;
      // The second lane of a partial is a sum of positive terms.
      const bool positive = (i >= values.size() / 2 && decl.lanes == 2) || maxima.contains(t);
      values[i] = rounded_to(decl.dtype, positive ? 1 + unit : 2 * unit - 1);
    }
  }
  return inputs;
}

// Beside each value of a tile that the program stores, what a product of 8-bit operands wants of
// it: its transposed copy, of a type that the seed picks, and its largest magnitude.
inline Program with_copies(Program program, uint64_t seed) {
  const program::TileMap map = program::map_tiles(program);
  const DType types[] = {DType::e4m3, DType::e5m2, DType::bf16, DType::f32};
  const size_t steps = program.steps.size();
  for (size_t i = 0; i < steps; ++i) {
    const Step store = program.steps[i];
    if (!program::is_tile_store(store) || map.grouped[i] != 0) continue;
    const std::string number = std::to_string(i);
    program.tensors.push_back({.name = "copy_" + number,
                               .shape = {store.shape.cols, store.shape.rows},
                               .dtype = types[(seed + i) % 4]});
    program.tensors.push_back({.name = "largest_" + number, .shape = {1, 1}});
    const int largest = static_cast<int>(program.tensors.size()) - 1;
    const int value = store.operands[0];
    program.steps.push_back(program::transposed_store(largest - 1, value, store.shape));
    program.steps.push_back(program::abs_max_into(largest, value, store.shape));
  }
  verify(program);
  return program;
}

}  // namespace coda::tests
