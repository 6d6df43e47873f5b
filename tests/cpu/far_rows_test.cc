// SPDX-License-Identifier: Apache-2.0
// Programs on tensors whose rows lie so far apart that their last elements are beyond 2^31 and 2^32
// elements: the results have the bits of the same program on contiguous tensors. The memory between
// the rows is never touched, so it is not there.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <memory>
#include <random>

#include "coda/float16.h"
#include "cpu/cpu_backend.h"
#include "program/library_programs.h"

namespace coda {
namespace {

constexpr int64_t kFar = (int64_t{1} << 32) + 12345;  // elements from the first row to the last

// Memory of one tensor, zero where nothing was written.
class SparseTensor {
 public:
  SparseTensor(const TensorDecl& decl, const DimValues& sizes, bool far) {
    const PhysicalShape shape = physical_shape(decl, sizes);
    const bool has_gaps = far && decl.kind == TensorKind::dense && shape.rows > 1 && shape.cols > 1;
    const int64_t stride = has_gaps ? kFar / (shape.rows - 1) + shape.cols : shape.cols;
    bytes_ = static_cast<size_t>(shape.rows * stride * size_of(decl.dtype));
    memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!is_there()) return;
    madvise(memory_, bytes_, MADV_NOHUGEPAGE);
    view = {memory_, decl.dtype, shape.rows, shape.cols, stride};
  }
  SparseTensor(const SparseTensor&) = delete;
  SparseTensor& operator=(const SparseTensor&) = delete;
  ~SparseTensor() {
    if (is_there()) munmap(memory_, bytes_);
  }

  bool is_there() const { return memory_ != MAP_FAILED; }

  void fill(std::mt19937_64& random) {
    std::normal_distribution<float> normal(0, 0.3F);
    for (int64_t r = 0; r < view.rows; ++r) {
      for (int64_t c = 0; c < view.cols; ++c) {
        const int64_t i = r * view.row_stride + c;
        const float x = normal(random);
        if (view.dtype == DType::f32) static_cast<float*>(memory_)[i] = x;
        if (view.dtype == DType::bf16) static_cast<uint16_t*>(memory_)[i] = bf16_from_float(x);
      }
    }
  }

  std::vector<char> rows() const {
    const auto row_bytes = static_cast<size_t>(view.cols * size_of(view.dtype));
    std::vector<char> all;
    for (int64_t r = 0; r < view.rows; ++r) {
      const char* row =
          static_cast<const char*>(memory_) + r * view.row_stride * size_of(view.dtype);
      all.insert(all.end(), row, row + row_bytes);
    }
    return all;
  }

  TensorView view;

 private:
  void* memory_ = MAP_FAILED;
  size_t bytes_ = 0;
};

Program example(const std::string& name, DType storage) {
  Program program = tests::library_program(name);
  for (TensorDecl& t : program.tensors) {
    if (t.kind == TensorKind::dense && t.shape.is_tensor()) t.dtype = storage;
  }
  return program;
}

class FarRows : public testing::TestWithParam<DType> {};

TEST_P(FarRows, ProgramsHaveTheBitsOfContiguousTensors) {
  constexpr uint64_t kSeed = 1;  // of the inputs, the same for both
  const DimValues sizes{{"M", 70}, {"N", 50}, {"K", 36}};
  const auto backend = cpu::make_cpu_backend({.threads = 2});
  for (const char* name :
       {"residual_norm", "swiglu", "swiglu_joined", "swiglu_backward", "norm_backward_joined"}) {
    SCOPED_TRACE(name);
    const Program program = example(name, GetParam());
    const auto kernel = backend->prepare(program, sizes);
    std::vector<std::vector<char>> expected;
    for (const bool far : {false, true}) {
      std::mt19937_64 random(kSeed);
      std::vector<std::unique_ptr<SparseTensor>> tensors;
      std::vector<TensorView> views;
      for (const TensorDecl& decl : program.tensors) {
        tensors.push_back(std::make_unique<SparseTensor>(decl, sizes, far));
        if (!tensors.back()->is_there()) GTEST_SKIP() << "no address space for 16 GiB a tensor";
        tensors.back()->fill(random);
        views.push_back(tensors.back()->view);
      }
      kernel->run(views);
      for (size_t i = 0; i < tensors.size(); ++i) {
        if (!far) {
          expected.push_back(tensors[i]->rows());
        } else {
          EXPECT_EQ(tensors[i]->rows(), expected[i]) << program.tensors[i].name;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Storage, FarRows, testing::Values(DType::f32, DType::bf16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace coda
