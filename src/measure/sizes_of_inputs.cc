// SPDX-License-Identifier: Apache-2.0
// The sizes that given arrays have, of programs and of graphs.
#include "base/nearest_name.h"
#include "coda/compare.h"
#include "coda/error.h"
#include "measure/chain.h"
#include "measure/given_inputs.h"

namespace coda {
namespace {

void bind_dim(const Dim& dim, int64_t size, DimValues& sizes, bool& progress) {
  std::string unknown;
  int64_t factor = 0;
  int64_t rest = size - dim.constant();
  for (const auto& [symbol, count] : dim.terms()) {
    if (const auto known = sizes.find(symbol); known != sizes.end()) {
      rest -= count * known->second;
    } else if (unknown.empty()) {
      unknown = symbol;
      factor = count;
    } else {
      return;  // two unknowns: another tensor's shape may give one
    }
  }
  if (unknown.empty() || rest % factor != 0 || rest / factor <= 0) return;
  sizes[unknown] = rest / factor;
  progress = true;
}

// Rows and columns of the array as the tensor has them; nothing if the shape is none of its kind.
std::vector<int64_t> matrix_shape(const TensorDecl& decl, const Array& array) {
  const std::vector<int64_t>& shape = array.shape;
  if (shape.size() == 2) {
    const bool is_turned =
        decl.kind == TensorKind::dense && ((decl.shape.is_per_row() && shape[0] == 1) ||
                                           (decl.shape.is_per_column() && shape[1] == 1));
    return is_turned ? std::vector<int64_t>{shape[1], shape[0]} : shape;
  }
  if (shape.empty() && decl.shape.is_scalar()) return {1, 1};
  if (shape.size() == 1 && decl.kind == TensorKind::dense) {
    if (decl.shape.is_per_row()) return {shape[0], 1};
    if (decl.shape.is_per_column()) return {1, shape[0]};
    if (decl.shape.is_scalar() && shape[0] == 1) return {1, 1};
  }
  return {};
}

// As an author writes it: [M, N], [M], nothing for a scalar.
std::string dims_text(const TensorDecl& decl) {
  if (decl.kind != TensorKind::dense || !decl.shape.is_vector()) return decl.shape.text();
  if (decl.shape.is_scalar()) return "";
  return "[" + (decl.shape.is_per_row() ? decl.shape.rows : decl.shape.cols).text() + "]";
}

std::string listed(const std::map<std::string, TensorDecl>& tensors) {
  std::string list;
  for (const auto& [name, decl] : tensors)
    list += (list.empty() ? "" : ", ") + name + dims_text(decl);
  return list;
}

}  // namespace

DimValues measure::sizes_of(const std::map<std::string, TensorDecl>& declared, const Arrays& inputs,
                            const DimValues& known, const Readers& readers) {
  std::vector<std::string> names;
  for (const auto& [name, decl] : declared) {
    names.push_back(name);
    require(inputs.contains(name), "the input '" + name + "' " + dims_text(decl) + " is missing; " +
                                       readers.read + " " + listed(declared));
  }
  for (const auto& [name, array] : inputs)
    require(declared.contains(name), readers.none_reads + " '" + name + "'" +
                                         nearest_name(name, names) + "; " + readers.they_read +
                                         " " + listed(declared));
  DimValues sizes = known;
  for (bool progress = true; progress;) {
    progress = false;
    for (const auto& [name, decl] : declared) {
      const std::vector<int64_t> shape = matrix_shape(decl, inputs.at(name));
      if (shape.empty()) continue;
      if (decl.kind != TensorKind::column_partial)
        bind_dim(decl.shape.rows, shape[0] / decl.lanes, sizes, progress);
      if (decl.kind != TensorKind::row_partial)
        bind_dim(decl.shape.cols, shape[1], sizes, progress);
    }
  }
  for (const auto& [name, decl] : declared) {
    const Array& array = inputs.at(name);
    for (const Dim& dim : {decl.shape.rows, decl.shape.cols}) {
      for (const auto& [symbol, factor] : dim.terms())
        require(sizes.contains(symbol), "the shapes of the inputs do not give the size " + symbol +
                                            ": '" + name + "' needs " + dims_text(decl) +
                                            " and has " + shape_text(array) + "; --sizes " +
                                            symbol + "=1024 gives one");
    }
    const PhysicalShape needed = physical_shape(decl, sizes);
    const std::vector<int64_t> shape = matrix_shape(decl, array);
    std::string at;
    for (const auto& [symbol, size] : sizes) at += " " + symbol + "=" + std::to_string(size);
    require(shape == std::vector<int64_t>{needed.rows, needed.cols},
            "input '" + name + "' has the shape " + shape_text(array) + " and needs " +
                dims_text(decl) + ", which is [" + std::to_string(needed.rows) + ", " +
                std::to_string(needed.cols) + "] at" + (at.empty() ? " any sizes" : at));
  }
  return sizes;
}

DimValues sizes_of_inputs(std::span<const Program> programs, const Arrays& inputs,
                          const DimValues& known) {
  measure::require_chain(programs);
  return measure::sizes_of(measure::tensors_of(programs).inputs, inputs, known,
                           {"the programs read", "no program reads", "they read"});
}

}  // namespace coda
