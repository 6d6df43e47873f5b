// SPDX-License-Identifier: Apache-2.0
// Programs with operands, results, roundings and masks of 8 bits, for a CPU and for a GPU.
#pragma once

namespace coda::tests {

// With products.
inline constexpr const char* kEightBitProducts[] = {
    R"(program scaled {
  y = gemm(x[M, K]:e4m3, w[N, K]:e4m3, nt) * per_row(r[M]) * per_column(s[N])
  store(y:bf16, y)
  row_partial(largest, abs_max(y))
})",
    R"(program summed {
  y = gemm(x[M, K]:e5m2, w[N, K]:e5m2, nt) + tile(h[M, N]:bf16)
  store(y:bf16, y)
})",
    R"(program gated {
  gate = gemm(x[M, K]:e4m3, w_gate[N, K]:e4m3, nt)
  store(y:bf16, silu(gate) * gemm(x, w_up[N, K]:e4m3, nt))
})",
    R"(program quantised {
  y = gemm(x[M, K]:bf16, w[N, K]:bf16, nt) * 0.25
  store(y:e4m3, y)
  store(rounded:bf16, as_stored(y, e5m2) * 2)
})",
    // A gradient, and what it is multiplied by.
    R"(program mixed {
  store(dw, gemm(dy[M, K]:e5m2, x[N, K]:e4m3, nt))
  store(dy_w:bf16, gemm(w[M, K]:e4m3, dz[N, K]:e5m2, nt) * scalar(scale))
})",
    // In both orders, with the largest magnitude: what an operand of later products leaves. A
    // product is 0 outside of the tensors alone.
    R"(program copied {
  acc = gemm(x[M, K]:bf16, w[N, K]:bf16, nt)
  abs_max_into(product_largest, acc + equal(acc, 0) * 1e6)
  y = acc + tile(h[M, N]:bf16)
  scaled = y * scalar(scale)
  store(y:bf16, y)
  store(y_rows:e4m3, scaled)
  store_transposed(y_columns:e4m3, scaled)
  store_transposed(y_gradient:e5m2, y)
  abs_max_into(largest, y)
})",
    // Of pairs: SwiGLU's gradient.
    R"(program pairs {
  da = gemm(dx[M, K]:e4m3, w[N, K]:e4m3, nt)
  gate, up = split_pairs(tile(z[M, 2*N]:bf16), concatenated)
  s = sigmoid(gate)
  dz = merge_pairs(da * up * s * (1 + gate * (1 - s)), da * gate * s, concatenated)
  store(dz_rows:e4m3, dz)
  store_transposed(dz_columns:e4m3, dz)
  abs_max_into(dz_largest, dz)
  a = gate * s * up
  store_transposed(a_columns:e4m3, a)
  abs_max_into(a_largest, a)
})",
    // Masks: of elements, of gathered rows, of columns; and one that is made.
    R"(program masked {
  y = where(tile(keep[M, N]:u8), gemm(x[M, K]:bf16, w[N, K]:bf16, nt), 0)
  h = tile(h[M, N]:bf16) * tile(table[S, N]:u8, rows=ids[M])
  store(y:bf16, y + as_stored(h * 100, u8) * per_column(columns[N]:u8))
  store(positive:u8, h > 0)
})",
    R"(program masked_pairs {
  gate, up = split_pairs(gemm(x[M, K]:bf16, w[2*N, K]:bf16, nt), interleaved)
  first, second = split_pairs(tile(keep[M, 2*N]:u8), interleaved)
  store(y:bf16, where(first, gate, 1) * where(second, up, 1))
})"};

// Without: read, rounded on the way, and written.
inline constexpr const char* kEightBitTiles[] = {
    R"(program moved {
  x = tile(x[M, N]:e4m3) * per_row(r[M]:e5m2)
  store(y[M, N]:e5m2, x)
  store(z[M, N]:bf16, as_stored(x, e4m3) - per_column(c[N]:e4m3))
})",
    R"(program neighbours {
  first, second = split_pairs(tile(x[M, 2*N]:e4m3), interleaved)
  store(y:e5m2, merge_pairs(second, first * 0.5, interleaved))
})",
    R"(program masks {
  x = tile(x[M, N]:bf16)
  keep = tile(keep[M, N]:u8)
  store(y:bf16, where(keep, x, 0) * per_row(rows[M]:u8) + per_column(columns[N]:u8))
  store(positive:u8, x > 0)
  store(number:u8, as_stored(x * 300, u8) + keep)
  store_transposed(turned:u8, keep)
  row_partial(count, sum(keep))
})"};

}  // namespace coda::tests
