// SPDX-License-Identifier: Apache-2.0
// Makes the copies of an operand directly after the step that wrote it, or in that step; later
// GEMMs read only the copies. So a value that is saved for the backward takes one byte per element,
// and its 16-bit tensor is no longer saved.
#include "plan/after/eight_bits.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "coda/eight_bits.h"
#include "plan/after/eight_bit_choice.h"
#include "program/step_table.h"

namespace coda {
namespace {

constexpr std::pair<std::string_view, EightBits> kRecipes[] = {
    {"fp8", EightBits::fp8},
    {"fp8-kept", EightBits::fp8_kept},
};

class Writer {
 public:
  Writer(const Plan& plan, const PlanOperands& operands, EightBitChoice choice)
      : plan_(plan), operands_(operands), choice_(std::move(choice)) {}

  EightBitPlan run() {
    write_steps();
    write_tensors();
    result_.plan.notes.push_back(choice_.note);
    result_.first_scales = std::move(choice_.first_scales);
    return std::move(result_);
  }

 private:
  // ---- Names and declarations.

  // For example "eight_bits.7.inverse". Kernels use only the last word of a name, so two layers
  // have the same text.
  static std::string numbered(const char* vector, int scale) {
    std::string name = vector;
    return name.insert(name.find('.') + 1, std::to_string(scale) + ".");
  }
  static TensorDecl scalar(const char* vector, int scale) {
    return {.name = numbered(vector, scale), .shape = {1, 1}};
  }

  // Versions of one tensor are distinguished by a number before the last word of the name, counted
  // among the copied versions, so that layers whose kernels read other versions have the same text.
  TensorDecl copy_of(const Operand& operand, bool transposed) const {
    const Shape& shape = operands_.tensor(operand.tensor).decl.shape;
    const DType type = choice_.copies.at(operand).type;
    int number = 0;
    for (const auto& [other, copies] : choice_.copies)
      number += other.tensor == operand.tensor && other < operand ? 1 : 0;
    std::string name = operand.tensor;
    if (number > 0) name.insert(name.rfind('.') + 1, "v" + std::to_string(number + 1) + ".");
    name += "_" + std::string(name_of(type)) + (transposed ? "_transposed" : "");
    return {.name = std::move(name),
            .shape = transposed ? Shape{shape.cols, shape.rows} : shape,
            .dtype = type};
  }

  // ---- Steps.

  PlanStep quantising_step(const Operand& operand, const EightBitCopies& copies) const {
    const TensorDecl& decl = operands_.tensor(operand.tensor).decl;
    Program program;
    program.name = "quantise_" + operand.tensor;
    program.tensors = {decl};
    program.steps = {program::tile_load(0, decl.shape)};
    add_copies(program, operand, copies, 0);
    return {.name = "quantise " + operand.tensor,
            .role = StepRole::tile,
            .work = std::move(program),
            .reasons = {"products read it in 8 bits" +
                        std::string(copies.rows.is_read() && copies.columns.is_read()
                                        ? ", in both orders"
                                        : "")},
            .loop = operand.loop};
  }

  // Adds the copies of a step's value.
  void add_copies(Program& program, const Operand& operand, const EightBitCopies& copies,
                  int value) const {
    const Shape shape = program.steps[value].shape;
    const auto tensor = [&](const TensorDecl& decl) {
      const auto found = std::find(program.tensors.begin(), program.tensors.end(), decl);
      if (found != program.tensors.end()) return static_cast<int>(found - program.tensors.begin());
      program.tensors.push_back(decl);
      return static_cast<int>(program.tensors.size()) - 1;
    };
    const auto push = [&](Step step) {
      program.steps.push_back(std::move(step));
      return static_cast<int>(program.steps.size()) - 1;
    };
    const int scale = push(program::vector_load(tensor(scalar(kScales, copies.scale)), {1, 1}));
    const int scaled = push(program::applied(Elementwise::mul, {value, scale}, shape));
    if (copies.rows.is_read())
      push(program::tile_store(tensor(copy_of(operand, false)), scaled, shape));
    if (copies.columns.is_read())
      push(program::transposed_store(tensor(copy_of(operand, true)), scaled, shape));
    push(program::abs_max_into(tensor(scalar(kMagnitudes, copies.scale)), value, shape));
  }

  // The step before which an operand's copies are made: after the step that wrote it (if a loop
  // wrote it, after the whole loop, unless the copies belong to the loop); otherwise before the
  // first step, or loop, that reads them.
  int place_of(const Operand& operand, const EightBitCopies& copies) const {
    if (operand.version < 0 ||
        (operand.loop >= 0 && !operands_.is_written_in(operand, operand.loop))) {
      const int r = copies.rows.first;
      const int c = copies.columns.first;
      int place = r < 0 ? c : c < 0 ? r : std::min(r, c);
      const int loop = operand.loop >= 0 ? -1 : operands_.step(place).loop;
      while (loop >= 0 && place > 0 && operands_.step(place - 1).loop == loop &&
             operands_.is_backward(place - 1) == operands_.is_backward(place))
        --place;
      return place;
    }
    int place = operand.version + 1;
    const int loop = operand.loop >= 0 ? -1 : operands_.step(operand.version).loop;
    while (loop >= 0 && place < operands_.count() && operands_.step(place).loop == loop &&
           operands_.is_backward(place) == operands_.is_backward(operand.version))
      ++place;
    return place;
  }

  // Whether copies made before `place` belong to the backward. Copies of what the forward's last
  // step wrote are made at the end of the forward.
  bool is_made_in_backward(const Operand& operand, int place) const {
    const bool is_behind_writer = operand.version >= 0 && operand.loop < 0;
    return operands_.is_backward(is_behind_writer ? operand.version : place);
  }

  void write_steps() {
    Plan& plan = result_.plan;
    plan.loops = plan_.loops;
    plan.notes = plan_.notes;
    std::multimap<int, std::pair<const Operand*, const EightBitCopies*>> made;
    std::set<int> makers;  // steps that also store copies
    for (const auto& [operand, copies] : choice_.copies) {
      if (copies.maker >= 0) {
        makers.insert(copies.maker);
      } else {
        made.emplace(place_of(operand, copies), std::pair(&operand, &copies));
      }
    }
    for (int i = 0; i <= operands_.count(); ++i) {
      const auto [begin, end] = made.equal_range(i);
      for (auto it = begin; it != end; ++it) {
        const auto& [operand, copies] = it->second;
        std::vector<PlanStep>& phase =
            is_made_in_backward(*operand, i) ? plan.backward : plan.forward;
        phase.push_back(quantising_step(*operand, *copies));
      }
      if (i == operands_.count()) break;
      PlanStep step = operands_.step(i);
      if (makers.contains(i)) step.work = with_copies(std::get<Program>(step.work), i);
      if (const auto* program = std::get_if<Program>(&step.work)) {
        step.work = in_eight_bits(*program, i);
        if (step.later) step.later = in_eight_bits(*step.later, i);
      }
      (operands_.is_backward(i) ? plan.backward : plan.forward).push_back(std::move(step));
    }
  }

  // The maker with the stores of the copies; without its 16-bit store if nothing reads that.
  Program with_copies(const Program& program, int at) const {
    Program result = program;
    std::vector<int> dropped;
    for (const auto& [operand, copies] : choice_.copies) {
      if (copies.maker != at) continue;
      const Step& tile = program.steps[copies.tile];
      int value = program::is_tile_store(tile) ? tile.operands[0] : copies.tile;
      if (copies.drops_store) {
        dropped.push_back(copies.tile);
        // A value without a 16-bit store is not rounded to 16 bits.
        if (program::is_rounding(program.steps[value])) value = program.steps[value].operands[0];
      }
      add_copies(result, operand, copies, value);
    }
    std::sort(dropped.rbegin(), dropped.rend());
    for (const int store : dropped) drop_step(result, store);
    drop_unread(result);
    drop_unnamed(result);
    return result;
  }

  static void drop_step(Program& program, int step) {
    program.steps.erase(program.steps.begin() + step);
    for (Step& s : program.steps)
      for (int& operand : s.operands) operand -= operand > step ? 1 : 0;
  }
  static void drop_unread(Program& program) {
    for (int i = static_cast<int>(program.steps.size()) - 1; i >= 0; --i) {
      const bool is_read = std::any_of(program.steps.begin(), program.steps.end(), [&](auto& s) {
        return std::find(s.operands.begin(), s.operands.end(), i) != s.operands.end();
      });
      if (!is_read && !program::is_effect(program.steps[i])) drop_step(program, i);
    }
  }

  static void drop_unnamed(Program& program) {
    for (int t = static_cast<int>(program.tensors.size()) - 1; t >= 0; --t) {
      bool is_named = false;
      for (const Step& s : program.steps) {
        const std::vector<int> tensors = program::tensors_of(s);
        is_named = is_named || std::find(tensors.begin(), tensors.end(), t) != tensors.end();
      }
      if (is_named) continue;
      program.tensors.erase(program.tensors.begin() + t);
      for (Step& s : program.steps)
        for (int* field : program::tensor_fields(s)) *field -= *field > t ? 1 : 0;
    }
  }

  // The value saved in 8 bits that the step loads as a tile; none: empty tensor name.
  Operand saved_of(const Program& program, const Step& s, int at) const {
    if (choice_.kept.empty() || !program::is_tile_load(s)) return {};
    const Operand read = operands_.at(program.tensors[s.tensor()].name, false, at);
    return choice_.kept.contains(read) ? read : Operand{};
  }

  // Replaces the operands of 8-bit GEMMs by copies and divides the result by both scales. Loads of
  // values saved in 8 bits are replaced in the same way.
  Program in_eight_bits(const Program& program, int at) const {
    const bool has_products = choice_.products.contains(at);
    if (!has_products && std::all_of(program.steps.begin(), program.steps.end(), [&](auto& s) {
          return saved_of(program, s, at).tensor.empty();
        }))
      return program;
    Program result;
    result.name = program.name;
    std::map<std::string, int> tensors;
    const auto tensor = [&](const TensorDecl& decl) {
      const auto [found, is_new] =
          tensors.try_emplace(decl.name, static_cast<int>(result.tensors.size()));
      if (is_new) result.tensors.push_back(decl);
      return found->second;
    };
    const auto push = [&](Step step) {
      result.steps.push_back(std::move(step));
      return static_cast<int>(result.steps.size()) - 1;
    };
    std::map<int, int> inverses;  // scale -> the step that loads its inverse
    const auto inverse = [&](int scale) {
      const auto [found, is_new] = inverses.try_emplace(scale, -1);
      if (is_new)
        found->second = push(program::vector_load(tensor(scalar(kInverses, scale)), {1, 1}));
      return found->second;
    };
    std::vector<int> place;
    for (const Step& s : program.steps) {
      Step step = s;
      for (int& operand : step.operands) operand = place[operand];
      if (const Operand kept = saved_of(program, s, at); !kept.tensor.empty()) {
        *program::tensor_fields(step).front() = tensor(copy_of(kept, false));
        const int loaded = push(std::move(step));
        const int scale = choice_.copies.at(kept).scale;
        place.push_back(
            push(program::applied(Elementwise::mul, {loaded, inverse(scale)}, s.shape)));
        continue;
      }
      if (!has_products || !program::is_product(s)) {
        for (int* t : program::tensor_fields(step)) *t = tensor(program.tensors[*t]);
        place.push_back(push(std::move(step)));
        continue;
      }
      int scale_a = -1;
      int scale_b = -1;
      steps::Gemm product;
      for (const GemmSegment& g : s.segments()) {
        const Operand a = operands_.first_of(program, g, at);
        const Operand b = operands_.second_of(program, g, at);
        scale_a = choice_.copies.at(a).scale;
        scale_b = choice_.copies.at(b).scale;
        product.segments.push_back({.a = tensor(copy_of(a, g.transpose_a)),
                                    .b = tensor(copy_of(b, !g.transpose_b)),
                                    .transpose_a = false,
                                    .transpose_b = true});
      }
      const int made = push({std::move(product), s.shape});
      const int both =
          push(program::applied(Elementwise::mul, {inverse(scale_a), inverse(scale_b)}, {1, 1}));
      place.push_back(push(program::applied(Elementwise::mul, {made, both}, s.shape)));
    }
    return result;
  }

  // ---- Tensors.

  void write_tensors() {
    Plan& plan = result_.plan;
    const auto forward = static_cast<int>(plan_.forward.size());
    std::set<std::string> read_later;  // owners that the backward names
    std::set<std::string> made_early;  // owners that the forward names
    std::set<std::string> named;       // owners that any step names
    for (const auto* phase : {&plan.forward, &plan.backward}) {
      for (const PlanStep& step : *phase) {
        for (const StepTensor& t : step_tensors(step)) {
          named.insert(t.name);
          if (!operands_.contains(t.name)) continue;
          named.insert(operands_.owner(t.name));
          (phase == &plan.backward ? read_later : made_early).insert(operands_.owner(t.name));
        }
      }
    }
    for (const PlanTensor& t : plan_.tensors) {
      const bool is_ours = t.role == TensorRole::temporary || t.role == TensorRole::saved;
      if (is_ours && t.view_of.empty() && !named.contains(t.decl.name)) continue;
      plan.tensors.push_back(t);
      TensorRole& role = plan.tensors.back().role;
      const std::string& owner = operands_.owner(t.decl.name);
      if (role == TensorRole::saved && !(read_later.contains(owner) && made_early.contains(owner)))
        role = TensorRole::temporary;
    }
    for (const auto& [operand, copies] : choice_.copies) {
      const bool is_early = copies.maker < 0
                                ? !is_made_in_backward(operand, place_of(operand, copies))
                                : !operands_.is_backward(copies.maker);
      const auto add = [&](const TensorDecl& decl, int last) {
        const bool is_saved = operand.loop < 0 && is_early && last >= forward;
        plan.tensors.push_back({.decl = decl,
                                .role = is_saved ? TensorRole::saved : TensorRole::temporary,
                                .loop = operand.loop});
      };
      for (const bool transposed : {false, true}) {
        const EightBitCopies::Order& order = transposed ? copies.columns : copies.rows;
        if (order.is_read()) add(copy_of(operand, transposed), order.last);
      }
    }
    if (choice_.first_scales.empty()) return;
    const auto scales = static_cast<int>(choice_.first_scales.size());
    for (const char* vector : {kScales, kInverses, kMagnitudes}) {
      const TensorRole role = vector == kMagnitudes ? TensorRole::output : TensorRole::input;
      plan.tensors.push_back(
          {.decl = {.name = vector, .shape = {1, kScaleColumns * scales}}, .role = role});
      for (int i = 0; i < scales; ++i) {
        if (!named.contains(numbered(vector, i))) continue;
        plan.tensors.push_back({.decl = scalar(vector, i),
                                .role = role,
                                .view_of = vector,
                                .column_offset = kScaleColumns * i});
      }
    }
  }

  const Plan& plan_;
  const PlanOperands& operands_;
  EightBitChoice choice_;
  EightBitPlan result_;
};

}  // namespace

std::vector<std::string> eight_bits_names() {
  std::vector<std::string> names;
  for (const auto& [name, recipe] : kRecipes) names.emplace_back(name);
  return names;
}

EightBits eight_bits_of(std::string_view name) {
  for (const auto& [known, recipe] : kRecipes)
    if (known == name) return recipe;
  return EightBits::none;
}

EightBitPlan with_eight_bit_products(const Plan& plan, const DimValues& sizes, EightBits which,
                                     const std::set<std::string>& except) {
  const PlanOperands operands(plan);
  return Writer(plan, operands, choose_eight_bit_products(operands, plan, sizes, which, except))
      .run();
}

}  // namespace coda
