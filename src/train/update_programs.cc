// SPDX-License-Identifier: Apache-2.0
#include "train/update_programs.h"

#include <algorithm>
#include <cstdio>

#include "program/continued.h"
#include "program/step_table.h"

namespace coda {
namespace {

std::string number_text(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.9g", static_cast<double>(static_cast<float>(value)));
  return text;
}

// The formulas of adamw_step in the same order. Where the state is not sound, all is stored as it
// was. `shape`: of the tiles; `kept_part`: what the step's decay leaves of w0.
std::string adamw_text(const AdamWOptions& o, bool has_copy, const std::string& shape,
                       const std::string& kept_part) {
  const std::string type = ":" + std::string(name_of(o.moments));
  return R"(
program adamw {
  kept = scalar(sound)
  g = tile(gradient)" +
         shape + R"() * scalar(scale)
  m0 = tile(m)" +
         shape + type + R"()
  v0 = tile(v)" +
         shape + type + R"()
  w0 = tile(master)" +
         shape + R"()
  m1 = m0 + )" +
         number_text(1 - o.beta1) + R"( * (g - m0)
  v1 = )" +
         number_text(o.beta2) + " * v0 + " + number_text(1 - o.beta2) + R"( * (g * g)
  step = m1 / (sqrt(v1) * scalar(root_scale) + )" +
         number_text(o.eps) + R"()
  w1 = )" +
         kept_part + R"( - scalar(step_size) * step
  w = select(kept, w1, w0)
  store(m, select(kept, m1, m0))
  store(v, select(kept, v1, v0))
  store(master, w)
)" + (has_copy ? "  store(copy:bf16, w)\n}" : "}");
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

std::string adamw_of_rows(const AdamWOptions& options, bool has_copy) {
  return adamw_text(options, has_copy, "[R, C]", "(1 - scalar(decay) * per_row(decays[R])) * w0");
}

bool fits_update(const ParameterCopy& copy) {
  const auto& tensors = copy.program.tensors;
  return std::ranges::find(tensors, copy.parameter, &TensorDecl::name) != tensors.end() &&
         std::ranges::none_of(copy.program.steps, program::takes_largest_of_blocks);
}

std::set<std::string> updated_apart(const std::vector<ParameterCopy>& copies, int processes) {
  std::set<std::string> apart;
  for (const ParameterCopy& copy : copies)
    if (processes == 1 && fits_update(copy)) apart.insert(copy.parameter);
  return apart;
}

Program adamw_with(const ParameterCopy& copy, const WeightTensor& weight,
                   const AdamWOptions& options) {
  Program adamw = parse_program(adamw_text(options, true, Shape{weight.rows, weight.cols}.text(),
                                           weight.decays ? "(1 - scalar(decay)) * w0" : "w0"));
  std::ranges::find(adamw.tensors, "copy", &TensorDecl::name)->name = copy.parameter;
  return program::continued(adamw, copy.program);
}

}  // namespace coda
