// SPDX-License-Identifier: Apache-2.0
// Requests operands recursively, so each value is written after the values that it reads.
#include "gpu/codegen/value_text.h"

#include "coda/error.h"
#include "gpu/codegen/expressions.h"
#include "gpu/codegen/function_text.h"
#include "gpu/target/element.h"
#include "program/step_table.h"

namespace coda::gpu {

std::string ValueText::value(At at) {
  if (representative_ != nullptr) at.step = (*representative_)[at.step];
  const Step& s = sizes_.step(at.step);
  if (program::is_constant(s)) return number_text(s.number());
  if (program::splits_pairs(s)) return value({s.operands[0], at.reader, s.which()});
  if (program::merges_pairs(s)) return value({s.operands[at.plane], at.reader, 0});
  const auto key = std::make_pair(at.step, policy_.place(at));
  const auto found = texts_.find(key);
  return found != texts_.end() ? found->second : texts_[key] = make(at);
}

std::string ValueText::operand(const At& at, size_t k) {
  return value({sizes_.step(at.step).operands[k], reader_of_operands(at), at.plane});
}

int ValueText::reader_of_operands(const At& at) const {
  return map_ != nullptr && map_->on_tile[at.step] ? at.step : at.reader;
}

std::string ValueText::make(const At& at) {
  if (std::optional<std::string> text = policy_.source(at)) return *text;
  const Step& s = sizes_.step(at.step);
  std::string name = policy_.name(at);
  const int of_erf = sizes_.operand_of_erf_plus_one(at.step);
  std::vector<std::string> operands;
  if (of_erf >= 0) {
    operands.push_back(value({of_erf, reader_of_operands(at), at.plane}));
  } else {
    for (size_t k = 0; k < s.operands.size(); ++k) operands.push_back(operand(at, k));
  }
  const bool rounds = program::is_rounding(s);
  invariant(rounds || program::is_elementwise(s) || s.kind() == StepKind::transpose_vector,
            "a value that nothing makes");
  const std::string text = of_erf >= 0 ? "error_function_plus_one(" + operands[0] + ")"
                           : program::is_elementwise(s) ? expression(s.op(), operands)
                           : rounds && size_of(s.dtype()) < size_of(DType::f32)
                               ? filled("rounded<$>($)", {element_text(s.dtype()), operands[0]})
                               : operands[0];
  if (name.empty()) return "(" + text + ")";
  policy_.write(at, name, text);
  return name;
}

void ValueText::write(const std::vector<int>& steps, const Made& needed,
                      const std::function<void(int)>& effect) {
  for (int i : steps) {
    for (int plane = 0; plane < 2 && map_->on_tile[i]; ++plane) {
      if (needed.contains({i, policy_.place({i, i, plane})})) value({i, i, plane});
    }
    effect(i);
  }
}

ValueText::Made ValueText::made() const {
  Made made;
  for (const auto& [key, text] : texts_) made.insert(key);
  return made;
}

}  // namespace coda::gpu
