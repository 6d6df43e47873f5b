// SPDX-License-Identifier: Apache-2.0
// Attention alone on a GPU, forward and backward, by the library's kernels and by cuDNN: TFLOP/s of
// the pairs of tokens that see each other, sustained, one line for each shape and kernel. Tensors
// lie as in a LLaMA's step, q, k and v as columns of one matrix. Usage: hopper_attention [SECONDS],
// of each measurement (1.5). Half of that is warm-up.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
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
  bool causal = true;
  int64_t window = 0;
  double soft_cap = 0;
  int64_t document = 0;  // tokens of each packed document, the last may be shorter; 0: none

  int64_t rows() const { return sequences * tokens; }
  // Two products forward and five backward, of two FLOP an element, for each pair of tokens.
  double flops(bool backward) const {
    double pairs = 0;
    for (int64_t token = 0; token < tokens; ++token) {
      const int64_t first = document == 0 ? 0 : token / document * document;
      const int64_t seen = causal ? token + 1 - first : tokens;
      pairs += static_cast<double>(window == 0 ? seen : std::min(seen, window));
    }
    return (backward ? 10.0 : 4.0) * pairs * static_cast<double>(sequences * heads * dim);
  }
  std::string text() const {
    std::string result = std::to_string(sequences) + " x " + std::to_string(tokens) + ", heads " +
                         std::to_string(heads) + "/" + std::to_string(kv_heads) + " of " +
                         std::to_string(dim);
    if (!causal) result += ", not causal";
    if (window != 0) result += ", window " + std::to_string(window);
    if (soft_cap != 0) result += ", soft-cap";
    if (document != 0) result += ", documents of " + std::to_string(document);
    return result;
  }
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The median of runs of some 20 ms each.
double ms_of(Backend& gpu, Kernel& kernel, const std::vector<TensorView>& views, double seconds) {
  const auto run = [&](int count) {
    const auto start = Clock::now();
    for (int i = 0; i < count; ++i) kernel.run(views);
    gpu.synchronize();
    return 1e3 * seconds_since(start) / count;
  };
  run(2);
  const int count = std::max(1, static_cast<int>(20 / run(2)));
  for (const auto start = Clock::now(); seconds_since(start) < seconds / 2;) run(count);
  std::vector<double> times;
  for (const auto start = Clock::now(); seconds_since(start) < seconds / 2;)
    times.push_back(run(count));
  std::ranges::nth_element(times, times.begin() + std::ssize(times) / 2);
  return times[times.size() / 2];
}

void measure(const Case& s, GpuAttention attention, bool backward, double seconds) {
  const auto gpu = make_backend("gpu", {.attention = attention});
  const int64_t q = s.heads * s.dim, kv = s.kv_heads * s.dim;
  OpaqueCall call;
  call.function = backward ? "attention_backward" : "attention";
  call.attributes = {{"heads", s.heads},           {"kv_heads", s.kv_heads},
                     {"head_dim", s.dim},          {"scale", 0.125},
                     {"causal", s.causal ? 1 : 0}, {"window", s.window},
                     {"soft_cap", s.soft_cap},     {"documents", s.document != 0 ? 1 : 0}};
  call.sizes = {{"sequence", Dim(s.tokens)}};
  std::vector<Tensor> kept;
  std::vector<TensorDecl> decls;
  std::vector<TensorView> views;
  const auto add = [&](const char* name, int64_t cols, const TensorView& view) {
    decls.push_back({name, {s.rows(), cols}, view.dtype});
    views.push_back(view);
  };
  const auto random = [&](DType dtype, int64_t cols) {
    std::vector<float> values(static_cast<size_t>(s.rows() * cols));
    uint32_t state = 1;
    for (float& value : values) {
      state = state * 1664525 + 1013904223;
      value = static_cast<float>(state >> 8) / (1 << 23) - 1;
    }
    kept.emplace_back(dtype, s.rows(), cols, *gpu).set(values);
    return kept.back().view();
  };
  const auto columns = [](TensorView view, int64_t first, int64_t count) {
    view.data = static_cast<std::byte*>(view.data) + first * size_of(view.dtype);
    view.cols = count;
    return view;
  };
  const auto add_three = [&](const char* a, const char* b, const char* c) {
    const TensorView all = random(DType::bf16, q + 2 * kv);
    add(a, q, columns(all, 0, q));
    add(b, kv, columns(all, q, kv));
    add(c, kv, columns(all, q + kv, kv));
  };
  kept.reserve(16);
  add_three("q", "k", "v");
  add("y", q, random(DType::bf16, q));
  add("lse", s.heads, random(DType::f32, s.heads));
  if (backward) {
    add("dy", q, random(DType::bf16, q));
    add_three("dq", "dk", "dv");
  }
  const std::ptrdiff_t operands = backward ? 6 : 3;
  for (std::ptrdiff_t i = 0; i < std::ssize(decls); ++i)
    (i < operands ? call.inputs : call.outputs).push_back(decls[i].name);
  if (s.document != 0) {
    std::vector<float> spans;
    for (int64_t row = 0; row < s.rows(); ++row) {
      const int64_t first = row % s.tokens / s.document * s.document;
      spans.push_back(static_cast<float>(first));
      spans.push_back(static_cast<float>(std::min(first + s.document, s.tokens)));
    }
    kept.emplace_back(DType::i32, s.rows(), 2, *gpu).set(spans);
    call.inputs.push_back("documents");
    decls.insert(decls.begin() + operands, {"documents", {s.rows(), 2}, DType::i32});
    views.insert(views.begin() + operands, kept.back().view());
  }
  const auto kernel = gpu->prepare(call, decls, {});
  std::vector<BackendMemory> scratch;
  if (kernel->scratch_bytes() > 0) {
    scratch.push_back(gpu->allocate(kernel->scratch_bytes(), "scratch"));
    kernel->use_scratch(scratch.back(), kernel->scratch_bytes());
  }
  const double ms = ms_of(*gpu, *kernel, views, seconds);
  std::printf("%-45s %-8s %-16s %8.3f ms %6.1f TFLOP/s, scratch %5.2f GiB\n", s.text().c_str(),
              backward ? "backward" : "forward",
              attention == GpuAttention::plain  ? "ours"
              : attention == GpuAttention::fast ? "cuDNN fast"
                                                : "cuDNN repeatable",
              ms, s.flops(backward) / ms * 1e-9,
              static_cast<double>(kernel->scratch_bytes()) / (1 << 30));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 1.5;
  const Case cases[] = {{4, 8192, 32, 8, 128},
                        {8, 2048, 32, 8, 128},
                        {4, 8192, 32, 8, 64},
                        {16, 2048, 32, 8, 64},
                        {4, 4096, 32, 8, 128, false},
                        {4, 8192, 32, 8, 128, true, 1024},
                        {4, 8192, 32, 8, 128, true, 0, 50},
                        {4, 8192, 8, 4, 256, true, 0, 50},
                        {1, 32768, 32, 8, 128, true, 0, 0, 8192},
                        {1, 32768, 32, 8, 128, true, 0, 0, 2000},
                        {1, 32768, 32, 8, 128, true, 0, 0, 500},
                        {1, 32768, 32, 8, 128, true, 0, 50, 2000},
                        {1, 32768, 8, 4, 256, true, 0, 50, 500}};
  for (const Case& s : cases) {
    for (const bool backward : {false, true}) {
      try {
        measure(s, GpuAttention::plain, backward, seconds);
        if (s.soft_cap != 0 || s.document != 0) continue;
        measure(s, GpuAttention::repeatable, backward, seconds);
        if (backward) measure(s, GpuAttention::fast, backward, seconds);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "%s: %s\n", s.text().c_str(), error.what());
      }
    }
  }
}
