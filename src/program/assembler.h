// SPDX-License-Identifier: Apache-2.0
// Makes Programs step by step and infers the shapes that text and builder calls leave out: every
// size of a value is a node of a union-find, bound to a Dim or not yet. What the parser and the
// ProgramBuilder share. Steps get their number when they are made, tensors when a step first names
// them. Errors are thrown as Problems at the call that causes them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "coda/program.h"

namespace coda::program {

// A tensor as a call names it: the shape may be left out after its first mention, or where a value
// has it. One dimension is a vector, per row or per column as its use says.
struct TensorMention {
  std::string name;
  std::vector<Dim> dims;  // 0, 1 or 2
  std::optional<DType> dtype;
};

// Reads "x", "x[M, K]", "x[M, K]:bf16". Throws Error.
TensorMention parse_mention(std::string_view text);

struct SegmentMention {
  TensorMention a;
  TensorMention b;
  std::optional<std::string>
      layout;  // "nn", "nt", "tn", "tt": t where the operand is stored transposed
};

// Which columns are pairs: within groups of a size, or, if none is given, the two halves of the
// row.
using PairGroup = std::optional<Dim>;

class Assembler {
 public:
  explicit Assembler(std::string name) { program_.name = std::move(name); }

  void order_tensors(const std::vector<std::string>& names);

  int gemm(const std::vector<SegmentMention>& segments);
  int load_tile(const TensorMention& tensor, const std::optional<TensorMention>& rows,
                int64_t repeat);
  int load_vector(StepKind kind, const TensorMention& tensor);
  int constant(double number);
  int column_index(const std::optional<Dim>& columns);
  int elementwise(Elementwise op, std::vector<int> operands);
  int split_pair(int value, const PairGroup& group, int which);
  int merge_pairs(int first, int second, const PairGroup& group);
  int as_stored(int value, DType dtype);
  int reduce_group(int value, const Dim& group);
  int repeat_group(int value, const Dim& group);
  int select_column(int value, int index);
  int combine(TensorKind kind, const TensorMention& tensor, PartialKind partial, int lane);
  int reduce_vector(int value);
  int transpose_vector(int value);
  int store(const TensorMention& tensor, int value);
  int partial(StepKind kind, const TensorMention& tensor, PartialKind partial, int value);

  int step_count() const { return static_cast<int>(program_.steps.size()); }
  // Shape as far as it is known, "?" elsewhere.
  std::string shape_text(int step) const;

  // Resolves all sizes and verifies. With `reorder`, steps stand where their first use needs them,
  // operands from left to right: what C++ leaves to the compiler does not show in the program, and
  // members of pairs that nothing uses go. Problems name steps by their number before that.
  Program finish(bool reorder = false);

 private:
  struct Node {
    int parent;
    std::optional<Dim> size;
    int step;  // that made it, for messages
  };
  struct Sizes {
    int rows = -1;
    int cols = -1;
  };

  int root(int node) const;
  int known(const Dim& size);
  int unknown();
  const std::optional<Dim>& size_of(int node) const { return nodes_[root(node)].size; }
  bool is_unit(int node) const { return size_of(node) && size_of(node)->is(1); }
  bool unify(int a, int b);
  Dim need_columns(int step, const char* what) const;

  // The tensor's index, made or checked against what is known of it; `sizes` are what the use
  // implies.
  int mention(const TensorMention& tensor, Sizes sizes, TensorKind kind = TensorKind::dense,
              int lanes = 1);
  Sizes mentioned_sizes(const TensorMention& tensor, bool per_row, bool per_column);
  int add(Step step, Sizes sizes);
  std::vector<int> order_of_use() const;
  void resolve_tensors(Program& program) const;
  bool is_on_tile(int step) const { return on_tile_[step]; }

  Program program_;
  std::vector<Node> nodes_;
  std::vector<Sizes> step_sizes_;
  std::vector<char> on_tile_;
  std::vector<Sizes> tensor_sizes_;
  std::vector<std::optional<DType>> dtypes_;
  std::vector<char> mentioned_;
  std::map<std::string, int, std::less<>> tensor_index_;
};

}  // namespace coda::program
