// SPDX-License-Identifier: Apache-2.0
// The copies of parameters that a plan has as inputs (CompileOptions::copies_are_given): their
// memory, and the programs that make them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "coda/backend.h"
#include "coda/compile.h"
#include "coda/session.h"

namespace coda {

class ParameterCopies {
 public:
  // Binds memory for what the programs store to the session. Both it and the backend must outlive
  // this.
  ParameterCopies(Backend& backend, std::vector<ParameterCopy> copies, Session& session);

  // Of all parameters as they are now.
  void make();

 private:
  struct Prepared {
    Program program;
    std::unique_ptr<Kernel> kernel;
  };
  Session& session_;
  std::vector<Prepared> programs_;
};

// What programs of these copies store, by name.
std::vector<std::string> stored_by(const std::vector<ParameterCopy>& copies);

}  // namespace coda
