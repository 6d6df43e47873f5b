// SPDX-License-Identifier: Apache-2.0
#include "bench/hopper_table/cublas.h"

#include <memory>
#include <stdexcept>
#include <string>

#include "hopper/dynamic_library.h"

namespace coda::hopper_table {
namespace {

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
constexpr int kReal16F = 2;
constexpr int kReal16BF = 14;
constexpr int kTransposeFirst = 3;
constexpr int kTransposeSecond = 4;
constexpr int kMaxWorkspace = 1;
constexpr int kAlgorithms = 16;
constexpr std::size_t kWorkspaceBytes = std::size_t{64} << 20;

struct Api {
  int (*create)(Handle*);
  int (*descriptor_create)(Descriptor*, int, int);
  int (*descriptor_set)(Descriptor, int, const void*, std::size_t);
  int (*layout_create)(MatrixLayout*, int, std::uint64_t, std::uint64_t, std::int64_t);
  int (*preference_create)(Preference*);
  int (*preference_set)(Preference, int, const void*, std::size_t);
  int (*heuristic)(Handle, Descriptor, MatrixLayout, MatrixLayout, MatrixLayout, MatrixLayout,
                   Preference, int, Heuristic*, int*);
  int (*matmul)(Handle, Descriptor, const void*, DevicePointer, MatrixLayout, DevicePointer,
                MatrixLayout, const void*, DevicePointer, MatrixLayout, DevicePointer, MatrixLayout,
                const Algorithm*, DevicePointer, std::size_t, Stream);

  Api() {
    const hopper::DynamicLibrary cublas(hopper::cublas_library());
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

const Api& api() {
  static const Api instance;
  return instance;
}

void check(int status, const char* what) {
  if (status != 0) {
    throw std::runtime_error(std::string(what) + " failed: " + std::to_string(status));
  }
}

// cuBLAS is column-major: a row-major [rows, columns] matrix is its [columns, rows].
MatrixLayout layout(const Matrix& matrix, int type) {
  MatrixLayout result = nullptr;
  check(api().layout_create(&result, type, matrix.columns, matrix.rows, matrix.pitch),
        "cublasLtMatrixLayoutCreate");
  return result;
}

struct Session {
  Handle handle = nullptr;
  DevicePointer workspace = 0;

  explicit Session(const Device& device) : workspace(device.allocate(kWorkspaceBytes)) {
    check(api().create(&handle), "cublasLtCreate");
  }
};

}  // namespace

std::vector<std::function<void(unsigned set)>> cublas_algorithms(const Device& device,
                                                                 const Problem& problem) {
  static const Session session(device);
  const Shape& shape = problem.shape();
  const TensorSet& set = problem.sets().front();
  const int type = shape.fp16 ? kReal16F : kReal16BF;

  // In column-major terms the output's transpose is Bᵀ · Aᵀ, so B comes first.
  Descriptor operation = nullptr;
  check(api().descriptor_create(&operation, kCompute32F, kReal32F), "cublasLtMatmulDescCreate");
  const int transpose_b = shape.layout == device::Layout::tn ? 1 : 0;
  const int transpose_a = shape.layout == device::Layout::nt ? 1 : 0;
  check(api().descriptor_set(operation, kTransposeFirst, &transpose_b, sizeof transpose_b), "set");
  check(api().descriptor_set(operation, kTransposeSecond, &transpose_a, sizeof transpose_a), "set");
  const MatrixLayout a = layout(set.a, type);
  const MatrixLayout b = layout(set.b, type);
  const MatrixLayout c = layout(set.stores.front(), type);

  Preference preference = nullptr;
  check(api().preference_create(&preference), "cublasLtMatmulPreferenceCreate");
  check(api().preference_set(preference, kMaxWorkspace, &kWorkspaceBytes, sizeof kWorkspaceBytes),
        "set");
  Heuristic found[kAlgorithms];
  int count = 0;
  check(api().heuristic(session.handle, operation, b, a, c, c, preference, kAlgorithms, found,
                        &count),
        "cublasLtMatmulAlgoGetHeuristic");

  std::vector<std::function<void(unsigned)>> algorithms;
  for (int i = 0; i < count; ++i) {
    const Heuristic choice = found[i];
    algorithms.push_back([&device, &problem, operation, a, b, c, choice](unsigned index) {
      const TensorSet& one = problem.sets()[index % problem.sets().size()];
      const float alpha = 1;
      const float beta = 0;
      const DevicePointer out = one.stores.front().data;
      check(api().matmul(session.handle, operation, &alpha, one.b.data, b, one.a.data, a, &beta,
                         out, c, out, c, &choice.algorithm, session.workspace, kWorkspaceBytes,
                         device.stream()),
            "cublasLtMatmul");
    });
  }
  if (algorithms.empty()) throw std::runtime_error("cuBLAS has no algorithm for " + shape.name());
  return algorithms;
}

}  // namespace coda::hopper_table
