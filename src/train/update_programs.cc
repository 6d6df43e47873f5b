// SPDX-License-Identifier: Apache-2.0
// Assembles the text of each program from the optimizer's formulas and parses it.
#include "train/update_programs.h"

#include <algorithm>
#include <regex>

#include "program/continued.h"
#include "program/step_table.h"
#include "train/optimizer_rows.h"

namespace coda {
namespace {

// The shapes of an update's tensors, and which results the update stores.
struct Frame {
  std::string shape;    // of the tiles: "[R, C]"
  std::string decayed;  // the weight w0 after weight decay
  bool has_copy = false;
  // True for tensors in host memory: states are stored as fp32, and the caller skips the update if
  // a gradient is not finite. False: if a gradient is not finite, the program itself stores the old
  // values.
  bool is_on_host = false;
};

std::string with_decayed(const std::string& formulas, const std::string& decayed) {
  static const std::regex word(R"(\bdecayed\b)");
  return std::regex_replace(formulas, word, decayed);
}

std::string update_text(const Optimizer& o, const Frame& f) {
  const auto line = [](const std::string& text) { return "  " + text + "\n"; };
  const auto load = [&](const std::string& name, const std::string& type) {
    return "tile(" + name + f.shape + type + ")";
  };
  std::string text = "\nprogram " + o.name + " {\n";
  if (!f.is_on_host) text += line("kept = scalar(sound)");
  text += line("g = " + load(kGradient, "") + " * scalar(scale)");
  for (const auto& [name, dtype] : o.states) {
    const DType stored = f.is_on_host ? DType::f32 : dtype;
    text += line(name + "0 = " + load(name, ":" + std::string(name_of(stored))));
  }
  text += line("w0 = " + load(kMaster, ""));
  text += with_decayed(o.formulas, f.decayed);
  if (!f.is_on_host) text += line("w = select(kept, w1, w0)");
  for (const auto& [name, dtype] : o.states) {
    std::string value = name + "1";
    if (!f.is_on_host) {
      value = "select(kept, " + value + ", " + name + "0)";
    } else if (dtype != DType::f32) {
      value = "as_stored(" + value + ", " + std::string(name_of(dtype)) + ")";
    }
    text += line("store(" + name + ", " + value + ")");
  }
  const std::string weight = f.is_on_host ? "w1" : "w";
  text += line("store(" + std::string(kMaster) + ", " + weight + ")");
  if (f.has_copy) text += line("store(" + std::string(kCopy) + ":bf16, " + weight + ")");
  return text + "}";
}

Program with_products_rounded(const Program& program) {
  Program result{program.name, program.tensors, {}};
  std::vector<int> values;  // indices in the result
  for (const Step& s : program.steps) {
    Step step = s;
    for (int& operand : step.operands) operand = values[static_cast<size_t>(operand)];
    const bool is_product = program::applies(step, Elementwise::mul) && step.shape.is_tensor();
    result.steps.push_back(std::move(step));
    const auto last = static_cast<int>(result.steps.size()) - 1;
    if (is_product) result.steps.push_back({steps::AsStored{DType::f32}, s.shape, {last}});
    values.push_back(static_cast<int>(result.steps.size()) - 1);
  }
  return result;
}

}  // namespace

std::string norm_text(double clip) {
  return R"(
program gradient_norm {
  length = sqrt(reduce_vector(combine_rows(sum(of_groups[S, G]))))
  store(norm, length)
  store(sound, scalar(sound) * less(length, inf))
  store(scale, min(1, )" +
         (clip > 0 ? number_text(clip) : "inf") + R"( / (length + 1e-6)))
})";
}

std::string update_of_rows(const Optimizer& optimizer, bool has_copy) {
  return update_text(optimizer, {.shape = "[R, C]",
                                 .decayed = "(1 - scalar(decay) * per_row(decays[R])) * w0",
                                 .has_copy = has_copy});
}

Program update_on_host(const Optimizer& optimizer, bool has_copy, bool decays) {
  return with_products_rounded(
      parse_program(update_text(optimizer, {.shape = "[R, C]",
                                            .decayed = decays ? "scalar(kept_share) * w0" : "w0",
                                            .has_copy = has_copy,
                                            .is_on_host = true})));
}

bool fits_update(const ParameterCopy& copy) {
  const auto& tensors = copy.program.tensors;
  return std::ranges::find(tensors, copy.parameter, &TensorDecl::name) != tensors.end();
}

std::set<std::string> updated_apart(const std::vector<ParameterCopy>& copies, int processes) {
  std::set<std::string> apart;
  for (const ParameterCopy& copy : copies)
    if (processes == 1 && fits_update(copy)) apart.insert(copy.parameter);
  return apart;
}

Program update_with(const ParameterCopy& copy, const WeightTensor& weight,
                    const Optimizer& optimizer) {
  Program update = parse_program(
      update_text(optimizer, {.shape = Shape{weight.rows, weight.cols}.text(),
                              .decayed = weight.decays ? "(1 - scalar(decay)) * w0" : "w0",
                              .has_copy = true}));
  std::ranges::find(update.tensors, kCopy, &TensorDecl::name)->name = copy.parameter;
  return program::continued(update, copy.program);
}

}  // namespace coda
