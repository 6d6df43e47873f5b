// SPDX-License-Identifier: Apache-2.0
// A CUDA driver without a GPU, for tests: memory is the host's, copies and fills work, launches are
// recorded, and any call can be made to fail. The same library is an NVRTC that is too old, and an
// NCCL of one process, which records what is exchanged.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace coda::gpu {

struct FakeLaunch {
  std::string function;
  unsigned grid = 0;
  unsigned block = 0;
  unsigned cluster = 1;
  bool is_dependent = false;
  unsigned shared_bytes = 0;
  void* stream = nullptr;
  std::vector<unsigned char> arguments;
};

// What a fake descriptor says, in its 128 bytes.
struct FakeTensorMap {
  uint64_t address;
  uint64_t columns;
  uint64_t rows;
  uint64_t pitch_bytes;
  uint32_t box_columns;
  uint32_t box_rows;
  int32_t type;
  int32_t swizzle;
};

struct FakeExchange {
  const void* from = nullptr;
  void* to = nullptr;
  size_t count = 0;
  int type = 0;
  int operation = -1;
  void* stream = nullptr;
};

struct FakeCuda {
  int version = 13000;
  int devices = 1;
  int major = 9;
  int minor = 0;
  int shared_bytes = 232448;
  bool has_pools = true;
  size_t argument_bytes = 0;  // of each launch's argument, to be recorded
  int nccl_version = 22809;
  std::vector<FakeExchange> exchanges;
  // "record" and "wait" of events, "copy" to and from the host, and "exchange", each with its
  // stream, in their order.
  std::vector<std::pair<std::string, void*>> order;
  std::map<std::string, int> fails;  // function -> result
  std::vector<FakeLaunch> launches;
  std::map<std::string, int> calls;  // function -> how often
  std::map<uint64_t, size_t> allocated;
};

}  // namespace coda::gpu
