// SPDX-License-Identifier: Apache-2.0
// Assembles the text of each program from the optimizer's formulas and parses it.
#include "train/update_programs.h"

#include <algorithm>
#include <regex>

#include "program/continued.h"
#include "program/step_table.h"
#include "train/optimizer_rows.h"
#include "train/rounding_noise.h"

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
  const bool has_master = has_master_weights(o, f.has_copy);
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
  // On the host every tensor is stored as fp32, and a weight in bf16 too.
  const std::string weight = has_master || f.is_on_host ? kMaster : kCopy;
  const std::string bf16 = ":" + std::string(name_of(DType::bf16));
  text += line("w0 = " + load(weight, weight == kCopy ? bf16 : ""));
  text += with_decayed(o.formulas, f.decayed);
  const auto new_value = [&](const std::string& name, DType dtype, int tensor) {
    std::string value = name + "1";
    if (dtype == DType::bf16) value = rounded_stochastically(value, tensor);
    return f.is_on_host ? value : "select(kept, " + value + ", " + name + "0)";
  };
  int tensor = 0;
  text += line("w = " + new_value("w", has_master ? DType::f32 : DType::bf16, tensor));
  for (const auto& [name, dtype] : o.states)
    text += line("store(" + name + ", " + new_value(name, dtype, ++tensor) + ")");
  if (weight == kMaster) text += line("store(" + weight + ", w)");
  if (f.has_copy) text += line("store(" + std::string(kCopy) + bf16 + ", w)");
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

bool has_master_weights(const Optimizer& optimizer, bool has_copy) {
  return !has_copy || optimizer.weights == DType::f32;
}

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

bool is_updated_apart(const ParameterCopy& copy, int processes, const Optimizer& optimizer) {
  if (processes > 1 || has_noise(optimizer)) return false;
  const auto& tensors = copy.program.tensors;
  return std::ranges::find(tensors, copy.parameter, &TensorDecl::name) != tensors.end();
}

std::set<std::string> updated_apart(const std::vector<ParameterCopy>& copies, int processes,
                                    const Optimizer& optimizer) {
  std::set<std::string> apart;
  for (const ParameterCopy& copy : copies)
    if (is_updated_apart(copy, processes, optimizer)) apart.insert(copy.parameter);
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
