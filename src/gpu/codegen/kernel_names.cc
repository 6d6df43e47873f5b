// SPDX-License-Identifier: Apache-2.0
// Shortens the names of a plan (which contain phases, layers and numbers) for use in kernels.
#include "gpu/codegen/kernel_names.h"

#include <algorithm>
#include <map>
#include <set>

namespace coda::gpu {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string without_number(std::string_view name) {
  while (!name.empty() && (is_digit(name.back()) || name.back() == '_')) name.remove_suffix(1);
  return std::string(name);
}

// "d_l1.gate" -> "d_gate", "forward.product3.l0.o" -> "o", "t301" -> "t".
std::string short_name(const std::string& name) {
  const size_t dot = name.rfind('.');
  std::string last = dot == std::string::npos ? name : name.substr(dot + 1);
  if (dot != std::string::npos && name.starts_with("d_")) last = "d_" + last;
  const std::string stem = without_number(last);
  // A single letter with a number is a name made by the plan.
  return stem.size() == 1 ? stem : last;
}

}  // namespace

Program with_kernel_names(const Program& program) {
  Program renamed = program;
  const std::string stem = without_number(short_name(program.name));
  renamed.name = stem.empty() ? "program" : stem;
  std::set<std::string> taken;
  std::map<std::string, int> counts;
  for (TensorDecl& tensor : renamed.tensors) {
    const std::string wanted = short_name(tensor.name);
    std::string name = wanted;
    const bool is_numbered = wanted.size() == 1 && wanted != tensor.name;
    if (is_numbered) name = wanted + std::to_string(++counts[wanted]);
    while (!taken.insert(name).second)
      name = wanted + (is_numbered ? "" : "_") + std::to_string(++counts[wanted] + !is_numbered);
    tensor.name = name;
  }
  return renamed;
}

Program without_names(Program program) {
  program.name = "program";
  for (size_t i = 0; i < program.tensors.size(); ++i)
    program.tensors[i].name = "tensor_" + std::to_string(i);
  return program;
}

}  // namespace coda::gpu
