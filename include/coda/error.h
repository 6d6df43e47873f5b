// SPDX-License-Identifier: Apache-2.0
// The two families of errors. Error is a user's mistake: one clear line with the op, the shapes and
// what to do. InternalError is a bug of the library: a violated invariant between passes or
// backends.
#pragma once

#include <stdexcept>
#include <string>

#include "coda/api.h"

namespace CODA_API coda {

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message) : std::runtime_error(message) {}
};

// Memory that is not available. The message says what was requested, how much, and which settings
// need less.
class MemoryError : public Error {
 public:
  using Error::Error;
};

class InternalError : public std::logic_error {
 public:
  explicit InternalError(const std::string& message)
      : std::logic_error("internal error: " + message) {}
};

// Throws Error(message) unless `condition` holds: for the caller's mistakes.
inline void require(bool condition, const std::string& message) {
  if (!condition) throw Error(message);
}
inline void require(bool condition, const char* message) {  // no std::string in the normal case
  if (!condition) throw Error(message);
}

// Throws InternalError(message) unless `condition` holds: for invariants between the library's own
// parts.
inline void invariant(bool condition, const char* message) {
  if (!condition) throw InternalError(message);
}

}  // namespace CODA_API coda
