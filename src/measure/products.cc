// SPDX-License-Identifier: Apache-2.0
#include "measure/products.h"
#include "program/step_table.h"

namespace coda::measure {
namespace {

device::OperandLayout layout_of(const GemmSegment& segment) {
  using device::OperandLayout;
  return segment.transpose_a ? (segment.transpose_b ? OperandLayout::tt : OperandLayout::nt)
                             : (segment.transpose_b ? OperandLayout::tn : OperandLayout::nn);
}

std::vector<int> operands(const Step& gemm, int GemmSegment::* which) {
  std::vector<int> tensors;
  for (const GemmSegment& segment : gemm.segments()) tensors.push_back(segment.*which);
  return tensors;
}

}  // namespace

std::string ProductShape::text() const {
  static constexpr const char* kLayouts[] = {"tn", "nn", "nt", "tt"};
  static_assert(static_cast<int>(device::OperandLayout::tn) == 0 &&
                static_cast<int>(device::OperandLayout::tt) == 3);
  return std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k) + " " +
         kLayouts[static_cast<int>(layout)] + " " + std::string(name_of(type)) +
         (type_b == type ? "" : " " + std::string(name_of(type_b)));
}

std::vector<ProductShape> products_of(const Program& program, const DimValues& sizes) {
  struct Product {
    const Step* gemm;
    ProductShape shape;
  };
  std::vector<Product> products;
  for (const Step& step : program.steps) {
    if (!program::is_product(step)) continue;
    ProductShape shape{.m = step.shape.rows.evaluate(sizes),
                       .n = step.shape.cols.evaluate(sizes),
                       .k = 0,
                       .layout = layout_of(step.segments().front()),
                       .type = program.tensors[step.segments().front().a].dtype,
                       .type_b = program.tensors[step.segments().front().b].dtype};
    for (const GemmSegment& segment : step.segments()) {
      const Shape& a = program.tensors[segment.a].shape;
      shape.k += (segment.transpose_a ? a.rows : a.cols).evaluate(sizes);
    }
    bool joined = false;
    for (Product& other : products) {
      if (other.shape.layout != shape.layout) continue;
      if (operands(*other.gemm, &GemmSegment::a) == operands(step, &GemmSegment::a)) {
        other.shape.n += shape.n;
        joined = true;
      } else if (operands(*other.gemm, &GemmSegment::b) == operands(step, &GemmSegment::b)) {
        other.shape.m += shape.m;
        joined = true;
      }
      if (joined) break;
    }
    if (!joined) products.push_back({&step, shape});
  }
  std::vector<ProductShape> shapes;
  for (const Product& product : products) shapes.push_back(product.shape);
  return shapes;
}

double moved_bytes(const Program& program, const DimValues& sizes) {
  double bytes = 0;
  for (const TensorDecl& decl : program.tensors) {
    const PhysicalShape shape = physical_shape(decl, sizes);
    bytes += static_cast<double>(shape.rows * shape.cols * size_of(decl.dtype));
  }
  return bytes;
}

}  // namespace coda::measure
