// SPDX-License-Identifier: Apache-2.0
// A program's kernel passes its inputs to the evaluator and stores the results.
#include "runtime/reference_backend.h"

#include <utility>
#include <vector>

#include "coda/plan.h"
#include "program/evaluate.h"
#include "runtime/operation_call.h"
#include "runtime/values.h"

namespace coda {
namespace {

class ProgramKernel : public Kernel {
 public:
  ProgramKernel(const Program& program, DimValues sizes)
      : program_(program), sizes_(std::move(sizes)), uses_(step_tensors({"", {}, program, {}})) {}

  void run(std::span<const TensorView> tensors) override {
    program::TensorValues inputs;
    for (size_t i = 0; i < uses_.size(); ++i)
      if (uses_[i].read) inputs[uses_[i].name] = read_values(tensors[i]);
    const program::TensorValues outputs =
        program::evaluate(program_, sizes_, inputs, {.round_stored = true});
    for (size_t i = 0; i < uses_.size(); ++i)
      if (uses_[i].written) write_values(outputs.at(uses_[i].name), tensors[i]);
  }

 private:
  Program program_;
  DimValues sizes_;
  std::vector<StepTensor> uses_;
};

}  // namespace

std::unique_ptr<Kernel> ReferenceBackend::prepare(const Program& program, const DimValues& sizes) {
  verify(program);
  return std::make_unique<ProgramKernel>(program, sizes);
}

std::unique_ptr<Kernel> ReferenceBackend::prepare(const OpaqueCall& call,
                                                  std::span<const TensorDecl> tensors,
                                                  const DimValues& sizes) {
  return prepare_reference_call(call, tensors, sizes);
}

}  // namespace coda
