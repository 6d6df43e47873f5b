// SPDX-License-Identifier: Apache-2.0
// Prepares each copy program once and runs all of them in make().
#include "runtime/parameter_copies.h"

#include <utility>

#include "program/step_table.h"

namespace coda {

std::vector<std::string> stored_by(const std::vector<ParameterCopy>& copies) {
  std::vector<std::string> names;
  for (const auto& [parameter, program] : copies) {
    for (const Step& s : program.steps) {
      if (program::is_effect(s) && !program::is_maximum(s))
        names.push_back(program.tensors[static_cast<size_t>(s.tensor())].name);
    }
  }
  return names;
}

ParameterCopies::ParameterCopies(Backend& backend, std::vector<ParameterCopy> copies,
                                 Session& session)
    : session_(session) {
  for (const std::string& name : stored_by(copies)) {
    const TensorDecl& decl = session.plan().tensor(name).decl;
    const PhysicalShape shape = physical_shape(decl, session.sizes());
    session.bind(name, Tensor(decl.dtype, shape.rows, shape.cols, backend));
  }
  std::vector<AnnouncedProgram> announced;
  for (const ParameterCopy& copy : copies) announced.push_back({&copy.program, session.sizes()});
  backend.announce(announced, {});
  for (ParameterCopy& copy : copies) {
    std::unique_ptr<Kernel> kernel = backend.prepare(copy.program, session.sizes());
    programs_.push_back({std::move(copy.program), std::move(kernel)});
  }
}

void ParameterCopies::make() {
  for (const Prepared& one : programs_) {
    std::vector<TensorView> tensors;
    for (const TensorDecl& decl : one.program.tensors) tensors.push_back(session_.view(decl.name));
    one.kernel->run(tensors);
  }
}

}  // namespace coda
