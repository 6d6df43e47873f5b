// SPDX-License-Identifier: Apache-2.0
// The LLaMA block without attention that is measured: the same mathematics as
// bench/peers/block_torch.py, from the residual stream x0 and attention's output y0 to x2 and the
// rotated q, k and v.
#pragma once

#include "coda/builders.h"
#include "coda/compile.h"

namespace coda::bench {

struct BlockSize {
  int64_t tokens = 2048;
  int64_t width = 576;
  int64_t mlp = 1536;
  int64_t heads = 9;
  int64_t kv_heads = 3;

  int64_t head_dim() const { return width / heads; }
  double gemm_flops(bool backward) const {
    const double weights = static_cast<double>(width) *
                           static_cast<double>(2 * width + 2 * kv_heads * head_dim() + 3 * mlp);
    return (backward ? 6.0 : 2.0) * static_cast<double>(tokens) * weights;
  }
};

// Heads of 64, a third of them for keys and values, or else a quarter.
BlockSize block_size(int64_t tokens, int64_t width, int64_t mlp);

// Heads of 128, as many for keys and values.
BlockSize wide_headed(int64_t tokens, int64_t width, int64_t mlp);

// Adds the block to an empty graph; with `backward`, gradients of x0, y0 and all weights from d_x2,
// d_q, d_k, d_v.
CompileRequest add_block(Graph& graph, const BlockSize& size, DType storage, bool backward);

// The block compiled for speed at the rates of a machine; its only size is M, the tokens.
Plan block_plan(const BlockSize& size, DType storage, const Rates& rates, bool backward);

}  // namespace coda::bench
