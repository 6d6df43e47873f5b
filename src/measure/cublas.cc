// SPDX-License-Identifier: Apache-2.0
#include "measure/cublas.h"

#include <string>

#include "coda/error.h"
#include "gpu/jit/dynamic_library.h"
#include "gpu/launch/device_memory.h"

namespace coda::measure {
namespace {

using gpu::DeviceAddress;
using gpu::DriverHandle;
using Handle = void*;
using Descriptor = void*;
using MatrixLayout = void*;
using Preference = void*;

// Layouts and values fixed by cuBLASLt's ABI.
struct Algorithm {
  std::uint64_t data[8];
};
struct Heuristic {
  Algorithm algorithm;
  std::size_t workspace;
  int status;
  float waves;
  int reserved[4];
};
static_assert(sizeof(Heuristic) == 96);

constexpr int kCompute32F = 68;
constexpr int kReal32F = 0;
constexpr int kTransposeFirst = 3;
constexpr int kTransposeSecond = 4;
constexpr int kFastAccumulation = 25;
constexpr int kMaxWorkspace = 1;
constexpr int kAlgorithms = 16;
constexpr std::size_t kWorkspaceBytes = std::size_t{64} << 20;

struct CublasApi {
  int (*create)(Handle*);
  int (*descriptor_create)(Descriptor*, int, int);
  int (*descriptor_set)(Descriptor, int, const void*, std::size_t);
  int (*layout_create)(MatrixLayout*, int, std::uint64_t, std::uint64_t, std::int64_t);
  int (*preference_create)(Preference*);
  int (*preference_set)(Preference, int, const void*, std::size_t);
  int (*heuristic)(Handle, Descriptor, MatrixLayout, MatrixLayout, MatrixLayout, MatrixLayout,
                   Preference, int, Heuristic*, int*);
  int (*matmul)(Handle, Descriptor, const void*, DeviceAddress, MatrixLayout, DeviceAddress,
                MatrixLayout, const void*, DeviceAddress, MatrixLayout, DeviceAddress, MatrixLayout,
                const Algorithm*, DeviceAddress, std::size_t, DriverHandle);

  CublasApi() {
    const gpu::DynamicLibrary cublas(gpu::cublas_library());
    cublas.load(create, "cublasLtCreate");
    cublas.load(descriptor_create, "cublasLtMatmulDescCreate");
    cublas.load(descriptor_set, "cublasLtMatmulDescSetAttribute");
    cublas.load(layout_create, "cublasLtMatrixLayoutCreate");
    cublas.load(preference_create, "cublasLtMatmulPreferenceCreate");
    cublas.load(preference_set, "cublasLtMatmulPreferenceSetAttribute");
    cublas.load(heuristic, "cublasLtMatmulAlgoGetHeuristic");
    cublas.load(matmul, "cublasLtMatmul");
  }
};

const CublasApi& cublas_api() {
  static const CublasApi instance;
  return instance;
}

void check(int status, const char* what) {
  if (status != 0) {
    throw Error(std::string(what) + " failed with status " + std::to_string(status));
  }
}

int type_of(DType type) {
  switch (type) {
    case DType::f16: return 2;
    case DType::bf16: return 14;
    case DType::e4m3: return 28;
    case DType::e5m2: return 29;
    default: throw InternalError("a product that cuBLAS is not asked for");
  }
}

// cuBLAS is column-major: a row-major [rows, columns] matrix is its [columns, rows].
MatrixLayout layout_of(const TensorView& matrix) {
  MatrixLayout result = nullptr;
  check(
      cublas_api().layout_create(&result, type_of(matrix.dtype), static_cast<uint64_t>(matrix.cols),
                                 static_cast<uint64_t>(matrix.rows), matrix.row_stride),
      "cublasLtMatrixLayoutCreate");
  return result;
}

struct CublasSession {
  Handle handle = nullptr;
  DeviceAddress workspace = 0;

  CublasSession() {
    gpu::check_driver(gpu::driver().mem_alloc(&workspace, kWorkspaceBytes),
                      "allocating cuBLAS's workspace");
    check(cublas_api().create(&handle), "cublasLtCreate");
  }
};

}  // namespace

std::vector<std::function<void(unsigned set)>> cublas_algorithms(
    const std::vector<GemmOperands>& sets, device::OperandLayout layout, gpu::DriverHandle stream,
    bool fast_accumulation) {
  static const CublasSession session;
  const GemmOperands& first = sets.front();

  // In column-major terms the output's transpose is Bᵀ · Aᵀ, so B comes first.
  Descriptor operation = nullptr;
  check(cublas_api().descriptor_create(&operation, kCompute32F, kReal32F),
        "cublasLtMatmulDescCreate");
  using device::OperandLayout;
  const int transpose_b = layout == OperandLayout::tn || layout == OperandLayout::tt ? 1 : 0;
  const int transpose_a = layout == OperandLayout::nt || layout == OperandLayout::tt ? 1 : 0;
  check(cublas_api().descriptor_set(operation, kTransposeFirst, &transpose_b, sizeof transpose_b),
        "set");
  check(cublas_api().descriptor_set(operation, kTransposeSecond, &transpose_a, sizeof transpose_a),
        "set");
  const int8_t fast = fast_accumulation ? 1 : 0;
  check(cublas_api().descriptor_set(operation, kFastAccumulation, &fast, sizeof fast), "set");
  const MatrixLayout a = layout_of(first.a);
  const MatrixLayout b = layout_of(first.b);
  const MatrixLayout c = layout_of(first.out);

  Preference preference = nullptr;
  check(cublas_api().preference_create(&preference), "cublasLtMatmulPreferenceCreate");
  check(cublas_api().preference_set(preference, kMaxWorkspace, &kWorkspaceBytes,
                                    sizeof kWorkspaceBytes),
        "set");
  Heuristic found[kAlgorithms];
  int count = 0;
  check(cublas_api().heuristic(session.handle, operation, b, a, c, c, preference, kAlgorithms,
                               found, &count),
        "cublasLtMatmulAlgoGetHeuristic");

  std::vector<std::function<void(unsigned)>> algorithms;
  for (int i = 0; i < count; ++i) {
    const Heuristic choice = found[i];
    algorithms.push_back([&sets, operation, a, b, c, choice, stream](unsigned index) {
      const GemmOperands& one = sets[index % sets.size()];
      const float alpha = 1;
      const float beta = 0;
      const DeviceAddress out = gpu::address_of(one.out.data);
      check(cublas_api().matmul(session.handle, operation, &alpha, gpu::address_of(one.b.data), b,
                                gpu::address_of(one.a.data), a, &beta, out, c, out, c,
                                &choice.algorithm, session.workspace, kWorkspaceBytes, stream),
            "cublasLtMatmul");
    });
  }
  require(!algorithms.empty(), "cuBLAS has no algorithm for " + std::to_string(first.out.rows) +
                                   " x " + std::to_string(first.out.cols));
  return algorithms;
}

}  // namespace coda::measure
