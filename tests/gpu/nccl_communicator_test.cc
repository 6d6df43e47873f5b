// SPDX-License-Identifier: Apache-2.0
// What NCCL is asked for, and what is said where it is missing, too old or fails; NCCL and the GPU
// are fakes.
#include "gpu/nccl/nccl_communicator.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>

#include "coda/error.h"
#include "gpu/fake_cuda.h"
#include "gpu/nccl/nccl_api.h"

namespace coda::gpu::nccl {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class NcclTest : public testing::Test {
 protected:
  void SetUp() override {
    setenv("CODA_CUDA_DRIVER", CODA_FAKE_CUDA, 1);
    setenv("CODA_NCCL", CODA_FAKE_CUDA, 1);
    void* const library = dlopen(CODA_FAKE_CUDA, RTLD_NOW);
    ASSERT_NE(library, nullptr) << dlerror();
    fake_ = reinterpret_cast<FakeCuda* (*)()>(dlsym(library, "fake_cuda_state"))();
    *fake_ = FakeCuda();
    state_ = std::make_shared<GpuState>();
    state_->context = std::make_shared<const Context>(0);
    place_.address = "127.0.0.1";
  }
  void TearDown() override {
    unsetenv("CODA_NCCL");
    *fake_ = FakeCuda();
  }
  static std::string message_of(const std::function<void()>& action) {
    try {
      action();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  FakeCuda* fake_ = nullptr;
  std::shared_ptr<GpuState> state_;
  ProcessPlace place_;
};

TEST_F(NcclTest, ExchangesAMatrixInPlaceOnTheBackendsStream) {
  const auto communicator = join(state_, place_);
  float values[6 * 4] = {};
  int stream = 0;
  state_->stream = &stream;  // as while a graph is captured
  communicator->reduce_scatter(dense_view(values, DType::f32, 6, 4));
  communicator->all_gather(dense_view(values, DType::bf16, 6, 4));
  communicator->maximum(dense_view(values, DType::f32, 1, 3));
  ASSERT_EQ(fake_->exchanges.size(), 3u);
  for (const FakeExchange& exchange : fake_->exchanges) {
    EXPECT_EQ(exchange.from, values);
    EXPECT_EQ(exchange.to, values);
    EXPECT_EQ(exchange.stream, &stream);
  }
  const FakeExchange &sum = fake_->exchanges[0], &gather = fake_->exchanges[1],
                     &largest = fake_->exchanges[2];
  EXPECT_EQ(sum.count, 24u);
  EXPECT_EQ(sum.type, 7);  // ncclFloat32
  EXPECT_EQ(sum.operation, 0);
  EXPECT_EQ(gather.count, 48u);
  EXPECT_EQ(gather.type, 1);  // ncclUint8
  EXPECT_EQ(largest.count, 3u);
  EXPECT_EQ(largest.type, 7);
  EXPECT_EQ(largest.operation, 2);
  EXPECT_STREQ(getenv("NCCL_NVLS_ENABLE"), "0");
}

// On a stream of its own, which waits for what the backend's has, and joins it when it is told to:
// all by events, as a graph that is captured wants it.
TEST_F(NcclTest, WhatGoesOnBesideForksAndJoinsByEvents) {
  const auto communicator = join(state_, place_);
  float values[6 * 4] = {};
  int stream = 0;
  state_->stream = &stream;
  const auto wait = communicator->overlap(
      [&] { communicator->reduce_scatter(dense_view(values, DType::f32, 6, 4)); });
  EXPECT_EQ(state_->stream, &stream);
  ASSERT_EQ(fake_->order.size(), 4u);
  void* const own = fake_->order[1].second;
  EXPECT_NE(own, &stream);
  wait();
  const std::vector<std::pair<std::string, void*>> order{
      {"record", &stream}, {"wait", own}, {"exchange", own}, {"record", own}, {"wait", &stream}};
  EXPECT_EQ(fake_->order, order);
  EXPECT_EQ(fake_->calls["cuStreamSynchronize"], 0);
  EXPECT_STREQ(getenv("NCCL_MAX_CTAS"), "16");
  EXPECT_THROW(communicator->overlap([] { throw Error("no"); }), Error);
  EXPECT_EQ(state_->stream, &stream);
}

TEST_F(NcclTest, WhatIsMissingTooOldOrFailsIsSaid) {
  fake_->nccl_version = 21000;
  EXPECT_THAT(message_of([] { Api(); }),
              AllOf(HasSubstr("is 2.10.0; several GPUs need 2.18.0 or newer"),
                    HasSubstr("pip install -U nvidia-nccl-cu13")));
  setenv("CODA_NCCL", "/nowhere", 1);
  EXPECT_THAT(message_of([] { Api(); }),
              AllOf(HasSubstr("cannot find NCCL"), HasSubstr("pip install nvidia-nccl-cu13")));
  setenv("CODA_NCCL", CODA_FAKE_CUDA, 1);
  fake_->nccl_version = 22809;
  fake_->fails["ncclCommInitRank"] = 2;
  EXPECT_THAT(message_of([&] { join(state_, place_); }),
              AllOf(HasSubstr("connecting the GPUs: a fake reason: the last of them"),
                    HasSubstr("NCCL_DEBUG=INFO")));
  place_.address = "";
  EXPECT_THAT(message_of([&] { join(state_, place_); }), HasSubstr("set MASTER_ADDR"));
}

}  // namespace
}  // namespace coda::gpu::nccl
