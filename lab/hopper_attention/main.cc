// SPDX-License-Identifier: Apache-2.0
// Attention alone on a GPU, forward and backward, repeatable and fast: milliseconds of a call, the
// best of a few short bursts (cool) and the mean of two seconds (hot). Tensors lie as in a LLaMA's
// step, q, k and v as columns of one matrix, or each by itself.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "coda/backend.h"
#include "coda/error.h"
#include "coda/operation.h"
#include "coda/plan.h"

namespace {

using namespace coda;
using Clock = std::chrono::steady_clock;

struct Case {
  int64_t sequences, tokens, heads, kv_heads, dim;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double ms_of(Backend& gpu, Kernel& kernel, const std::vector<TensorView>& views, double seconds) {
  int count = 0;
  gpu.synchronize();
  const auto start = Clock::now();
  do {
    for (int i = 0; i < 3; ++i, ++count) kernel.run(views);
    gpu.synchronize();
  } while (seconds_since(start) < seconds);
  return 1e3 * seconds_since(start) / count;
}

void measure(const Case& s, GpuAttention attention, bool backward, bool is_joined) {
  const auto gpu = make_backend("gpu", {.attention = attention});
  const int64_t rows = s.sequences * s.tokens;
  const int64_t q = s.heads * s.dim, kv = s.kv_heads * s.dim;
  OpaqueCall call;
  call.function = backward ? "attention_backward" : "attention";
  call.attributes = {{"heads", s.heads},
                     {"kv_heads", s.kv_heads},
                     {"head_dim", s.dim},
                     {"scale", 0.125},
                     {"causal", 1}};
  call.sizes = {{"sequence", Dim(s.tokens)}};
  std::vector<Tensor> kept;
  std::vector<TensorDecl> decls;
  std::vector<TensorView> views;
  const auto add = [&](const char* name, int64_t cols, const TensorView& view) {
    decls.push_back({name, {rows, cols}, view.dtype});
    views.push_back(view);
  };
  const auto random = [&](DType dtype, int64_t cols) {
    std::vector<float> values(static_cast<size_t>(rows * cols));
    uint32_t state = 1;
    for (float& value : values) {
      state = state * 1664525 + 1013904223;
      value = static_cast<float>(state >> 8) / (1 << 23) - 1;
    }
    kept.emplace_back(dtype, rows, cols, *gpu).set(values);
    return kept.back().view();
  };
  const auto columns = [](TensorView view, int64_t first, int64_t count) {
    view.data = static_cast<std::byte*>(view.data) + first * size_of(view.dtype);
    view.cols = count;
    return view;
  };
  const auto add_three = [&](const char* a, const char* b, const char* c) {
    if (is_joined) {
      const TensorView all = random(DType::bf16, q + 2 * kv);
      add(a, q, columns(all, 0, q));
      add(b, kv, columns(all, q, kv));
      add(c, kv, columns(all, q + kv, kv));
    } else {
      add(a, q, random(DType::bf16, q));
      add(b, kv, random(DType::bf16, kv));
      add(c, kv, random(DType::bf16, kv));
    }
  };
  kept.reserve(16);
  add_three("q", "k", "v");
  add("y", q, random(DType::bf16, q));
  add("lse", s.heads, random(DType::f32, s.heads));
  if (backward) {
    add("dy", q, random(DType::bf16, q));
    add_three("dq", "dk", "dv");
  }
  for (size_t i = 0; i < decls.size(); ++i)
    (i < (backward ? 6U : 3U) ? call.inputs : call.outputs).push_back(decls[i].name);
  const auto start = Clock::now();
  const auto kernel = gpu->prepare(call, decls, {});
  std::vector<BackendMemory> scratch;
  if (kernel->scratch_bytes() > 0) {
    scratch.push_back(gpu->allocate(kernel->scratch_bytes(), "scratch"));
    kernel->use_scratch(scratch.back(), kernel->scratch_bytes());
  }
  kernel->run(views);
  gpu->synchronize();
  const double ready = seconds_since(start);
  double cool = 1e9;
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    cool = std::min(cool, ms_of(*gpu, *kernel, views, 0.002));
  }
  const double hot = ms_of(*gpu, *kernel, views, 1.0);
  std::printf(
      "%2ld x %5ld, heads %ld/%ld of %3ld  %-8s %-10s %-6s  cool %7.3f  hot %7.3f ms, "
      "scratch %5.2f GiB, first call %.2f s\n",
      s.sequences, s.tokens, s.heads, s.kv_heads, s.dim, backward ? "backward" : "forward",
      attention == GpuAttention::fast ? "fast" : "repeatable", is_joined ? "joined" : "apart", cool,
      hot, static_cast<double>(kernel->scratch_bytes()) / (1 << 30), ready);
  std::fflush(stdout);
}

}  // namespace

int main() {
  try {
    for (const Case& s :
         {Case{16, 2048, 32, 8, 64}, Case{4, 8192, 32, 8, 64}, Case{8, 2048, 32, 8, 128}}) {
      for (const bool is_joined : {true, false}) {
        measure(s, GpuAttention::repeatable, false, is_joined);
        measure(s, GpuAttention::repeatable, true, is_joined);
        measure(s, GpuAttention::fast, true, is_joined);
      }
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hopper_attention: %s\n", error.what());
    return 1;
  }
}
