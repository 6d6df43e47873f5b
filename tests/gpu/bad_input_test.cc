// SPDX-License-Identifier: Apache-2.0
// Whatever a caller or a machine may get wrong is one clear Error with what was being done, the
// program's name and a remedy, and the process goes on where the driver allows it. On a driver
// without a GPU. (On a GPU: tests/on_gpu/bad_input_test.cc.)
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>

#include "coda/error.h"
#include "coda/program_builder.h"
#include "coda/session.h"
#include "gpu/fake_cuda.h"
#include "gpu/gpu_backend.h"
#include "gpu/nvrtc.h"
#include "io/temp_folder.h"

namespace coda::gpu {
namespace {

using ::testing::AllOf;
using ::testing::ExitedWithCode;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kFewRows = 16;
constexpr int64_t kColumns = 64;

Program twice() {
  ProgramBuilder p("twice");
  p.store("y:bf16", p.load_tile("x[M, N]:bf16") * 2.0);
  return p.build();
}

DimValues sizes() { return {{"M", kFewRows}, {"N", kColumns}}; }

// y = 4 x, with a temporary between.
Plan plan_of_two() {
  Plan plan;
  Program first = twice();
  Program second = twice();
  first.tensors[1].name = second.tensors[0].name = "t";
  plan.tensors = {{.decl = first.tensors[0], .role = TensorRole::input},
                  {.decl = first.tensors[1], .role = TensorRole::temporary},
                  {.decl = second.tensors[1], .role = TensorRole::output}};
  plan.forward.push_back({.name = "1", .role = StepRole::tile, .work = first, .reasons = {}});
  plan.forward.push_back({.name = "2", .role = StepRole::tile, .work = second, .reasons = {}});
  return plan;
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

class BadInput : public ::testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // a new process: nothing is open in it
    setenv("CODA_CUDA_DRIVER", CODA_FAKE_CUDA, 1);
    void* const library = dlopen(CODA_FAKE_CUDA, RTLD_NOW);
    ASSERT_NE(library, nullptr) << dlerror();
    fake_ = reinterpret_cast<FakeCuda* (*)()>(dlsym(library, "fake_cuda_state"))();
    *fake_ = FakeCuda();
  }
  void TearDown() override {
    if (fake_ != nullptr) *fake_ = FakeCuda();
  }

  GpuOptions options() const {
    GpuOptions result;
    result.cache.folder = folder_.path();
    result.cache.notice = [this](const std::string& text) { notices_.push_back(text); };
    return result;
  }
  DeviceTensor tensor() const { return {DType::bf16, kFewRows, kColumns, Stream::of(nullptr)}; }

  TempFolder folder_;
  mutable std::vector<std::string> notices_;
  FakeCuda* fake_ = nullptr;
};

// Writes the error to stderr, where a death test looks.
void exit_with_message(const std::function<void()>& call) {
  std::fprintf(stderr, "%s\n", message_of(call).c_str());
  std::exit(0);
}

TEST_F(BadInput, TensorsThatDoNotFitAreRefusedAndAProgramGoesOn) {
  if (!find_nvrtc()) GTEST_SKIP() << "no NVRTC";
  const auto backend = make_gpu_backend(options());
  const auto kernel = backend->prepare(twice(), sizes());
  const DeviceTensor x = tensor();
  const DeviceTensor y = tensor();
  const auto run_with = [&](const TensorView& view) {
    return message_of([&] { kernel->run(std::vector<TensorView>{view, y.view()}); });
  };
  TensorView small = x.view();
  small.rows = kFewRows - 1;
  EXPECT_THAT(run_with(small),
              HasSubstr("program 'twice': tensor 'x' is bf16 [16, 64], but bf16 [15, 64]"));
  TensorView other_type = x.view();
  other_type.dtype = DType::f16;
  EXPECT_THAT(run_with(other_type), HasSubstr("but f16 [16, 64] was given"));
  TensorView overlapping_rows = x.view();
  overlapping_rows.row_stride = kColumns - 1;
  EXPECT_THAT(run_with(overlapping_rows), HasSubstr("63 elements apart, and would overlap"));
  TensorView odd = x.view();
  odd.data = static_cast<std::byte*>(odd.data) + 1;
  EXPECT_THAT(run_with(odd), HasSubstr("starts 1 bytes behind a multiple of an element's 2"));
  TensorView nowhere = x.view();
  nowhere.data = nullptr;
  EXPECT_THAT(run_with(nowhere), HasSubstr("the memory given is null"));
  std::vector<uint16_t> host(kFewRows * kColumns);
  EXPECT_THAT(run_with(dense_view(host.data(), DType::bf16, kFewRows, kColumns)),
              AllOf(HasSubstr("program 'twice': tensor 'x' is bf16 [16, 64], but its memory is not "
                              "the GPU's. Remedy: give a tensor in the GPU's memory")));
  const DeviceTensor short_one(DType::bf16, kFewRows - 1, kColumns, Stream::of(nullptr));
  EXPECT_THAT(run_with(dense_view(short_one.view().data, DType::bf16, kFewRows, kColumns)),
              HasSubstr("its memory ends 128 bytes before the tensor does. Remedy: allocate 2048 "
                        "bytes"));
  EXPECT_THAT(fake_->launches, IsEmpty());
  EXPECT_EQ(run_with(x.view()), "no error");
  EXPECT_THAT(fake_->launches, SizeIs(1));
}

TEST_F(BadInput, IndicesLieSideBySide) {
  if (!find_nvrtc()) GTEST_SKIP() << "no NVRTC";
  const std::vector<TensorDecl> decls{{.name = "table", .shape = {7, 24}},
                                      {.name = "ids", .shape = {"M", 1}, .dtype = DType::i32},
                                      {.name = "out", .shape = {"M", 24}}};
  const auto backend = make_gpu_backend(options());
  const auto kernel = backend->prepare(OpaqueCall{"embedding", {}, {}, {"table", "ids"}, {"out"}},
                                       decls, {{"M", kFewRows}});
  const Stream stream = Stream::of(nullptr);
  const DeviceTensor table(DType::f32, 7, 24, stream);
  const DeviceTensor ids(DType::i32, kFewRows, 2, stream);
  const DeviceTensor out(DType::f32, kFewRows, 24, stream);
  TensorView every_other = ids.view();
  every_other.cols = 1;
  EXPECT_THAT(message_of([&] {
                kernel->run(std::vector<TensorView>{table.view(), every_other, out.view()});
              }),
              HasSubstr("embedding: 'ids' lie 2 apart; they must lie side by side"));
  TensorView dense = every_other;
  dense.row_stride = 1;
  kernel->run(std::vector<TensorView>{table.view(), dense, out.view()});
  EXPECT_THAT(fake_->launches, SizeIs(1));
}

TEST_F(BadInput, SizesMustBePositiveAndKnown) {
  const auto backend = make_gpu_backend(options());
  EXPECT_THAT(message_of([&] { backend->prepare(twice(), {{"M", 0}, {"N", 64}}); }),
              HasSubstr("program 'twice': tensor 'x': size M is 0 with M = 0; sizes must be "
                        "positive"));
  EXPECT_THAT(message_of([&] { backend->prepare(twice(), {{"M", 8}}); }),
              HasSubstr("dimension symbol 'N' has no value"));
  EXPECT_THAT(message_of([&] { Session(plan_of_two(), *backend, {{"M", 0}, {"N", 64}}); }),
              HasSubstr("tensor 'x': size M is 0"));
  EXPECT_THAT(message_of([] { DeviceTensor(DType::bf16, 0, 64, Stream::of(nullptr)); }),
              HasSubstr("both must be positive"));
  EXPECT_THAT(fake_->launches, IsEmpty());
}

TEST_F(BadInput, AnOutputMustNotOverlapAnInput) {
  if (!find_nvrtc()) GTEST_SKIP() << "no NVRTC";
  const auto backend = make_gpu_backend(options());
  Session session(plan_of_two(), *backend, sizes());
  const DeviceTensor x = tensor();
  const DeviceTensor y = tensor();
  session.bind("x", x.view());
  session.bind("y", x.view());
  EXPECT_THAT(message_of([&] { session.forward(); }),
              AllOf(HasSubstr("tensor 'y' is written, but its memory overlaps that of tensor 'x'"),
                    HasSubstr("Remedy")));
  EXPECT_THAT(fake_->launches, IsEmpty());
  session.bind("y", y.view());
  session.forward();
  EXPECT_THAT(fake_->launches, SizeIs(2));
}

TEST_F(BadInput, ExhaustedMemoryLeavesNothingBehindAndTheProcessGoesOn) {
  if (!find_nvrtc()) GTEST_SKIP() << "no NVRTC";
  {
    const auto backend = make_gpu_backend(options());
    fake_->fails["cuMemAllocAsync"] = 2;
    EXPECT_THAT(message_of([&] { Session(plan_of_two(), *backend, sizes()); }),
                AllOf(HasSubstr("allocating 2048 bytes for a plan's own tensors"),
                      HasSubstr("has 1000 of 2000 bytes free"), HasSubstr("Remedy: free memory")));
    fake_->fails.clear();
    EXPECT_EQ(message_of([&] { Session(plan_of_two(), *backend, sizes()); }), "no error");
  }
  EXPECT_THAT(fake_->allocated, IsEmpty());
}

TEST_F(BadInput, ADamagedEntryOfTheCacheIsCompiledAnewWithANotice) {
  if (!find_nvrtc()) GTEST_SKIP() << "no NVRTC";
  make_gpu_backend(options())->prepare(twice(), sizes());
  EXPECT_THAT(notices_, IsEmpty());
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path())) {
    if (!entry.is_regular_file() || entry.file_size() < 100) continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(90);
    file.put('\x55');
    file.put('\xaa');
  }
  const auto backend = make_gpu_backend(options());
  const auto kernel = backend->prepare(twice(), sizes());
  ASSERT_THAT(notices_, SizeIs(1));
  const DeviceTensor x = tensor();
  const DeviceTensor y = tensor();
  kernel->run(std::vector<TensorView>{x.view(), y.view()});
  EXPECT_THAT(fake_->launches, SizeIs(1));
}

// A kernel failed; every call that reaches the GPU says so, with the remedy, and what is freed
// afterwards does not end the process.
TEST_F(BadInput, APoisonedContextIsSaidToBeSoByEveryCall) {
  if (!find_nvrtc()) GTEST_SKIP() << "no NVRTC";
  const auto backend = make_gpu_backend(options());
  const Stream stream = Stream::make();
  backend->use_stream(stream);
  {
    Session session(plan_of_two(), *backend, sizes());
    DeviceTensor x = tensor();
    const DeviceTensor y = tensor();
    session.bind("x", x.view());
    session.bind("y", y.view());
    session.forward();
    for (const char* function :
         {"cuLaunchKernelEx", "cuMemAllocAsync", "cuMemAlloc_v2", "cuMemFreeAsync", "cuMemFree_v2",
          "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemsetD8Async", "cuStreamSynchronize",
          "cuStreamCreate", "cuStreamDestroy_v2", "cuModuleLoadData", "cuModuleUnload"})
      fake_->fails[function] = 700;
    const auto remedy = HasSubstr("start the process anew; compute-sanitizer finds the kernel");
    std::vector<std::byte> host(kFewRows * kColumns * 2);
    const TensorView on_host = dense_view(host.data(), DType::bf16, kFewRows, kColumns);
    EXPECT_THAT(message_of([&] { session.forward(); }),
                AllOf(HasSubstr("running program twice"), remedy));
    EXPECT_THAT(message_of([&] { stream.synchronize(); }),
                AllOf(HasSubstr("waiting for a stream"), remedy));
    EXPECT_THAT(message_of([&] { tensor(); }), AllOf(HasSubstr("allocating"), remedy));
    EXPECT_THAT(message_of([&] { x.upload(on_host, stream); }),
                AllOf(HasSubstr("copying a tensor to the GPU, bf16 [16, 64]"), remedy));
    EXPECT_THAT(message_of([&] { y.download(on_host, stream); }),
                AllOf(HasSubstr("copying a tensor from the GPU"), remedy));
    EXPECT_THAT(message_of([&] { x.fill_bytes(0, stream); }), remedy);
    EXPECT_THAT(message_of([] { Stream::make(); }), remedy);
  }
  fake_->fails["cuCtxPushCurrent_v2"] = 201;
  EXPECT_THAT(message_of([&] { stream.synchronize(); }), HasSubstr("make the backend anew"));
}

// What a process finds when it starts.
using MissingParts = BadInput;

TEST_F(MissingParts, NoDriver) {
  setenv("CODA_CUDA_DRIVER", "/nowhere/libcuda.so.1", 1);
  EXPECT_EXIT(exit_with_message([] { make_gpu_backend(); }), ExitedWithCode(0),
              "cannot find the CUDA driver .*looked in CODA_CUDA_DRIVER=/nowhere.*Remedy: install");
  EXPECT_EXIT(
      {
        std::fprintf(stderr, "%s\n", why_no_gpu().c_str());
        std::exit(0);
      },
      ExitedWithCode(0), "cannot find the CUDA driver");
}

TEST_F(MissingParts, ADriverThatDoesNotStart) {
  // The driver starts once in a process: in the one that ends.
  const auto start_failing = [this](int result, const std::function<void()>& call) {
    fake_->fails["cuInit"] = result;
    exit_with_message(call);
  };
  EXPECT_EXIT(start_failing(100, [] { make_gpu_backend(); }), ExitedWithCode(0),
              "starting the CUDA driver: .*100.*Remedy: there is no GPU that this process may use");
  EXPECT_EXIT(start_failing(803, [] { Stream::make(); }), ExitedWithCode(0),
              "starting the CUDA driver: .*803.*Remedy: the driver's kernel module");
}

TEST_F(MissingParts, ADriverThatIsTooOld) {
  const auto start_old = [this](const std::function<void()>& call) {
    fake_->version = 11080;
    exit_with_message(call);
  };
  const char* said =
      "the CUDA driver at .* is too old: it runs CUDA 11.8, and 12.0 is the oldest "
      "that works. Remedy: update NVIDIA's driver";
  EXPECT_EXIT(start_old([] { make_gpu_backend(); }), ExitedWithCode(0), said);
  EXPECT_EXIT(start_old([] { Stream::make(); }), ExitedWithCode(0), said);
}

// Programs are named: what is missing shows when the first is compiled.
TEST_F(MissingParts, NoCompilerAndATooOldOne) {
  const auto prepare = [this] { make_gpu_backend(options())->prepare(twice(), sizes()); };
  const char* given = std::getenv("CODA_NVRTC");
  const std::string before = given == nullptr ? "" : given;
  setenv("CODA_NVRTC", "/nowhere", 1);
  EXPECT_EXIT(exit_with_message(prepare), ExitedWithCode(0),
              "compiling program 'twice': cannot find NVRTC.*CODA_NVRTC=/nowhere.*Remedy: install");
  setenv("CODA_NVRTC", CODA_FAKE_CUDA, 1);
  EXPECT_EXIT(exit_with_message(prepare), ExitedWithCode(0),
              "compiling program 'twice': NVRTC at .* has version 11.8; 12.4 is the oldest that "
              "works. Remedy");
  given == nullptr ? unsetenv("CODA_NVRTC") : setenv("CODA_NVRTC", before.c_str(), 1);
}

}  // namespace
}  // namespace coda::gpu
