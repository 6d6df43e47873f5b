// SPDX-License-Identifier: Apache-2.0
// One pass over the steps in order: the form of an operand is known before that of its reader.
#include "cpu/fuse_steps.h"
#include "program/step_table.h"

#include <optional>

namespace coda::cpu {
namespace {

// A term of a sum.
struct Term {
  int step = -1;
  bool is_negative = false;
};

class Fusion {
 public:
  Fusion(const Program& program, const program::TileMap& map, int space)
      : program_(program),
        map_(map),
        forms_(program.steps.size()),
        uses_(program.steps.size(), 0),
        is_stored_only_(program.steps.size(), 1),
        is_rounded_(program.steps.size(), 0) {
    for (int i : map.spaces[space].steps) {
      const Step& s = program.steps[i];
      for (int operand : s.operands) {
        ++uses_[operand];
        const bool rounds_alike = program::is_tile_store(s) && program.tensors[s.tensor()].dtype ==
                                                                   program.steps[operand].dtype();
        if (!rounds_alike) is_stored_only_[operand] = 0;
      }
    }
    for (int i : map.spaces[space].steps) {
      if (map.on_tile[i]) fuse(i);
    }
  }

  std::vector<StepForm> take() { return std::move(forms_); }

 private:
  const Step& step(int i) const { return program_.steps[i]; }

  bool is_elementwise(int i, Elementwise op) const {
    return map_.on_tile[i] && program::applies(step(i), op);
  }

  // The step whose value i takes over, if it is just another step's value.
  int resolve(int i) const {
    while (forms_[i].kind == StepForm::Kind::operand) i = forms_[i].operands[0];
    return i;
  }

  void fuse(int i) {
    const Step& s = step(i);
    if (program::is_rounding(s)) {
      const bool is_identity = s.dtype() == DType::f32 || s.dtype() == DType::f64;
      if (!is_identity && !is_stored_only_[i]) return;
      const int operand = s.operands[0];
      forms_[i] = {StepForm::Kind::operand, Arithmetic::add, {operand}};
      is_rounded_[resolve(operand)] = is_identity;
      uses_[resolve(operand)] += uses_[i] - 1;
    } else if (is_elementwise(i, Elementwise::add) || is_elementwise(i, Elementwise::sub)) {
      fuse_sum(i);
    }
  }

  // b if i is -1 · b.
  std::optional<int> negated(int i) const {
    if (!is_elementwise(i, Elementwise::mul)) return std::nullopt;
    for (int k = 0; k < 2; ++k) {
      const Step& factor = step(step(i).operands[k]);
      const int other = step(i).operands[1 - k];
      if (program::is_constant(factor) && factor.number() == -1 && map_.on_tile[other]) {
        return resolve(other);
      }
    }
    return std::nullopt;
  }

  // Removes one reader of i; without readers it is not computed.
  void release(int i) {
    if (--uses_[i] == 0) forms_[i].kind = StepForm::Kind::nothing;
  }

  void fuse_sum(int i) {
    const Step& s = step(i);
    if (s.operands[0] == s.operands[1]) return;
    Term terms[2] = {{resolve(s.operands[0])},
                     {resolve(s.operands[1]), s.op() == Elementwise::sub}};
    if (terms[0].step == terms[1].step) return;
    for (Term& term : terms) {
      // At most one term is negative.
      const Term& other = &term == &terms[0] ? terms[1] : terms[0];
      const auto positive = negated(term.step);
      if (!positive || other.is_negative || term.is_negative || uses_[term.step] == 0) continue;
      ++uses_[*positive];
      release(term.step);
      term = {*positive, true};
    }
    StepForm form{StepForm::Kind::sum, Arithmetic::add, {}};
    for (int k : {1, 0}) {
      const Term& product = terms[k];
      const Term& rest = terms[1 - k];
      if (!is_elementwise(product.step, Elementwise::mul) || uses_[product.step] != 1) continue;
      if (forms_[product.step].kind != StepForm::Kind::as_written) continue;
      if (is_rounded_[product.step]) continue;  // the program rounds it before adding it
      form.arithmetic = product.is_negative ? Arithmetic::subtract_product
                        : rest.is_negative  ? Arithmetic::multiply_subtract
                                            : Arithmetic::multiply_add;
      for (int operand : step(product.step).operands) form.operands.push_back(resolve(operand));
      form.operands.push_back(rest.step);
      forms_[product.step].kind = StepForm::Kind::nothing;
      forms_[i] = std::move(form);
      return;
    }
    const bool swapped = terms[0].is_negative;
    form.arithmetic = swapped || terms[1].is_negative ? Arithmetic::subtract : Arithmetic::add;
    form.operands = {terms[swapped ? 1 : 0].step, terms[swapped ? 0 : 1].step};
    forms_[i] = std::move(form);
  }

  const Program& program_;
  const program::TileMap& map_;
  std::vector<StepForm> forms_;
  std::vector<int> uses_;
  std::vector<char> is_stored_only_;  // every reader stores it in the type that it is rounded to
  // Whether the program rounds it to the type in which it is computed.
  std::vector<char> is_rounded_;
};

}  // namespace

std::vector<StepForm> fuse_steps(const Program& program, const program::TileMap& map, int space) {
  return Fusion(program, map, space).take();
}

}  // namespace coda::cpu
