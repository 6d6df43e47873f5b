// SPDX-License-Identifier: Apache-2.0
// Errors in program text, reported as a compiler does: each mistake with its position, the source
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
  int64_t line = 1;  // starts at 1; columns count bytes and start at 1
  int64_t column = 1;
  std::string message;  // what is wrong, what was expected, what to do
  std::string shown;    // the source line, with a mark below it
};

// All mistakes of a text, in the order of their positions. what() has the form
//
//     mine.coda:3:20: error: 'r' has no value; a tensor is read by tile(r), per_row(r), ...
//         store(out, acc * r)
//                          ^
//
// It has no final newline. Unprintable characters of the text are escaped.
class ProgramError : public Error {
 public:
  ProgramError(std::string_view file, std::vector<Diagnostic> mistakes);
  const std::vector<Diagnostic>& mistakes() const { return mistakes_; }

 private:
  std::vector<Diagnostic> mistakes_;
};

}  // namespace CODA_API coda
