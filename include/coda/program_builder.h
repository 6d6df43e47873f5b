// SPDX-License-Identifier: Apache-2.0
// Builds a Program in C++ in the style of its text. Values are light handles with arithmetic.
// Tensors are names, with shape and type where they are first used ("x[M, K]:bf16"). A mistake
// throws Error with the line of the call.
//
//     ProgramBuilder p("rmsnorm_swiglu");
//     auto acc = p.gemm("x[M, K]", "w[2*I, K]");
//     auto z = acc * p.load_per_row("rstd");
//     auto [gate, up] = p.split_pairs(z, Pairs::concatenated);
//     p.store("out", silu(gate) * up);
//     Program program = p.build();
#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coda/api.h"
#include "coda/program.h"

namespace CODA_API coda {

// Which columns of a value form pairs.
struct Pairs {
  std::optional<Dim> group;  // the halves of each group pair; none: halves of the row

  static const Pairs interleaved;   // columns 2j and 2j + 1
  static const Pairs concatenated;  // columns j and N/2 + j
  static Pairs within(Dim group) {
    return {std::move(group)};
  }  // halves of a head: half-split RoPE
};
inline const Pairs Pairs::interleaved{Dim(2)};
inline const Pairs Pairs::concatenated{};

class ProgramBuilder;

// A value of a program under construction: a tile, a vector or a scalar. Valid as long as its
// builder.
class TileValue {
 public:
  int step() const { return step_; }

 private:
  friend class ProgramBuilder;
  friend struct Operand;
  TileValue(ProgramBuilder* builder, int step) : builder_(builder), step_(step) {}
  ProgramBuilder* builder_;
  int step_;
};

// An operand of an operator: a value or a number, with the caller's source line.
struct Operand {
  Operand(TileValue value, std::source_location where = std::source_location::current())  // NOLINT
      : builder(value.builder_), step(value.step_), where(where) {}
  Operand(double number, std::source_location where = std::source_location::current())  // NOLINT
      : number(number), where(where) {}
  ProgramBuilder* builder = nullptr;  // null: a number
  int step = -1;
  double number = 0;
  std::source_location where;
};

// One K segment of a GEMM. The contraction is the dimension that a and b share. If they share more
// than one, `layout` decides: nn, nt, tn or tt (t: stored transposed). An 8-bit operand may have
// scales, as in program text: "scaled(x[M, 128*B]:e4m3, x_scales[M, B])".
struct Segment {
  std::string_view a;
  std::string_view b;
  std::string_view layout = "";
};

class ProgramBuilder {
 public:
  using Where = std::source_location;

  explicit ProgramBuilder(std::string name);
  ~ProgramBuilder();
  ProgramBuilder(const ProgramBuilder&) = delete;
  ProgramBuilder& operator=(const ProgramBuilder&) = delete;

  // Names without shapes that were not used before are taken as x[M, K] and w[N, K].
  TileValue gemm(std::string_view a, std::string_view b, std::string_view layout = "",
                 Where where = Where::current());
  TileValue gemm(std::initializer_list<Segment> segments, Where where = Where::current());

  struct TileOptions {
    std::string_view rows = "";  // an i32 tensor: row i of the tile is row rows[i]
    Dim repeat = 1;              // of the stored columns
  };
  TileValue load_tile(std::string_view tensor, Where where = Where::current());
  TileValue load_tile(std::string_view tensor, TileOptions options, Where where = Where::current());
  TileValue load_per_row(std::string_view tensor, Where where = Where::current());
  TileValue load_per_column(std::string_view tensor, Where where = Where::current());
  // The vector repeated `repeat` times along columns: a weight for each head.
  TileValue load_per_column(std::string_view tensor, const Dim& repeat,
                            Where where = Where::current());
  TileValue load_scalar(std::string_view tensor, Where where = Where::current());
  TileValue constant(double number, Where where = Where::current());
  // The value of a size.
  TileValue size(const Dim& size, Where where = Where::current());
  TileValue column_index(std::optional<Dim> columns = std::nullopt, Where where = Where::current());

  TileValue elementwise(Elementwise op, std::initializer_list<Operand> operands);
  // An unused member costs nothing.
  std::pair<TileValue, TileValue> split_pairs(TileValue value, const Pairs& pairs,
                                              Where where = Where::current());
  TileValue merge_pairs(TileValue first, TileValue second, const Pairs& pairs,
                        Where where = Where::current());
  TileValue as_stored(TileValue value, DType dtype, Where where = Where::current());
  TileValue reduce_group(TileValue value, Dim group, Where where = Where::current());
  TileValue abs_max_group(TileValue value, Dim group, Where where = Where::current());
  TileValue repeat_group(TileValue value, Dim group, Where where = Where::current());
  TileValue select_column(TileValue value, TileValue index, Where where = Where::current());

  // Finalizers. `lane` selects the result of a kind with two lanes (steps::Combine); kBothResults:
  // their sum.
  TileValue combine_rows(std::string_view tensor, PartialKind kind, int lane = 0,
                         Where where = Where::current());
  TileValue combine_columns(std::string_view tensor, PartialKind kind, int lane = 0,
                            Where where = Where::current());
  TileValue reduce_vector(TileValue value, Where where = Where::current());
  TileValue transpose_vector(TileValue value, Where where = Where::current());

  // Declares that tensors, used before or after this call, are only read and have no gradient.
  void constants(std::initializer_list<std::string_view> tensors);

  void store(std::string_view tensor, TileValue value, Where where = Where::current());
  void store_transposed(std::string_view tensor, TileValue value, Where where = Where::current());
  void abs_max_into(std::string_view scalar, TileValue value, Where where = Where::current());
  void row_partial(std::string_view tensor, PartialKind kind, TileValue value,
                   Where where = Where::current());
  void column_partial(std::string_view tensor, PartialKind kind, TileValue value,
                      Where where = Where::current());

  // The verified program. Steps are in the order in which their first uses need them, operands from
  // left to right.
  Program build();

 private:
  struct State;
  int step_of(TileValue value) const;
  TileValue guarded(Where where, auto&& action);
  TileValue make(Where where, StepWork work, const std::vector<TileValue>& operands,
                 auto&& complete);
  TileValue make(Where where, StepWork work, const std::vector<TileValue>& operands);
  TileValue make(Where where, StepWork work, const std::vector<TileValue>& operands,
                 std::string_view tensor);
  TileValue combine(TensorKind of, std::string_view tensor, PartialKind kind, int lane,
                    Where where);
  std::unique_ptr<State> state_;
};

TileValue operator+(const Operand& a, const Operand& b);
TileValue operator-(const Operand& a, const Operand& b);
TileValue operator*(const Operand& a, const Operand& b);
TileValue operator/(const Operand& a, const Operand& b);
TileValue operator-(const Operand& a);
TileValue max(const Operand& a, const Operand& b);
TileValue min(const Operand& a, const Operand& b);
TileValue equal(const Operand& a, const Operand& b);  // 1 or 0
TileValue less(const Operand& a, const Operand& b);   // 1 or 0
TileValue less_equal(const Operand& a, const Operand& b);
TileValue not_equal(const Operand& a, const Operand& b);
TileValue operator<(const Operand& a, const Operand& b);  // comparisons, as in program text
TileValue operator<=(const Operand& a, const Operand& b);
TileValue operator>(const Operand& a, const Operand& b);
TileValue operator>=(const Operand& a, const Operand& b);
TileValue select(const Operand& condition, const Operand& a, const Operand& b);
TileValue exp(const Operand& a);
TileValue log(const Operand& a);
TileValue rsqrt(const Operand& a);
TileValue sqrt(const Operand& a);
TileValue recip(const Operand& a);
TileValue sigmoid(const Operand& a);
TileValue tanh(const Operand& a);
TileValue erf(const Operand& a);
TileValue silu(const Operand& a);
TileValue gelu(const Operand& a);
TileValue gelu_tanh(const Operand& a);
TileValue relu(const Operand& a);
TileValue abs(const Operand& a);
TileValue random(const Operand& seed, const Operand& row, const Operand& column);  // in [0, 1)
TileValue stochastic_bf16(const Operand& a, const Operand& u);  // u: random, in [0, 1)

}  // namespace CODA_API coda
