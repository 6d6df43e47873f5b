// SPDX-License-Identifier: Apache-2.0
// Collects the mistakes of a text. Their number is limited: the parser stops after the last, so
// that a file that is not a program costs no more than a program.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "coda/program_error.h"

namespace coda::program {

// The bytes of the text that a message refers to.
struct Place {
  size_t offset = 0;
  size_t length = 1;
};

// Thrown at a mistake; the parser catches it and continues after the line.
struct Mistake {
  Place place;
  std::string message;
};

class Diagnostics {
 public:
  explicit Diagnostics(std::string_view text) : text_(text) {}

  void add(const Mistake& mistake);
  bool any() const { return !mistakes_.empty(); }
  bool is_full() const;
  int64_t line_of(Place place) const;  // from 1
  // Throws the ProgramError with all mistakes.
  [[noreturn]] void fail(std::string_view file);

 private:
  std::string_view text_;
  std::vector<Mistake> mistakes_;
};

}  // namespace coda::program
