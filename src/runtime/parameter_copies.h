// SPDX-License-Identifier: Apache-2.0
// The copies of parameters that are inputs of a plan (CompileOptions::copies_are_given): their
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
  // Allocates the programs' results and binds them to the session. The session and the backend must
  // outlive this object.
  ParameterCopies(Backend& backend, std::vector<ParameterCopy> copies, Session& session);

  // Remakes all copies from the current parameters.
  void make();

 private:
  struct Prepared {
    Program program;
    std::unique_ptr<Kernel> kernel;
  };
  Session& session_;
  std::vector<Prepared> programs_;
};

// The names of what the programs of these copies store.
std::vector<std::string> stored_by(const std::vector<ParameterCopy>& copies);

}  // namespace coda
