// SPDX-License-Identifier: Apache-2.0
// Collects the mistakes of a text. Their number is bounded: behind the last one the parser stops,
// so that a file that is no program costs no more than one that is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "coda/program_error.h"

namespace coda::program {

// Bytes of the text that a message is about.
struct Place {
  size_t offset = 0;
  size_t length = 1;
};

// Thrown at a mistake; the parser catches it and goes on behind the line.
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
  // Throws the ProgramError of all that were added.
  [[noreturn]] void fail(std::string_view file);

 private:
  std::string_view text_;
  std::vector<Mistake> mistakes_;
};

}  // namespace coda::program
