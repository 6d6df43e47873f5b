// SPDX-License-Identifier: Apache-2.0
// What is wrong with the text of a program, as a compiler says it: each mistake with its place, the
// line and a mark below it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "coda/api.h"
#include "coda/error.h"

namespace CODA_API coda {

struct Diagnostic {
  int64_t line = 1;  // from 1, as the column, which counts bytes
  int64_t column = 1;
  std::string message;  // what is wrong, what was expected, what to do
  std::string shown;    // the line, and below it the mark
};

// All mistakes that were found in a text, in the order of their places. what() has them as
//
//     mine.coda:3:20: error: 'r' has no value; a tensor is read by tile(r), per_row(r), ...
//         store(out, acc * r)
//                          ^
//
// and ends without a line end. A line of it holds no unprintable character of the text.
class ProgramError : public Error {
 public:
  ProgramError(std::string_view file, std::vector<Diagnostic> mistakes);
  const std::vector<Diagnostic>& mistakes() const { return mistakes_; }

 private:
  std::vector<Diagnostic> mistakes_;
};

}  // namespace CODA_API coda
