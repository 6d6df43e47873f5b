// SPDX-License-Identifier: Apache-2.0
// Buffers of any size are aligned and wholly writable; what cannot be had is an Error.
#include "base/aligned_buffer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "coda/error.h"

namespace coda {
namespace {

TEST(AlignedBuffer, IsAlignedAndWritableAtAnySize) {
  for (size_t bytes :
       {size_t{0}, size_t{1}, size_t{64}, size_t{65}, size_t{1} << 20, (size_t{4} << 20) + 3}) {
    AlignedBuffer buffer(bytes);
    EXPECT_EQ(buffer.bytes(), bytes);
    ASSERT_NE(buffer.data(), nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % kCacheLine, 0u);
    std::memset(buffer.data(), 1, bytes);
    AlignedBuffer moved = std::move(buffer);
    EXPECT_EQ(moved.bytes(), bytes);
  }
}

TEST(AlignedBuffer, ASizeThatCannotBeHadThrows) {
  EXPECT_THROW(AlignedBuffer(std::numeric_limits<size_t>::max() - 5), Error);
}

}  // namespace
}  // namespace coda
