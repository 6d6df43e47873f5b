// SPDX-License-Identifier: Apache-2.0
// What a call of an operation is given, against what the operation declares.
#include "coda/operation.h"

#include <algorithm>
#include <cmath>

#include "base/nearest_name.h"
#include "coda/error.h"

namespace coda {
namespace {

std::string quoted(std::string_view name) { return "\"" + std::string(name) + "\""; }

}  // namespace

int64_t OperationSettings::count(const std::string& name, int64_t least) const {
  const double value = attribute(name);
  require(value >= static_cast<double>(least) && value <= 2147483647 && value == std::floor(value),
          "attribute \"" + name + "\" must be a whole number from " + std::to_string(least) +
              ", not " + std::to_string(value));
  return static_cast<int64_t>(value);
}

void OperationCall::check(bool holds, const std::string& problem) const {
  require(holds, operation + ": " + problem);
}

void OperationCall::check_type(size_t tensor, std::initializer_list<DType> types) const {
  const OperationTensor& t = tensors[tensor];
  std::string wanted;
  for (DType type : types) {
    if (t.dtype == type) return;
    wanted += (wanted.empty() ? "" : " or ") + std::string(name_of(type));
  }
  check(false, "'" + t.name + "' is " + std::string(name_of(t.dtype)) + "; it must be " + wanted);
}

OperationSettings checked_settings(const Operation& operation,
                                   const std::map<std::string, double>& attributes,
                                   const std::map<std::string, Dim>& sizes) {
  OperationSettings settings{{}, sizes};
  std::vector<std::string> known_attributes;
  for (const auto& [name, preset] : operation.attributes) known_attributes.push_back(name);
  for (const auto& [name, value] : attributes) {
    require(operation.attributes.contains(name),
            "attribute " + quoted(name) + " is not known" + nearest_name(name, known_attributes));
    require(std::isfinite(value), "attribute " + quoted(name) + " must be finite");
  }
  for (const auto& [name, preset] : operation.attributes) {
    const auto given = attributes.find(name);
    require(given != attributes.end() || preset, "attribute " + quoted(name) + " is missing");
    settings.attributes[name] = given != attributes.end() ? given->second : *preset;
  }
  for (const auto& [name, size] : sizes) {
    const auto& known = operation.sizes;
    require(std::find(known.begin(), known.end(), name) != known.end(),
            "size " + quoted(name) + " is not known" + nearest_name(name, known));
  }
  for (const std::string& name : operation.sizes)
    require(sizes.contains(name), "size " + quoted(name) + " is missing");
  return settings;
}

size_t operand_count(const Operation& operation, const OperationSettings& settings) {
  size_t count = operation.operands.size();
  for (const std::string& name : operation.optional_operands) {
    const double given = settings.attribute(name);
    require(given == 0 || given == 1,
            "attribute " + quoted(name) + " must be 1 if the operand is given, or 0");
    count += given == 1 ? 1 : 0;
  }
  return count;
}

}  // namespace coda
