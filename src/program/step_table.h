// SPDX-License-Identifier: Apache-2.0
// The table of step kinds: one row a kind, with its words, its operands, and which fields of a Step
// it uses. What differs in more than that has an entry for the kind: its rule in verify.cc and
// assembler.cc, its meaning in evaluate.cc and lift.cc, and each backend's code.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "coda/program.h"

namespace coda::program {

enum class StepGroup : uint8_t {
  source,       // a tile of its own
  vector,       // loads, constants and indices, which each tile space that uses one lists
  elementwise,  // of its operands' tile, at the same place
  columns,      // of its operand's tile, with fewer or more columns
  selection,
  finalizer,  // on vectors alone
  effect,     // no value
};

// Fields of Step that not every kind uses. An effect writes its tensor, all others read it.
enum StepField : uint16_t {
  kTensor = 1,
  kSegments = 2,
  kRowIndex = 4,
  kRepeat = 8,
  kOp = 16,
  kGroup = 32,
  kWhich = 64,
  kLane = 128,
  kNumber = 256,
  kPartial = 512,
  kDType = 1024,
};
inline constexpr int kOperandsOfOp = -1;  // as many as the elementwise operation has

struct StepInfo {
  StepKind kind;
  std::string_view name;
  StepGroup group;
  int operands;
  int fields;                             // of StepField
  std::array<std::string_view, 2> words;  // functions of program text
  std::string_view value_name;            // in printed text; "": its tensor's
};

const StepInfo& info(StepKind kind);
std::optional<StepKind> step_by_word(std::string_view word);
inline std::string_view name_of(StepKind kind) { return info(kind).name; }
inline bool is_effect(StepKind kind) { return info(kind).group == StepGroup::effect; }
// The load of a vector of that shape.
StepKind load_kind(const Shape& shape);
// The step with nothing but what its kind uses.
Step with_own_fields(const Step& step);

}  // namespace coda::program
