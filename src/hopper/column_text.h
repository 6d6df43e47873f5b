// SPDX-License-Identifier: Apache-2.0
// How the text of a tile space without a product says where a thread's columns stand: functions of
// the element, and the divisors that they need.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "hopper/argument_text.h"

namespace coda::hopper {

class ColumnText {
 public:
  explicit ColumnText(ArgumentText& arguments) : arguments_(arguments) {}

  // A function i -> `expression`. `stride`: how far apart the thread's columns are with vectors; 0:
  // they have no vectors.
  void declare(const std::string& name, const std::string& expression, int stride);
  // The name of a divisor; `number` is its value as a number of the kernel's.
  std::string divisor(const std::string& number, int64_t value);

  const std::string& divisors() const { return divisors_; }
  const std::string& functions() const { return functions_; }

 private:
  ArgumentText& arguments_;
  std::set<std::string> known_;
  std::string divisors_;
  std::string functions_;
};

}  // namespace coda::hopper
