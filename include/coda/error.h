// SPDX-License-Identifier: Apache-2.0
// The two families of errors: Error is the user's mistake (one clear line: the op, the shapes, what
// to do) and InternalError is ours (an invariant that a pass or a backend promised does not hold).
#pragma once

#include <stdexcept>
#include <string>

#include "coda/api.h"

namespace CODA_API coda {

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message) : std::runtime_error(message) {}
};

// Memory that is not there: what was asked for, how much, and what takes less.
class MemoryError : public Error {
 public:
  using Error::Error;
};

class InternalError : public std::logic_error {
 public:
  explicit InternalError(const std::string& message)
      : std::logic_error("internal error: " + message) {}
};

// Throws Error(message) unless `condition` holds: for what a caller may get wrong.
inline void require(bool condition, const std::string& message) {
  if (!condition) throw Error(message);
}
inline void require(bool condition, const char* message) {  // no text is made while all is well
  if (!condition) throw Error(message);
}

// Throws InternalError(message) unless `condition` holds: for invariants between our own passes.
inline void invariant(bool condition, const char* message) {
  if (!condition) throw InternalError(message);
}

}  // namespace CODA_API coda
