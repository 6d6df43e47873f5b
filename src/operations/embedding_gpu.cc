// SPDX-License-Identifier: Apache-2.0
// Embedding's kernels for a GPU: a few lines of CUDA that name types and call
// device/kernels/embedding.cuh.
#include <algorithm>

#include "operations/embedding.h"
#include "operations/gpu_text.h"

namespace coda {
namespace {

// device/kernels/embedding.cuh has the same.
constexpr uint32_t kRowThreads = 256;
constexpr int64_t kColumnsOfThread = 8;  // of a thread
constexpr int64_t kPieces = 4;
constexpr uint32_t kGradientThreads = 512;
constexpr int64_t kGradientColumns = 256;
constexpr int64_t kMostMatches = 8192;
constexpr uint32_t kMatchesBytes = 117968;  // TokenMatches

// A match has 32 bits, one of them a mark: so many tokens leave seven for the number of a row.
constexpr int64_t kMostTokens = int64_t{1} << 24;

constexpr const char* kCode =
    "#include \"device/kernels/embedding.cuh\"\n\nusing namespace coda::device;\n";

void check_ids(const OperationCall& call, RowNumbers numbers) {
  const OperationTensor& ids = call.tensors[1];
  call.check_type(1, {stored_type(numbers)});
  call.check(ids.rows == 1 || ids.row_stride == 1, "'" + ids.name + "' lie " +
                                                       std::to_string(ids.row_stride) +
                                                       " apart; they must lie side by side");
}

// How many blocks share the rows of the same columns. A block has a multiprocessor to itself, and
// all of a Hopper GPU's begin at once; more, where each would list too many tokens.
int64_t gradient_groups(int64_t table_rows, int64_t tokens, int64_t column_blocks) {
  constexpr int64_t kMultiprocessors = 132, kTokensOfBlock = kMostMatches / 2;
  const int64_t wanted =
      std::max(kMultiprocessors / column_blocks, ceil_div(tokens, kTokensOfBlock));
  const int64_t most = std::min(table_rows, (int64_t{1} << 32) / table_rows);
  return std::max<int64_t>(2, std::min(wanted, most));
}

// The template argument of both kernels, behind others; ids are what is meant without it.
std::string argument(RowNumbers numbers) {
  return numbers == RowNumbers::ids ? "" : ", RowNumbers::computed";
}

}  // namespace

std::vector<GpuKernel> embedding_kernels(const OperationCall& call, RowNumbers numbers) {
  check_ids(call, numbers);
  const OperationTensor &table = call.tensors[0], &out = call.tensors[2];
  const int64_t pieces = out.rows * ceil_div(out.cols, kColumnsOfThread);
  call.check(pieces < int64_t{1} << 32, std::to_string(out.rows) + " tokens of " +
                                            std::to_string(out.cols) +
                                            " columns are too many for one launch; look up fewer");
  return {{.name = call.operation,
           .code = kCode,
           .body = "  embedding_forward<" + element_name(call, 0) + ", " + element_name(call, 2) +
                   argument(numbers) +
                   ">(n(0), n(1), n(2), MatrixRows{p(0), n(3)}, p(1), MatrixRows{p(2), n(4)});\n",
           .numbers = {static_cast<uint32_t>(out.cols), static_cast<uint32_t>(table.rows),
                       static_cast<uint32_t>(out.rows), row_stride(call, 0), row_stride(call, 2)},
           .grid = launch_blocks(pieces, kRowThreads * kPieces),
           .threads = kRowThreads}};
}

std::vector<GpuKernel> embedding_backward_kernels(const OperationCall& call, RowNumbers numbers) {
  check_ids(call, numbers);
  const bool adds = call.operands == 3;
  const size_t out = call.tensors.size() - 1;
  const size_t added = adds ? 2 : out;
  const OperationTensor &rows = call.tensors[0], &table = call.tensors[out];
  const uint32_t column_blocks = launch_blocks(table.cols, kGradientColumns);
  call.check(rows.rows <= kMostTokens,
             std::to_string(rows.rows) + " tokens are more than a kernel counts to (" +
                 std::to_string(kMostTokens) + "); run it on fewer and add up");
  const int64_t groups = gradient_groups(table.rows, rows.rows, column_blocks);
  const std::string p_out = std::to_string(out), p_added = std::to_string(added);
  return {
      {.name = call.operation,
       .code = kCode,
       .body = "  static_assert(sizeof(TokenMatches) == " + std::to_string(kMatchesBytes) +
               ");\n  embedding_backward<" + element_name(call, 0) + ", " +
               element_name(call, added) + ", " + element_name(call, out) + ", " +
               (adds ? "true" : "false") + argument(numbers) +
               ">(block_memory<TokenMatches>(), n(0), n(1), n(2), n(3), n(4),\n      "
               "MatrixRows{p(0), n(5)}, p(1), "
               "MatrixRows{p(" +
               p_added + "), n(6)}, MatrixRows{p(" + p_out + "), n(7)});\n",
       .numbers = {static_cast<uint32_t>(table.cols), static_cast<uint32_t>(table.rows),
                   static_cast<uint32_t>(rows.rows), static_cast<uint32_t>(groups), column_blocks,
                   row_stride(call, 0), row_stride(call, added), row_stride(call, out)},
       .grid = static_cast<uint32_t>(groups * column_blocks),
       .threads = kGradientThreads,
       .shared_bytes = kMatchesBytes}};
}

}  // namespace coda
