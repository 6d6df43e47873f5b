// SPDX-License-Identifier: Apache-2.0
#include "ir/op_names.h"

namespace coda {

std::string_view name_of(Op op) {
  switch (op) {
    case Op::input: return "input";
    case Op::constant: return "constant";
    case Op::reciprocal_dim: return "reciprocal_dim";
    case Op::ones: return "ones";
    case Op::column_index: return "column_index";
    case Op::elementwise: return "elementwise";
    case Op::row_sum: return "row_sum";
    case Op::col_sum: return "col_sum";
    case Op::row_reduce: return "row_reduce";
    case Op::col_reduce: return "col_reduce";
    case Op::select_column: return "select_column";
    case Op::matmul: return "matmul";
    case Op::split_pair: return "split_pair";
    case Op::merge_pairs: return "merge_pairs";
    case Op::slice_columns: return "slice_columns";
    case Op::concat_columns: return "concat_columns";
    case Op::repeat_columns: return "repeat_columns";
    case Op::gather_rows: return "gather_rows";
    case Op::group_sum: return "group_sum";
    case Op::group_repeat: return "group_repeat";
    case Op::transpose: return "transpose";
    case Op::opaque: return "opaque";
    case Op::result: return "result";
  }
  return "?";
}

}  // namespace coda
