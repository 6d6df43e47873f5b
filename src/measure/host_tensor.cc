// SPDX-License-Identifier: Apache-2.0
#include "measure/host_tensor.h"

#include "base/stored_element.h"

namespace coda::measure {

Tensor on_host(const TensorDecl& decl, const DimValues& sizes, const std::vector<double>& values) {
  const auto [rows, cols] = physical_shape(decl, sizes);
  Tensor tensor(decl.dtype, rows, cols);
  for (size_t i = 0; i < values.size(); ++i)
    write_element(decl.dtype, tensor.view().data, static_cast<int64_t>(i), values[i]);
  return tensor;
}

Array array_of(const TensorDecl& decl, const Tensor& tensor) {
  const Tensor host(tensor.dtype(), tensor.rows(), tensor.cols());
  tensor.copy_to(host.view());
  Array array{{tensor.rows(), tensor.cols()},
              std::vector<double>(static_cast<size_t>(host.size()))};
  for (size_t i = 0; i < array.values.size(); ++i)
    array.values[i] = read_element(host.dtype(), host.view().data, static_cast<int64_t>(i));
  if (decl.kind != TensorKind::dense) return array;
  if (decl.shape.is_scalar()) array.shape.clear();
  if (decl.shape.is_per_row()) array.shape = {tensor.rows()};
  if (decl.shape.is_per_column()) array.shape = {tensor.cols()};
  return array;
}

}  // namespace coda::measure
