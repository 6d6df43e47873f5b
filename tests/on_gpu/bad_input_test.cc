// SPDX-License-Identifier: Apache-2.0
// What a caller may get wrong, on a GPU: memory that starts where it should not is right all the
// same, what cannot be allocated and a kernel that fails are clear errors, an index outside a table
// makes NaN. (Errors that need no GPU: tests/gpu/bad_input_test.cc.) Needs a GPU; skipped
// elsewhere.
#include <gmock/gmock.h>

#include <cstdio>
#include <cstdlib>

#include "coda/program_builder.h"
#include "gpu/gpu_backend.h"
#include "on_gpu/on_gpu.h"
#include "on_gpu/program_check.h"

namespace coda::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using BadInput = OnGpu;

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// Tensors that start one, three and eight elements behind a multiple of 16 bytes, with rows that
// the copy engine can address and rows that it cannot.
TEST_F(BadInput, TensorsMayStartAtAnyElement) {
  const DimValues sizes{{"M", 137}, {"N", 136}, {"K", 72}, {"S", 50}, {"H", 3}};
  const std::vector<Program> programs = written_programs("programs");
  check_all(programs, sizes, 3000, {.gap = 0, .multiple = 8, .offset = 1}, kSinglePrecision);
  check_all(programs, sizes, 3100, {.gap = 1, .multiple = 1, .offset = 3}, kSinglePrecision);
  check_all(programs, sizes, 3200, {.gap = 8, .multiple = 8, .offset = 8}, kSinglePrecision);
}

// The driver knows what is its memory, and where it ends.
TEST_F(BadInput, MemoryOfTheHostAndMemoryThatIsTooSmallAreRefused) {
  ProgramBuilder p("twice");
  p.store("y:bf16", p.load_tile("x[M, N]:bf16") * 2.0);
  const Stream stream = Stream::make();
  const auto backend = gpu::make_gpu_backend();
  backend->use_stream(stream);
  const auto kernel = backend->prepare(p.build(), {{"M", 1024}, {"N", 1024}});
  const DeviceTensor y(DType::bf16, 1024, 1024, stream);
  const auto run_with = [&](void* data) {
    return message_of([&] {
      kernel->run(std::vector<TensorView>{dense_view(data, DType::bf16, 1024, 1024), y.view()});
    });
  };
  std::vector<uint16_t> host(1024 * 1024);
  EXPECT_THAT(run_with(host.data()), HasSubstr("its memory is not the GPU's"));
  const gpu::DeviceMemory half(gpu()->context, 512 * 1024 * 2, nullptr, "half a tensor",
                               gpu::Allocation::plain);
  EXPECT_THAT(run_with(half.data()), HasSubstr("its memory ends 1048576 bytes before"));
  DeviceTensor x(DType::bf16, 1024, 1024, stream);
  x.fill_bytes(0, stream);
  EXPECT_EQ(run_with(x.view().data), "no error");
  stream.synchronize();
}

TEST_F(BadInput, ExhaustedMemoryIsSaidToBeSoAndTheProcessGoesOn) {
  const Stream stream = Stream::make();
  const std::string message =
      message_of([&] { DeviceTensor(DType::f32, int64_t{1} << 20, int64_t{1} << 20, stream); });
  EXPECT_THAT(message, AllOf(HasSubstr("allocating 4398046511104 bytes for a tensor f32"),
                             HasSubstr("bytes free"), HasSubstr("Remedy: free memory of the GPU")));
  DeviceTensor tensor(DType::f32, 1000, 1000, stream);
  tensor.fill_bytes(0, stream);
  std::vector<float> host(1000 * 1000, 1);
  tensor.download(dense_view(host.data(), DType::f32, 1000, 1000), stream);
  EXPECT_EQ(host, std::vector<float>(1000 * 1000, 0));
}

TEST_F(BadInput, AnIndexOutsideATableMakesARowOfNaN) {
  constexpr int64_t kTable = 7;
  constexpr int64_t kColumns = 24;
  const std::vector<int32_t> ids{3, -1, 0, 7, 6, 1 << 30};
  const auto tokens = static_cast<int64_t>(ids.size());
  const OpaqueCall call{"embedding", {}, {}, {"table", "ids"}, {"out"}};
  const std::vector<TensorDecl> decls{{.name = "table", .shape = {kTable, kColumns}},
                                      {.name = "ids", .shape = {"M", 1}, .dtype = DType::i32},
                                      {.name = "out", .shape = {"M", kColumns}}};
  const Stream stream = Stream::make();
  const auto backend = gpu::make_gpu_backend();
  backend->use_stream(stream);
  DeviceTensor table(DType::f32, kTable, kColumns, stream);
  DeviceTensor on_device(DType::i32, tokens, 1, stream);
  const DeviceTensor out(DType::f32, tokens, kColumns, stream);
  std::vector<float> values(kTable * kColumns);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  std::vector<int32_t> copy = ids;
  table.upload(dense_view(values.data(), DType::f32, kTable, kColumns), stream);
  on_device.upload(dense_view(copy.data(), DType::i32, tokens, 1), stream);
  backend->prepare(call, decls, {{"M", tokens}})
      ->run(std::vector<TensorView>{table.view(), on_device.view(), out.view()});
  std::vector<float> result(ids.size() * kColumns);
  out.download(dense_view(result.data(), DType::f32, tokens, kColumns), stream);
  for (size_t i = 0; i < result.size(); ++i) {
    const int32_t id = ids[i / kColumns];
    if (id < 0 || id >= kTable) {
      EXPECT_TRUE(std::isnan(result[i])) << i;
    } else {
      EXPECT_EQ(result[i], values[static_cast<size_t>(id) * kColumns + i % kColumns]) << i;
    }
  }
}

// Whether threads load the table beside a product or without one.
TEST_F(BadInput, AnIndexOutsideATableReadsItsLastRow) {
  const DimValues sizes{{"M", 70}, {"K", 64}, {"S", 9}, {"H", 3}};
  for (const char* tile : {"gemm(a[M, K]:bf16, b[128, K]:bf16, nt)", "tile(x[M, 128])"}) {
    const Program program = parse_program("program gathered {\n  store(y, " + std::string(tile) +
                                          " * tile(t[S, 64], rows=p[M]:i32, repeat=2))\n}");
    Values inputs = inputs_of(program, sizes, 1);
    for (const double outside : {9.0, -1.0, 2147483647.0}) {
      inputs.at("p")[3] = inputs.at("p")[66] = 8;
      const Values inside = run_on_gpu(program, sizes, inputs, {});
      inputs.at("p")[3] = inputs.at("p")[66] = outside;
      expect_same_bits(run_on_gpu(program, sizes, inputs, {}), inside, "with an index outside");
    }
  }
}

// Writes where there is no memory, and prints what the next calls say.
void fail_and_go_on() {
  const Stream stream = Stream::make();
  const DeviceTensor tensor(DType::f32, 8, 8, stream);
  auto state = std::make_shared<gpu::GpuState>();
  state->context = gpu()->context;
  state->kernels = std::make_unique<gpu::LoadedKernels>(state->context, gpu::CacheOptions{});
  state->stream = stream.handle();
  gpu::LaunchedKernel kernel(state, "wild", {{"x", false, true}}, [](std::span<const int64_t>) {
    gpu::KernelLaunch launch;
    launch.function = "wild";
    launch.source =
        "extern \"C\" __global__ void wild() { "
        "*reinterpret_cast<volatile int*>(0x10) = 1; }";
    launch.threads = 32;
    return std::vector<gpu::KernelLaunch>{launch};
  });
  const auto run = [&] { kernel.run(std::vector<TensorView>{tensor.view()}); };
  run();
  std::fprintf(stderr, "first: %s\n", message_of([&] { stream.synchronize(); }).c_str());
  std::fprintf(stderr, "then: %s\n", message_of(run).c_str());
  std::fprintf(stderr, "and: %s\n",
               message_of([&] { DeviceTensor(DType::f32, 8, 8, stream); }).c_str());
}

// In a process of its own, which ends as it should.
TEST_F(BadInput, AKernelThatFailsEndsTheContextAndEveryCallSaysSo) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        fail_and_go_on();
        std::exit(0);
      },
      ::testing::ExitedWithCode(0),
      "first: waiting for a stream: .*illegal.*start the process anew"
      "(.|\n)*then: running program wild: .*start the process anew"
      "(.|\n)*and: allocating 256 bytes for a tensor.*start the process anew");
}

}  // namespace
}  // namespace coda::tests
