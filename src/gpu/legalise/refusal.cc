// SPDX-License-Identifier: Apache-2.0
// Words the reasons: one sentence for each RefusalReason, and a remedy.
#include "gpu/legalise/refusal.h"

#include "program/problem.h"
#include "program/step_table.h"

namespace coda::gpu {
namespace {

struct Words {
  std::string why;
  std::string remedy;
};

std::string product_text(const ProgramSizes& sizes, int gemm) {
  std::string text;
  for (const GemmSegment& s : sizes.step(gemm).segments()) {
    text += (text.empty() ? "'" : " + '") + sizes.tensor(s.a).name + "' x '" +
            sizes.tensor(s.b).name + "'";
  }
  return text;
}

Words words_of(const Refusal& r, const ProgramSizes& sizes) {
  const auto name = [&](int tensor) { return sizes.tensor(tensor).name; };
  const auto product = [&] { return "product " + product_text(sizes, r.step); };
  const std::string value = std::to_string(r.value);
  const std::string budget = std::to_string(r.budget);
  switch (r.reason) {
    case RefusalReason::operand_type:
      return {"product operand '" + name(r.tensor) + "' is " +
                  std::string(name_of(sizes.tensor(r.tensor).dtype)),
              "tensor cores here multiply bf16 or f16: declare it so, as in " + name(r.tensor) +
                  "[...]:bf16"};
    case RefusalReason::operand_types:
      return {"product operands '" + name(r.tensor) + "' and '" + name(r.other) +
                  "' have different types",
              "store them as one"};
    case RefusalReason::mixed_elements:
      return {product() + " mixes bf16 and f16 operands", "store them as one"};
    case RefusalReason::mixed_layouts:
      return {product() + " mixes operands that are and are not stored transposed",
              "on a GPU all products that meet in one tile have one layout: make several programs"};
    case RefusalReason::first_operands:
      return {"products " + product_text(sizes, r.step) + " and " + product_text(sizes, r.other) +
                  " meet in one tile and do not read the same first operand",
              "on a GPU they must: write their sum as one product with K segments, or store one of "
              "them first"};
    case RefusalReason::accumulators:
      return {"its products have " + value +
                  " accumulators for each column of one tile, and a tile has registers for " +
                  budget,
              "make several programs"};
    case RefusalReason::pair_distance:
    case RefusalReason::pair_with_other_gemm:
      return {product() + " has members of pairs " + value + " columns apart" +
                  (r.reason == RefusalReason::pair_distance
                       ? ""
                       : " and shares its tile with another product"),
              "on a GPU pairs within a product are concatenated, or 16, 32, 64 or 128 columns "
              "apart in a product alone in its tile: store it and rotate it in another program"};
    case RefusalReason::group_in_tile:
      return {"no tile holds groups of " + value + " columns whole",
              "store the product and reduce its groups in a program without one"};
    case RefusalReason::column_reduction:
      return {"column partial '" + name(sizes.step(r.step).tensor()) +
                  "': of a product only sums and maxima are reduced along columns on a GPU",
              "store the product and reduce it in a program without one"};
    case RefusalReason::without_product:
      return {std::string(program::name_of(sizes.step(r.step).kind())) + " to '" +
                  name(sizes.step(r.step).tensor()) + "' does not stand behind a product on a GPU",
              "store the value, and load it in a program without a product"};
    case RefusalReason::registers:
      return {"the epilogue of tile space " + value +
                  " fits into no tile: it has more values than " + budget +
                  " registers a thread; most take " + r.uses,
              "store some values and go on in another program"};
    case RefusalReason::two_groups:
      return {"its columns stand for different groups of the tile",
              "store it, and load it in another program"};
    case RefusalReason::groups_cut_pairs:
      return {"its groups of " + sizes.step(r.step).group().text() +
                  " columns and the pairs within " + value + " columns cut each other",
              "store the value and group it in another program"};
    case RefusalReason::group_in_warp:
      return {"a group of " + value + " base columns is not held by a warp",
              "groups are powers of two up to " + budget + " columns"};
  }
  return {};
}

bool names_step(RefusalReason reason) {
  return reason == RefusalReason::two_groups || reason == RefusalReason::groups_cut_pairs ||
         reason == RefusalReason::group_in_warp;
}

}  // namespace

std::string why(const Refusal& refusal, const ProgramSizes& sizes) {
  return words_of(refusal, sizes).why;
}

std::string text(const Refusal& refusal, const ProgramSizes& sizes) {
  const Words words = words_of(refusal, sizes);
  const std::string where = names_step(refusal.reason)
                                ? "program '" + sizes.program().name + "', step " +
                                      std::to_string(refusal.step) + ", " +
                                      program::describe_step(sizes.program(), refusal.step)
                                : sizes.description();
  return where + ": " + words.why + "; " + words.remedy;
}

}  // namespace coda::gpu
