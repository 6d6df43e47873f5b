// SPDX-License-Identifier: Apache-2.0
// The part of NCCL that training on several GPUs needs. It is declared here and opened at run time,
// so that building does not need NCCL. Values are those of nccl.h, which hold for all of NCCL 2.
#pragma once

#include <cstddef>
#include <string>

namespace coda::gpu::nccl {

struct UniqueId {
  char bytes[128];
};

inline constexpr int kBytes = 1;  // types: unsigned, of 8 bits
inline constexpr int kFloat32 = 7;
inline constexpr int kSum = 0;  // operations
inline constexpr int kMaximum = 2;

struct Api {
  // Throws Error if NCCL is missing or too old.
  Api();

  int version = 0;  // 10000 * major + 100 * minor + patch

  int (*get_unique_id)(UniqueId*);
  int (*init_rank)(void**, int, UniqueId, int);
  int (*destroy)(void*);
  int (*reduce_scatter)(const void*, void*, size_t, int, int, void*, void*);
  int (*all_gather)(const void*, void*, size_t, int, void*, void*);
  int (*all_reduce)(const void*, void*, size_t, int, int, void*, void*);
  const char* (*error_string)(int);
  const char* (*last_error)(void*);
};

// Opened at the first call.
const Api& api();

// Throws Error unless `status` is 0, with what was being done and NCCL's reason.
void check(int status, const char* what);

// "2.28.9".
std::string version_text(int version);

}  // namespace coda::gpu::nccl
