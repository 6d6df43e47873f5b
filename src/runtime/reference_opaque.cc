// SPDX-License-Identifier: Apache-2.0
// The compiler's table of opaque functions has their definitions; here they meet memory.
#include "runtime/reference_opaque.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "coda/error.h"
#include "ir/opaque.h"
#include "runtime/values.h"

namespace coda {
namespace {

class OpaqueKernel : public Kernel {
 public:
  OpaqueKernel(OpaqueCall call, const DimValues& sizes)
      : call_(std::move(call)), info_(opaque_info(call_.function)) {
    for (const auto& [name, size] : call_.sizes) sizes_[name] = size.evaluate(sizes);
  }

  void run(std::span<const TensorView> tensors) override {
    std::vector<Matrix> inputs, shapes;
    for (const TensorView& view : tensors.first(call_.inputs.size()))
      inputs.push_back({view.rows, view.cols, read_values(view)});
    const std::span<const TensorView> outputs = tensors.subspan(call_.inputs.size());
    for (const TensorView& view : outputs)
      shapes.push_back({view.rows, view.cols, std::vector<double>(view.size())});
    const std::vector<Matrix> results = info_.evaluate(call_.attributes, sizes_, inputs, shapes);
    for (size_t i = 0; i < outputs.size(); ++i) write_values(results[i].data, outputs[i]);
  }

 private:
  OpaqueCall call_;
  const OpaqueInfo& info_;
  std::map<std::string, int64_t> sizes_;
};

}  // namespace

std::unique_ptr<Kernel> prepare_reference_opaque(const OpaqueCall& call,
                                                 std::span<const TensorDecl> tensors,
                                                 const DimValues& sizes) {
  require(tensors.size() == call.inputs.size() + call.outputs.size(),
          call.function + ": " + std::to_string(tensors.size()) + " tensors are declared for " +
              std::to_string(call.inputs.size()) + " inputs and " +
              std::to_string(call.outputs.size()) + " outputs");
  return std::make_unique<OpaqueKernel>(call, sizes);
}

}  // namespace coda
