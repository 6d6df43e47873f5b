// SPDX-License-Identifier: Apache-2.0
// Prints an analysis for people and for tests.
#include "gpu/legalise/space_analysis.h"
#include "gpu/target/element.h"

namespace coda::gpu {

std::string text(const SpaceAnalysis& analysis, const Program& program) {
  static constexpr const char* kLayouts[] = {"tn", "nn", "nt", "tt"};
  static constexpr const char* kMovements[] = {"staged", "direct", "bytes", "added", "nothing"};
  std::string text = std::string("layout ") + kLayouts[static_cast<int>(analysis.layout)] + " " +
                     std::string(name_of(element_row(analysis.element).type)) +
                     (analysis.element_b == analysis.element
                          ? ""
                          : " x " + std::string(name_of(element_row(analysis.element_b).type))) +
                     (analysis.ragged_columns ? ", ragged columns\n" : "\n");
  const auto tensor = [&](int t) { return program.tensors[t].name; };
  for (const Part& part : analysis.parts) {
    text += "part";
    if (part.member >= 0) text += " member " + std::to_string(part.member);
    text += ":";
    const char* separator = " ";
    for (const GemmSegment& segment : program.steps[part.gemm].segments()) {
      text += separator + tensor(segment.a) + " x " + tensor(segment.b);
      separator = ", ";
    }
    text += "\n";
  }
  if (analysis.natural_half != 0)
    text += "in natural order, half " + std::to_string(analysis.natural_half) + "\n";
  const auto list = [&](const char* what, const std::vector<TileMove>& moves) {
    for (const TileMove& move : moves) {
      text += what + tensor(program.steps[move.step].tensor()) + ": " +
              kMovements[static_cast<int>(move.movement)];
      if (move.plane >= 0) {
        text += " in plane " + std::to_string(move.plane);
        if (move.is_wide) text += ", " + std::to_string(move.plane + 1);
        if (move.is_permuted) text += " (permuted)";
      } else if (move.is_wide) {
        text += ", wide";
      }
      text += "\n";
    }
  };
  list("load ", analysis.loads);
  list("store ", analysis.stores);
  for (int i : analysis.row_partials) {
    text += "row partial " + tensor(program.steps[i].tensor()) + "\n";
  }
  for (int i : analysis.column_partials) {
    text += "column partial " + tensor(program.steps[i].tensor()) + "\n";
  }
  for (const ByteMove& move : analysis.bytes) {
    if (move.columns < 0) continue;
    text += "transposed store " + tensor(program.steps[move.columns].tensor()) + ": byte plane " +
            std::to_string(move.plane) + (move.is_wide ? ", wide\n" : "\n");
  }
  for (int i : analysis.maxima) {
    text += "maximum " + tensor(program.steps[i].tensor()) + "\n";
  }
  for (int i : analysis.selections) {
    text += "selection " + tensor(program.steps[i].tensor()) + "\n";
  }
  return text;
}

}  // namespace coda::gpu
