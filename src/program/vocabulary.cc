// SPDX-License-Identifier: Apache-2.0
// The tables behind vocabulary.h.
#include "program/vocabulary.h"

#include <algorithm>
#include <array>

#include "coda/error.h"

namespace coda::program {
namespace {

constexpr std::array<DType, 5> kTypes = {DType::f32, DType::bf16, DType::f16, DType::f64,
                                         DType::i32};
constexpr std::array<std::string_view, 21> kFunctions = {"gemm",
                                                         "tile",
                                                         "per_row",
                                                         "per_column",
                                                         "scalar",
                                                         "column_index",
                                                         "split_pairs",
                                                         "merge_pairs",
                                                         "as_stored",
                                                         "reduce_group",
                                                         "repeat_group",
                                                         "select_column",
                                                         "combine_rows",
                                                         "combine_columns",
                                                         "reduce_vector",
                                                         "transpose_vector",
                                                         "store",
                                                         "row_partial",
                                                         "column_partial",
                                                         "inf",
                                                         "nan"};

}  // namespace

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string_view name_of(StepKind kind) {
  switch (kind) {
    case StepKind::gemm: return "gemm";
    case StepKind::load_tile: return "load_tile";
    case StepKind::load_per_row: return "load_per_row";
    case StepKind::load_per_column: return "load_per_column";
    case StepKind::load_scalar: return "load_scalar";
    case StepKind::constant: return "constant";
    case StepKind::column_index: return "column_index";
    case StepKind::elementwise: return "elementwise";
    case StepKind::split_pair: return "split_pair";
    case StepKind::merge_pairs: return "merge_pairs";
    case StepKind::as_stored: return "as_stored";
    case StepKind::reduce_group: return "reduce_group";
    case StepKind::repeat_group: return "repeat_group";
    case StepKind::select_column: return "select_column";
    case StepKind::combine: return "combine";
    case StepKind::reduce_vector: return "reduce_vector";
    case StepKind::transpose_vector: return "transpose_vector";
    case StepKind::store_tile: return "store_tile";
    case StepKind::store_vector: return "store_vector";
    case StepKind::row_partial: return "row_partial";
    case StepKind::column_partial: return "column_partial";
  }
  return "?";
}

std::optional<DType> dtype_by_name(std::string_view name) {
  for (DType type : kTypes) {
    if (coda::name_of(type) == name) return type;
  }
  return std::nullopt;
}

bool is_effect(StepKind kind) {
  return kind == StepKind::store_tile || kind == StepKind::store_vector ||
         kind == StepKind::row_partial || kind == StepKind::column_partial;
}

bool is_identifier(std::string_view text) {
  return !text.empty() && is_letter(text[0]) &&
         std::all_of(text.begin(), text.end(), [](char c) { return is_letter(c) || is_digit(c); });
}

bool is_reserved(std::string_view word) {
  return word == "_" || std::find(kFunctions.begin(), kFunctions.end(), word) != kFunctions.end() ||
         elementwise_by_name(word).has_value();
}

std::string quoted_name(std::string_view name) {
  const bool plain = !name.empty() && is_letter(name[0]) && name.back() != '.' &&
                     name.find("..") == std::string_view::npos &&
                     std::all_of(name.begin(), name.end(),
                                 [](char c) { return is_letter(c) || is_digit(c) || c == '.'; });
  return plain ? std::string(name) : "\"" + std::string(name) + "\"";
}

bool is_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return c >= ' ' && c <= '~' && c != '"' && c != '\\';
  });
}

}  // namespace coda::program
