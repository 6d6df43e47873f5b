// SPDX-License-Identifier: Apache-2.0
// From launches to the driver's calls, on a driver without a GPU: arguments are packed as
// device/arguments.cuh says and made once for each set of places; what the copy engine cannot
// address is copied; whatever fails is said with the program's name and a remedy.
#include "gpu/gpu_backend.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <numeric>

#include "coda/error.h"
#include "coda/gpu_card.h"
#include "coda/program_builder.h"
#include "coda/session.h"
#include "device/arguments.cuh"
#include "gpu/fake_cuda.h"
#include "gpu/launch/driver_api.h"
#include "gpu/nvrtc.h"
#include "io/temp_folder.h"

namespace coda::gpu {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// The kernel of a program reads its first tensor by a descriptor and writes its last one by
// another.
using Arguments = device::KernelArguments<2, 2, 3>;

Program program_of(const std::string& name = "twice") {
  ProgramBuilder p(name);
  p.store("y:bf16", p.load_tile("x[M, N]:bf16") * 2.0);
  return p.build();
}

class GpuBackendTest : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("CODA_CUDA_DRIVER", CODA_FAKE_CUDA, 1);
    void* const library = dlopen(CODA_FAKE_CUDA, RTLD_NOW);
    ASSERT_NE(library, nullptr) << dlerror();
    fake_ = reinterpret_cast<FakeCuda* (*)()>(dlsym(library, "fake_cuda_state"))();
    *fake_ = FakeCuda();
    fake_->argument_bytes = sizeof(Arguments);
  }
  void TearDown() override {
    if (fake_ != nullptr) *fake_ = FakeCuda();
  }

  GpuOptions options() {
    GpuOptions result;
    result.cache.folder = folder_.path();
    result.lowering = [this](const Program& program, const DimValues& sizes,
                             const LowerOptions& options) {
      const std::lock_guard lock(mutex_);
      lowered_.push_back(options.row_strides);
      EXPECT_EQ(options.multiprocessors, 114U);
      const int64_t m = sizes.at("M");
      const int64_t n = sizes.at("N");
      KernelLaunch launch;
      launch.function = "kernel_of_" + program.name;
      launch.source = "extern \"C\" __global__ void kernel_of_" + program.name + "() {}";
      launch.maps = {{.tensor = 0, .rows = m, .columns = n, .box_rows = 64, .box_columns = 64},
                     {.tensor = 1,
                      .column_offset = n / 2,
                      .rows = m,
                      .columns = n / 2,
                      .box_rows = 32,
                      .box_columns = 32}};
      launch.pointers = {1, 0};
      launch.numbers = {7, 8, 9};
      launch.grid = 24;
      launch.cluster = 2;
      launch.threads = 384;
      launch.shared_bytes = 200000;
      launch.waits_for_predecessor = program.name == "follower";
      return std::vector<KernelLaunch>{launch};
    };
    return result;
  }

  static Arguments arguments_of(const FakeLaunch& launch) {
    Arguments arguments;
    std::memcpy(&arguments, launch.arguments.data(), sizeof arguments);
    return arguments;
  }
  static FakeTensorMap map_of(const FakeLaunch& launch, int i) {
    FakeTensorMap map;
    const Arguments arguments = arguments_of(launch);
    std::memcpy(&map, &arguments.maps[i], sizeof map);
    return map;
  }

  template <typename Call>
  static std::string message_of(Call&& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  TempFolder folder_;
  FakeCuda* fake_ = nullptr;
  std::mutex mutex_;
  std::vector<std::vector<int64_t>> lowered_;
};

TEST_F(GpuBackendTest, ALaunchHasDescriptorsAddressesAndNumbersInOrder) {
  if (!find_nvrtc()) GTEST_SKIP() << "no NVRTC";
  const auto backend = make_gpu_backend(options());
  const Stream stream = Stream::make();
  backend->use_stream(stream);
  const auto kernel = backend->prepare(program_of(), {{"M", 100}, {"N", 64}});
  const DeviceTensor x(DType::bf16, 100, 64, stream);
  const DeviceTensor y(DType::bf16, 100, 64, stream);
  const std::vector<TensorView> views = {x.view(), y.view()};
  kernel->run(views);
  ASSERT_THAT(fake_->launches, SizeIs(1));
  const FakeLaunch& launch = fake_->launches[0];
  EXPECT_EQ(launch.function, "kernel_of_twice");
  EXPECT_EQ(launch.grid, 24U);
  EXPECT_EQ(launch.block, 384U);
  EXPECT_EQ(launch.cluster, 2U);
  EXPECT_EQ(launch.shared_bytes, 200000U);
  EXPECT_EQ(launch.stream, stream.handle());
  EXPECT_EQ(fake_->calls["cuFuncSetAttribute"], 1);  // for its shared memory
  const Arguments arguments = arguments_of(launch);
  EXPECT_EQ(arguments.pointers[0], reinterpret_cast<uint64_t>(y.view().data));
  EXPECT_EQ(arguments.pointers[1], reinterpret_cast<uint64_t>(x.view().data));
  EXPECT_EQ(arguments.numbers[0], 7U);
  EXPECT_EQ(arguments.numbers[2], 9U);
  const FakeTensorMap whole = map_of(launch, 0);
  EXPECT_EQ(whole.address, reinterpret_cast<uint64_t>(x.view().data));
  EXPECT_EQ(whole.columns, 64U);
  EXPECT_EQ(whole.rows, 100U);
  EXPECT_EQ(whole.pitch_bytes, 128U);
  EXPECT_EQ(whole.box_rows, 64U);
  EXPECT_EQ(whole.type, 9);  // bf16
  const FakeTensorMap half = map_of(launch, 1);
  EXPECT_EQ(half.address, reinterpret_cast<uint64_t>(y.view().data) + 64);
  EXPECT_EQ(half.columns, 32U);
  EXPECT_EQ(half.box_columns, 32U);
  // The swizzle is as wide as a box's row.
  EXPECT_EQ(whole.swizzle, 3);  // 128 bytes
  EXPECT_EQ(half.swizzle, 2);   // 64
  // Nothing waited for the GPU.
  EXPECT_EQ(fake_->calls["cuStreamSynchronize"] + fake_->calls["cuCtxSynchronize"], 0);
}

// ... with a driver that captures such launches into graphs, and unless it is switched off.
TEST_F(GpuBackendTest, OnlyAKernelThatWaitsMayStartBeforeTheOneBeforeItHasEnded) {
  if (!find_nvrtc()) GTEST_SKIP() << "no NVRTC";
  const DeviceTensor x(DType::bf16, 8, 64, Stream::of(nullptr));
  const auto launches = [&](const GpuOptions& chosen) {
    const auto backend = make_gpu_backend(chosen);
    fake_->launches.clear();
    for (const std::string name : {"first", "follower"}) {
      const auto kernel = backend->prepare(program_of(name), {{"M", 8}, {"N", 64}});
      kernel->run(std::vector<TensorView>{x.view(), x.view()});
    }
    return fake_->launches;
  };
  const auto usual = launches(options());
  EXPECT_FALSE(usual.at(0).is_dependent);
  EXPECT_TRUE(usual.at(1).is_dependent);
  EXPECT_EQ(usual.at(1).cluster, 2U);
  GpuOptions without = options();
  without.dependent_launch = false;
  EXPECT_FALSE(launches(without).at(1).is_dependent);
}

TEST_F(GpuBackendTest, ARecordedRunIsCapturedOnceOnAStreamOfItsOwnAndThenOneLaunch) {
  if (!find_nvrtc()) GTEST_SKIP() << "no NVRTC";
  const auto backend = make_gpu_backend(options());  // on the default stream
  const DeviceTensor x(DType::bf16, 8, 64, Stream::of(nullptr));
  const std::vector<TensorView> views{x.view(), x.view()};
  const auto kernel = backend->prepare(program_of(), {{"M", 8}, {"N", 64}});
  kernel->run(views);
  const auto again = backend->record([&] { kernel->run(views); });
  ASSERT_THAT(fake_->launches, SizeIs(2));
  EXPECT_EQ(fake_->launches[0].stream, nullptr);
  EXPECT_NE(fake_->launches[1].stream, nullptr);
  for (int i = 0; i < 3; ++i) again();
  EXPECT_THAT(fake_->launches, SizeIs(2));
  EXPECT_EQ(fake_->calls["cuGraphLaunch"], 3);
  kernel->run(views);
  EXPECT_EQ(fake_->launches[2].stream, nullptr);  // as before

  // What fails while it is captured is said, and the backend goes on.
  EXPECT_THROW(backend->record([] { throw Error("no"); }), Error);
  kernel->run(views);
  EXPECT_EQ(fake_->launches[3].stream, nullptr);
}

TEST_F(GpuBackendTest, CopiesThatAreStartedDoNotWaitAndAMarkDoes) {
  const auto backend = make_gpu_backend(options());
  const BackendMemory host = backend->allocate_on_host(64, "a test");
  const DeviceTensor x(DType::f32, 1, 16, Stream::of(nullptr));
  const TensorView view = dense_view(host.get(), DType::f32, 1, 16);
  backend->start_copy_in(view, x.view());
  backend->start_copy_out(x.view(), view);
  EXPECT_EQ(fake_->calls["cuStreamSynchronize"], 0);
  const auto wait = backend->mark();
  EXPECT_EQ(fake_->calls["cuEventSynchronize"], 0);
  wait();
  EXPECT_EQ(fake_->calls["cuEventSynchronize"], 1);
  fake_->fails["cuMemHostAlloc"] = cuda::kOutOfMemory;
  try {
    backend->allocate_on_host(64, "a test");
    ADD_FAILURE() << "not refused";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("64 bytes of pinned memory for a test"));
  }
}

// They fork off the stream after earlier work, and only a call of the result joins them.
TEST_F(GpuBackendTest, OverlappingCopiesHaveAStreamOfTheirOwnThatTheBackendsWaitsFor) {
  const auto backend = make_gpu_backend(options());
  const Stream stream = Stream::make();
  backend->use_stream(stream);
  const BackendMemory host = backend->allocate_on_host(64, "a test");
  const TensorView view = dense_view(host.get(), DType::f32, 1, 16);
  const DeviceTensor x(DType::f32, 1, 16, stream);
  fake_->order.clear();
  const auto first = backend->overlap([&] { backend->start_copy_out(x.view(), view); });
  const auto second = backend->overlap([&] { backend->start_copy_in(view, x.view()); });
  EXPECT_THROW(backend->overlap([] { throw Error("no"); }), Error);
  ASSERT_GT(fake_->order.size(), 1U);
  void* const own = stream.handle();
  void* const copies = fake_->order[1].second;
  EXPECT_NE(copies, own);
  using Order = std::vector<std::pair<std::string, void*>>;
  const Order one{{"record", own}, {"wait", copies}, {"copy", copies}, {"record", copies}};
  Order all = one;
  all.insert(all.end(), one.begin(), one.end());
  all.insert(all.end(), one.begin(), one.begin() + 2);  // what failed
  EXPECT_EQ(fake_->order, all);
  fake_->order.clear();
  first();
  second();
  backend->start_copy_in(view, x.view());
  EXPECT_EQ(fake_->order, (Order{{"wait", own}, {"wait", own}, {"copy", own}}));
  EXPECT_EQ(fake_->calls["cuEventSynchronize"], 0);
}

// In whole parts and one that is smaller, each by a thread.
TEST_F(GpuBackendTest, LargeCopiesGoThroughPinnedMemoryInParts) {
  const auto backend = make_gpu_backend(options());
  const int64_t count = 12 * (4 << 20) + 5;  // floats; a part is of 16 MiB
  std::vector<float> given(static_cast<size_t>(count)), found(given.size());
  std::iota(given.begin(), given.end(), 1.0F);
  Tensor x(DType::f32, 1, count, *backend);
  for (int round = 0; round < 2; ++round) {
    std::ranges::reverse(given);
    backend->copy_in(dense_view(given.data(), DType::f32, 1, count), x.view());
    backend->copy_out(x.view(), dense_view(found.data(), DType::f32, 1, count));
    EXPECT_TRUE(given == found);
  }
  EXPECT_EQ(fake_->calls["cuMemcpyHtoDAsync_v2"], 2 * 13);
  EXPECT_EQ(fake_->calls["cuMemcpyDtoHAsync_v2"], 2 * 13);
  EXPECT_EQ(fake_->calls["cuMemHostAlloc"], 8);
}

// Of any size and type; who waits again is told the same.
TEST_F(GpuBackendTest, CopiesBesideWhatRunsAreThereOnceTheyWereWaitedFor) {
  const auto backend = make_gpu_backend(options());
  const std::vector<float> given{1, 2, 3, 4, 5, 6};
  Tensor x(DType::f32, 2, 3, *backend), y(DType::bf16, 1, 6, *backend);
  x.set(given);
  y.set(given);
  Tensor x_there(DType::f32, 2, 3), y_there(DType::bf16, 1, 6);
  const auto wait =
      backend->copy_out_concurrently({{x.view(), x_there.view()}, {y.view(), y_there.view()}});
  wait();
  wait();
  EXPECT_EQ(x_there.floats(), given);
  EXPECT_EQ(y_there.floats(), given);
  fake_->fails["cuMemcpyDtoHAsync_v2"] = cuda::kOutOfMemory;
  const auto fails = backend->copy_out_concurrently({{x.view(), x_there.view()}});
  for (int i = 0; i < 2; ++i) EXPECT_THROW(fails(), Error);
}

// Of the fake's events each is a millisecond behind the one before.
TEST_F(GpuBackendTest, StampsCountFromTheFirstThatSomebodyHas) {
  const auto backend = make_gpu_backend(options());
  {
    const auto first = backend->stamp(), second = backend->stamp();
    EXPECT_EQ(fake_->calls["cuEventSynchronize"], 0);
    EXPECT_DOUBLE_EQ(second(), 1e-3);
    EXPECT_DOUBLE_EQ(first(), 0);
  }
  const auto anew = backend->stamp(), later = backend->stamp();
  EXPECT_DOUBLE_EQ(anew(), 0);
  EXPECT_DOUBLE_EQ(later(), 1e-3);
}

TEST(PeakFlops, IsThatOfTheBoard) {
  EXPECT_EQ(peak_flops("NVIDIA H200, driver for CUDA 13.0"), 989.4e12);
  EXPECT_EQ(peak_flops("NVIDIA H100 80GB HBM3"), 989.4e12);
  EXPECT_EQ(peak_flops("NVIDIA H100 PCIe"), 756e12);
  EXPECT_EQ(peak_flops("NVIDIA H200 NVL"), 835e12);
  EXPECT_EQ(peak_flops("NVIDIA A100-SXM4-80GB"), 312e12);
  EXPECT_EQ(peak_flops("NVIDIA GeForce RTX 4090"), 165.2e12);
  for (const char* other : {"NVIDIA RTX A1000", "NVIDIA GeForce RTX 4090 Laptop GPU", "Fake GPU"})
    EXPECT_EQ(peak_flops(other), 0) << other;
}

TEST_F(GpuBackendTest, FreeMemoryIsWhatTheDriverSays) {
  EXPECT_EQ(make_gpu_backend(options())->free_bytes(), 1000);
}

TEST_F(GpuBackendTest, DescriptorsAreKeptForEachSetOfPlaces) {
  if (!find_nvrtc()) GTEST_SKIP() << "no NVRTC";
  const auto backend = make_gpu_backend(options());
  const Stream stream = Stream::of(nullptr);
  const auto kernel = backend->prepare(program_of(), {{"M", 100}, {"N", 64}});
  std::vector<DeviceTensor> tensors;
  for (int i = 0; i < 3; ++i) tensors.emplace_back(DType::bf16, 100, 64, stream);
  const auto run = [&](int from, int to) {
    kernel->run(std::vector<TensorView>{tensors[from].view(), tensors[to].view()});
    const FakeLaunch& launch = fake_->launches.back();
    EXPECT_EQ(map_of(launch, 0).address, reinterpret_cast<uint64_t>(tensors[from].view().data));
    EXPECT_EQ(arguments_of(launch).pointers[0],
              reinterpret_cast<uint64_t>(tensors[to].view().data));
  };
  for (int i = 0; i < 3; ++i) {
    run(0, 1);
    run(1, 2);
    run(2, 0);
  }
  EXPECT_THAT(fake_->launches, SizeIs(9));
  EXPECT_EQ(fake_->calls["cuTensorMapEncodeTiled"], 3 * 2);
  EXPECT_THAT(lowered_, SizeIs(1));
}

// The 65th set of places takes the place of another, and is right.
TEST_F(GpuBackendTest, ManySetsOfPlacesAreServed) {
  if (!find_nvrtc()) GTEST_SKIP() << "no NVRTC";
  const auto backend = make_gpu_backend(options());
  const auto kernel = backend->prepare(program_of(), {{"M", 8}, {"N", 64}});
  const DeviceTensor all(DType::bf16, 8 * 101, 64, Stream::of(nullptr));
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 100; ++i) {
      TensorView x = all.view();
      x.rows = 8;
      x.data = static_cast<std::byte*>(x.data) + i * 1024;
      TensorView y = x;
      y.data = static_cast<std::byte*>(x.data) + 1024;
      kernel->run(std::vector<TensorView>{x, y});
      EXPECT_EQ(map_of(fake_->launches.back(), 0).address, reinterpret_cast<uint64_t>(x.data));
    }
  }
}

TEST_F(GpuBackendTest, TensorsThatAreNotDenseAreLoweredForTheirStrides) {
  if (!find_nvrtc()) GTEST_SKIP() << "no NVRTC";
  const auto backend = make_gpu_backend(options());
  const auto kernel = backend->prepare(program_of(), {{"M", 10}, {"N", 64}});
  const DeviceTensor x(DType::bf16, 10, 96, Stream::of(nullptr));
  const DeviceTensor y(DType::bf16, 10, 64, Stream::of(nullptr));
  TensorView strided = x.view();
  strided.cols = 64;
  for (int i = 0; i < 2; ++i) kernel->run(std::vector<TensorView>{strided, y.view()});
  EXPECT_THAT(lowered_, ElementsAre(IsEmpty(), ElementsAre(96, 64)));
  EXPECT_EQ(map_of(fake_->launches.back(), 0).pitch_bytes, 192U);
}

// A row of 34 elements of bf16 is no multiple of 16 bytes; half of it is no multiple of 4.
TEST_F(GpuBackendTest, WhatTheCopyEngineCannotAddressIsCopiedThereAndBack) {
  if (!find_nvrtc()) GTEST_SKIP() << "no NVRTC";
  const auto backend = make_gpu_backend(options());
  const Stream stream = Stream::of(nullptr);
  const auto kernel = backend->prepare(program_of(), {{"M", 5}, {"N", 34}});
  DeviceTensor x(DType::bf16, 5, 34, stream);
  DeviceTensor y(DType::bf16, 5, 34, stream);
  std::vector<uint16_t> values(5 * 34);
  std::iota(values.begin(), values.end(), uint16_t{1});
  x.upload(dense_view(values.data(), DType::bf16, 5, 34), stream);
  y.fill_bytes(0, stream);
  kernel->run(std::vector<TensorView>{x.view(), y.view()});
  const FakeTensorMap in = map_of(fake_->launches.back(), 0);
  const FakeTensorMap out = map_of(fake_->launches.back(), 1);
  EXPECT_NE(in.address, reinterpret_cast<uint64_t>(x.view().data));
  EXPECT_EQ(in.pitch_bytes, 128U);
  EXPECT_EQ(in.address % 16 + out.address % 16, 0U);
  EXPECT_EQ(in.columns, 34U);
  EXPECT_EQ(out.columns, 17U);
  for (size_t row = 0; row < 5; ++row) {
    const auto* copied = reinterpret_cast<const uint16_t*>(in.address + row * in.pitch_bytes);
    for (size_t column = 0; column < 34; ++column)
      EXPECT_EQ(copied[column], values[row * 34 + column]);
  }
  // What the kernel would write to its copy arrives in the tensor, and nothing beside it.
  for (size_t row = 0; row < 5; ++row) {
    auto* written = reinterpret_cast<uint16_t*>(out.address + row * out.pitch_bytes);
    for (size_t column = 0; column < 17; ++column) written[column] = 100 + row;
  }
  const int encoded = fake_->calls["cuTensorMapEncodeTiled"];
  kernel->run(std::vector<TensorView>{x.view(), y.view()});
  EXPECT_EQ(fake_->calls["cuTensorMapEncodeTiled"], encoded);
  std::vector<uint16_t> result(5 * 34);
  y.download(dense_view(result.data(), DType::bf16, 5, 34), stream);
  for (size_t row = 0; row < 5; ++row) {
    for (size_t column = 0; column < 34; ++column)
      EXPECT_EQ(result[row * 34 + column], column < 17 ? 0 : 100 + row);
  }
  std::vector<uint16_t> again(5 * 34);  // by its view alone, as a session's own result
  download(y.view(), dense_view(again.data(), DType::bf16, 5, 34), stream);
  EXPECT_EQ(again, result);
}

TEST_F(GpuBackendTest, AnnouncedProgramsAreCompiledOnceAndThenFound) {
  if (!find_nvrtc()) GTEST_SKIP() << "no NVRTC";
  const Program a = program_of("a");
  const Program b = program_of("b");
  const DimValues sizes = {{"M", 8}, {"N", 64}};
  for (const int expected : {2, 0}) {
    int compiled = 0;
    GpuOptions o = options();
    const auto backend = make_gpu_backend(o);
    const std::vector<AnnouncedProgram> programs = {{&a, sizes}, {&b, sizes}, {&a, sizes}};
    backend->announce(programs, {});
    CubinCache cache({.folder = folder_.path(), .notice = {}});
    const NvrtcCompiler compiler;
    for (const char* name : {"a", "b"}) {
      cache.get(cache_key(compiler,
                          "extern \"C\" __global__ void kernel_of_" + std::string(name) + "() {}"),
                [&] {
                  ++compiled;
                  return CompiledKernel();
                });
    }
    EXPECT_EQ(compiled, 0) << expected;
    EXPECT_EQ(fake_->calls["cuModuleLoadData"], 0);
    backend->prepare(a, sizes);
    backend->prepare(b, sizes);
    backend->prepare(b, sizes);
    EXPECT_EQ(fake_->calls["cuModuleLoadData"], 2);
    fake_->calls.clear();
  }
}

// The best kernel of 8 rows is a, of 16 rows b; each serves both.
TEST_F(GpuBackendTest, ASessionOfOtherSizesTakesWhatIsCompiledUntilItsBestKernelIs) {
  if (!find_nvrtc()) GTEST_SKIP() << "no NVRTC";
  const auto source = [](const std::string& name) {
    return "extern \"C\" __global__ void " + name + "() {}";
  };
  const Program program = program_of();
  for (const bool takes : {true, false}) {
    GpuOptions o = options();
    const TempFolder folder;
    o.cache.folder = folder.path();
    o.takes_compiled = takes;
    o.lowering = [&](const Program&, const DimValues& sizes, const LowerOptions&) {
      const bool is_few = sizes.at("M") == 8;
      PlannedKernel kernel;
      kernel.emit = [&source, is_few](size_t way) {
        KernelLaunch launch;
        launch.function = (way == 0) == is_few ? "a" : "b";
        launch.source = source(launch.function);
        return launch;
      };
      kernel.more_ways = 1;
      KernelPlan plan;
      plan.kernels.push_back(kernel);
      return plan;
    };
    const auto backend = make_gpu_backend(o);
    const auto kernel_of = [&](int64_t rows) {
      const DimValues sizes = {{"M", rows}, {"N", 64}};
      const std::vector<AnnouncedProgram> programs = {{&program, sizes}};
      backend->announce(programs, {});
      const auto kernel = backend->prepare(program, sizes);
      const Stream stream = Stream::make();
      backend->use_stream(stream);
      const DeviceTensor x(DType::bf16, rows, 64, stream);
      const DeviceTensor y(DType::bf16, rows, 64, stream);
      fake_->launches.clear();
      kernel->run(std::vector<TensorView>{x.view(), y.view()});
      return fake_->launches.at(0).function;
    };
    EXPECT_EQ(kernel_of(8), "a");
    EXPECT_EQ(kernel_of(16), takes ? "a" : "b");
    KernelBuilder(o.cache).build("beside", source("b"));
    EXPECT_EQ(kernel_of(16), "b");
    EXPECT_EQ(kernel_of(8), "a");
  }
}

TEST_F(GpuBackendTest, AnnouncedCallsAreCompiledBeforeTheyArePrepared) {
  if (!find_nvrtc()) GTEST_SKIP() << "no NVRTC";
  const DimValues sizes = {{"M", 8}};
  const std::vector<TensorDecl> tensors = {
      {"table", {16, 64}, DType::bf16}, {"ids", {8, 1}, DType::i32}, {"out", {8, 64}, DType::bf16}};
  OpaqueCall call;
  call.function = "embedding";
  call.inputs = {"table", "ids"};
  call.outputs = {"out"};
  const auto kept = [&] {
    int64_t cubins = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path() / "cubins"))
      cubins += entry.path().extension() == ".cubin" ? 1 : 0;
    return cubins;
  };
  const auto backend = make_gpu_backend(options());
  const std::vector<AnnouncedCall> calls = {{&call, tensors, sizes}, {&call, tensors, sizes}};
  backend->announce({}, calls);
  EXPECT_EQ(kept(), 1);
  EXPECT_EQ(fake_->calls["cuModuleLoadData"], 0);
  backend->prepare(call, tensors, sizes);
  EXPECT_EQ(kept(), 1);
  EXPECT_EQ(fake_->calls["cuModuleLoadData"], 1);
}

// x to t by the first program, t to y by the second.
Plan two_step_plan() {
  Plan plan;
  Program first = program_of("first");
  Program second = program_of("second");
  first.tensors[1].name = second.tensors[0].name = "t";
  plan.tensors = {{.decl = first.tensors[0], .role = TensorRole::input},
                  {.decl = first.tensors[1], .role = TensorRole::temporary},
                  {.decl = second.tensors[1], .role = TensorRole::output}};
  plan.forward.push_back({.name = "1", .role = StepRole::tile, .work = first, .reasons = {}});
  plan.forward.push_back({.name = "2", .role = StepRole::tile, .work = second, .reasons = {}});
  return plan;
}

// The arena and saved tensors are the device's, and so are their addresses.
TEST_F(GpuBackendTest, ASessionKeepsItsTensorsOnTheDevice) {
  if (!find_nvrtc()) GTEST_SKIP() << "no NVRTC";
  const auto backend = make_gpu_backend(options());
  const Stream stream = Stream::make();
  backend->use_stream(stream);
  const Plan plan = two_step_plan();
  Session session(plan, *backend, {{"M", 16}, {"N", 64}}, {.poison = true});
  const DeviceTensor x(DType::bf16, 16, 64, stream);
  const DeviceTensor y(DType::bf16, 16, 64, stream);
  session.bind("x", x.view());
  session.bind("y", y.view());
  session.forward();
  ASSERT_THAT(fake_->launches, SizeIs(2));
  const uint64_t between = map_of(fake_->launches[1], 0).address;
  EXPECT_EQ(arguments_of(fake_->launches[0]).pointers[0], between);
  EXPECT_TRUE(fake_->allocated.contains(between));
  EXPECT_EQ(*static_cast<uint16_t*>(y.view().data), 0xffff);  // poisoned, and no kernel wrote it
}

// What the launches of a split program pass on is no tensor of the program: a kernel by itself has
// memory for it, which stays where it is; the kernels of a session share one.
// All launches of a kernel have one, also those of later runs; another kernel may run beside them
// on another stream, and has its own.
TEST_F(GpuBackendTest, ACounterOfTilesIsZeroAndOfOneKernel) {
  if (!find_nvrtc()) GTEST_SKIP() << "no NVRTC";
  GpuOptions dealing = options();
  dealing.lowering = [whole = dealing.lowering](const Program& program, const DimValues& sizes,
                                                const LowerOptions& options) {
    std::vector<KernelLaunch> launches = make(whole(program, sizes, options));
    launches.front().pointers = {1, kTileCounter};
    launches.push_back(launches.front());
    return launches;
  };
  const auto backend = make_gpu_backend(dealing);
  const Stream stream = Stream::make();
  backend->use_stream(stream);
  const DimValues sizes{{"M", 100}, {"N", 64}};
  const DeviceTensor x(DType::bf16, 100, 64, stream);
  const DeviceTensor y(DType::bf16, 100, 64, stream);
  const auto first = backend->prepare(program_of("first"), sizes);
  const auto second = backend->prepare(program_of("second"), sizes);
  for (const auto* kernel : {&first, &first, &second})
    (*kernel)->run(std::vector<TensorView>{x.view(), y.view()});
  ASSERT_THAT(fake_->launches, SizeIs(6));
  std::vector<uint64_t> counters;
  for (const FakeLaunch& launch : fake_->launches) {
    counters.push_back(arguments_of(launch).pointers[1]);
    ASSERT_EQ(fake_->allocated.at(counters.back()), sizeof(uint32_t));
    uint32_t value = 0;
    std::memcpy(&value, reinterpret_cast<const void*>(counters.back()), sizeof value);
    EXPECT_EQ(value, 0U);
  }
  EXPECT_THAT(counters, ElementsAre(counters[0], counters[0], counters[0], counters[0], counters[4],
                                    counters[4]));
  EXPECT_NE(counters[0], counters[4]);
}

TEST_F(GpuBackendTest, LaunchesPassOnScratchTensors) {
  if (!find_nvrtc()) GTEST_SKIP() << "no NVRTC";
  GpuOptions split = options();
  split.lowering = [whole = split.lowering](const Program& program, const DimValues& sizes,
                                            const LowerOptions& options) {
    std::vector<KernelLaunch> launches = make(whole(program, sizes, options));
    launches.push_back(launches.front());
    const int64_t rows = program.name == "second" ? 300 : 100;
    for (KernelLaunch& launch : launches) {
      launch.scratch = {{DType::f32, rows, 60, 64}, {DType::bf16, rows, 64, 64}};
      launch.maps[0].tensor = 3;
    }
    launches[0].pointers = {2, 0};
    launches[1].pointers = {1, 2};
    return launches;
  };
  const auto backend = make_gpu_backend(split);
  const Stream stream = Stream::make();
  backend->use_stream(stream);
  const DimValues sizes{{"M", 100}, {"N", 64}};
  const DeviceTensor x(DType::bf16, 100, 64, stream);
  const DeviceTensor y(DType::bf16, 100, 64, stream);
  const auto kernel = backend->prepare(program_of("first"), sizes);
  EXPECT_EQ(kernel->scratch_bytes(), 100U * 64 * 4 + 100 * 64 * 2);
  for (int run = 0; run < 2; ++run) kernel->run(std::vector<TensorView>{x.view(), y.view()});
  ASSERT_THAT(fake_->launches, SizeIs(4));
  const uint64_t passed_on = arguments_of(fake_->launches[0]).pointers[0];
  EXPECT_EQ(fake_->allocated.at(passed_on), kernel->scratch_bytes());
  EXPECT_EQ(arguments_of(fake_->launches[1]).pointers[1], passed_on);
  EXPECT_EQ(arguments_of(fake_->launches[2]).pointers[0], passed_on);
  EXPECT_EQ(map_of(fake_->launches[0], 0).address, passed_on + 100 * 64 * 4);

  // Two pieces of scratch memory in turns: descriptors are made once for each.
  const DeviceTensor pieces[] = {{DType::u8, 200, 256, stream}, {DType::u8, 200, 256, stream}};
  const auto encoded = [&] { return fake_->calls["cuTensorMapEncodeTiled"]; };
  const int before = encoded();
  for (int run = 0; run < 6; ++run) {
    const BackendMemory lent(BackendMemory(), static_cast<std::byte*>(pieces[run % 2].view().data));
    kernel->use_scratch(lent, kernel->scratch_bytes());
    kernel->run(std::vector<TensorView>{x.view(), y.view()});
    EXPECT_EQ(arguments_of(fake_->launches.back()).pointers[1],
              reinterpret_cast<uint64_t>(lent.get()));
  }
  EXPECT_EQ(encoded() - before, 2 * before);

  const Plan plan = two_step_plan();
  Session session(plan, *backend, sizes, {.poison = true});
  EXPECT_EQ(session.scratch_bytes(), 3 * static_cast<int64_t>(kernel->scratch_bytes()));
  session.bind("x", x.view());
  session.bind("y", y.view());
  fake_->launches.clear();
  session.forward();
  ASSERT_THAT(fake_->launches, SizeIs(4));
  const uint64_t shared = arguments_of(fake_->launches[0]).pointers[0];
  EXPECT_EQ(static_cast<int64_t>(fake_->allocated.at(shared)), session.scratch_bytes());
  EXPECT_EQ(arguments_of(fake_->launches[2]).pointers[0], shared);
  EXPECT_EQ(arguments_of(fake_->launches[3]).pointers[1], shared);
}

TEST_F(GpuBackendTest, MemoryIsFreedAndWithoutAPoolAllocatedPlainly) {
  for (const bool has_pools : {true, false}) {
    fake_->has_pools = has_pools;
    {
      const Stream stream = Stream::make();
      DeviceTensor tensor(DType::f32, 10, 10, stream);
      EXPECT_THAT(fake_->allocated, SizeIs(1));
      tensor = DeviceTensor(DType::f32, 20, 10, stream);
      EXPECT_THAT(fake_->allocated, SizeIs(1));
    }
    EXPECT_THAT(fake_->allocated, IsEmpty());
    EXPECT_EQ(fake_->calls["cuMemAllocAsync"], 2);
    EXPECT_EQ(fake_->calls["cuMemAlloc_v2"], has_pools ? 0 : 2);
  }
}

TEST_F(GpuBackendTest, ExhaustedMemorySaysWhatForAndHowMuchIsFree) {
  fake_->fails["cuMemAllocAsync"] = 2;
  EXPECT_THAT(
      message_of([] { DeviceTensor(DType::f32, 1000, 1000, Stream::of(nullptr)); }),
      AllOf(HasSubstr("allocating 4000000 bytes for a tensor f32 [1000, 1000]"),
            HasSubstr("has 1000 of 2000 bytes free"), HasSubstr("Remedy: free memory of the GPU")));
}

TEST_F(GpuBackendTest, AMachineThatCannotRunKernelsIsSaidToBeSo) {
  fake_->devices = 0;
  EXPECT_THAT(why_no_gpu(),
              AllOf(HasSubstr("looking for a GPU"), HasSubstr("CUDA_VISIBLE_DEVICES")));
  fake_->devices = 1;
  fake_->major = 7;
  fake_->minor = 5;
  EXPECT_THAT(why_no_gpu(),
              AllOf(HasSubstr("GPU 0 (Fake GPU) has compute capability 7.5"),
                    HasSubstr("are made for 8.0 and later (A100, RTX 30 and later)")));
  EXPECT_THAT(message_of([&] { make_gpu_backend(options()); }), HasSubstr("capability 7.5"));
  fake_->major = 8;
  fake_->minor = 6;
  fake_->shared_bytes = 64 << 10;
  EXPECT_THAT(why_no_gpu(), HasSubstr("GPU 0 (Fake GPU) gives a block 64 KiB of shared memory; "
                                      "kernels of the target sm80 use up to 99. Remedy: "));
  fake_->major = 9;
  fake_->minor = 0;
  fake_->shared_bytes = 227 << 10;
  EXPECT_EQ(why_no_gpu(), "");
  EXPECT_EQ(describe_gpu(), "Fake GPU, driver for CUDA 13.0");
  GpuOptions second = options();
  second.device = 1;
  EXPECT_THAT(message_of([&] { make_gpu_backend(second); }), HasSubstr("there is no GPU 1"));
}

// What the owner of an RTX 3090 gets, and is told.
TEST_F(GpuBackendTest, AGpuThatIsNoHopperRunsKernelsOfTheTargetSm80) {
  fake_->major = 8;
  fake_->minor = 6;
  fake_->shared_bytes = 99 << 10;
  EXPECT_EQ(why_no_gpu(), "");
  testing::internal::CaptureStderr();
  const auto backend = make_gpu_backend(options());
  make_gpu_backend(options());
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::AllOf(testing::StartsWith("coda: Fake GPU runs kernels of the target sm80, "
                                                 "which were tested on an H200 only"),
                             testing::EndsWith("docs/gpus.md says how to check them\n"),
                             testing::Not(HasSubstr("\ncoda:"))));
  EXPECT_EQ(
      backend->why_no_eight_bits(),
      "Fake GPU has no kernels for 8-bit floats, which the target sm80 does not support: RTX 40 "
      "and 50, L4, L40S, RTX Ada and RTX PRO Blackwell have them (target sm89), H100 and H200 "
      "(sm90)");
  const auto of_target = [&](const char* target) {
    GpuOptions with = options();
    with.target = target;
    return make_gpu_backend(with);
  };
  EXPECT_THAT(message_of([&] { of_target("sm90"); }),
              AllOf(HasSubstr("has compute capability 8.6; kernels of the target sm90 are made for "
                              "9.0 (H100, H200). Remedy: ")));
  EXPECT_THAT(message_of([&] { of_target("sm89"); }),
              HasSubstr("has compute capability 8.6; kernels of the target sm89 are made for 8.9"));
  EXPECT_THAT(message_of([&] { of_target("sm75"); }),
              HasSubstr("no GPU target named 'sm75': set the target or CODA_GPU_TARGET to \"sm90\" "
                        "(H100, H200), \"sm80\""));
  fake_->major = 9;
  fake_->minor = 0;
  fake_->shared_bytes = 227 << 10;
  EXPECT_EQ(of_target("sm90")->why_no_eight_bits(), "");
  EXPECT_NE(of_target("sm80")->why_no_eight_bits(), "");
  EXPECT_EQ(of_target("sm89")->why_no_eight_bits(), "");
}

// A known card plans by its own rates; another one by those of the first of its capability.
TEST_F(GpuBackendTest, PlansAreMadeByTheRatesOfTheCard) {
  fake_->major = 8;
  fake_->minor = 9;
  fake_->shared_bytes = 99 << 10;
  EXPECT_EQ(make_gpu_backend(options())->rates().flops_per_second,
            rates_of(gpu_card("RTX 4090")).flops_per_second);
  fake_->major = 9;
  fake_->minor = 0;
  fake_->shared_bytes = 227 << 10;
  EXPECT_EQ(make_gpu_backend(options())->rates().flops_per_second, h200_rates().flops_per_second);
}

TEST_F(GpuBackendTest, AnOldDriverIsCalledOne) {
  fake_->version = 11080;
  EXPECT_THAT(message_of([] { DriverApi(); }),
              AllOf(HasSubstr("is too old: it runs CUDA 11.8, and 12.0 is the oldest that works"),
                    HasSubstr("Remedy: update NVIDIA's driver")));
}

TEST_F(GpuBackendTest, WhatFailsIsSaidWithTheProgramAndARemedy) {
  if (!find_nvrtc()) GTEST_SKIP() << "no NVRTC";
  const DimValues sizes = {{"M", 8}, {"N", 64}};
  const auto backend = make_gpu_backend(options());
  fake_->fails["cuModuleLoadData"] = 200;
  EXPECT_THAT(message_of([&] { backend->prepare(program_of(), sizes); }),
              AllOf(HasSubstr("loading the kernel of program 'twice', compiled by NVRTC"),
                    HasSubstr("for a driver that runs CUDA 13.0"),
                    HasSubstr("the driver is older than the compiler")));
  fake_->fails.clear();
  const auto kernel = backend->prepare(program_of(), sizes);
  const DeviceTensor x(DType::bf16, 8, 64, Stream::of(nullptr));
  const std::vector<TensorView> views = {x.view(), x.view()};
  fake_->fails["cuLaunchKernelEx"] = 700;
  EXPECT_THAT(message_of([&] { kernel->run(views); }),
              AllOf(HasSubstr("running program twice"), HasSubstr("CUDA_ERROR_FAKE"),
                    HasSubstr("start the process anew")));
  fake_->fails["cuLaunchKernelEx"] = 900;
  EXPECT_THAT(message_of([&] { kernel->run(views); }), HasSubstr("run everything once before"));
  fake_->fails.clear();
  kernel->run(views);  // the process goes on where the driver does
  EXPECT_THAT(fake_->launches, SizeIs(1));
}

}  // namespace
}  // namespace coda::gpu
