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

// With products, and tiles that are loaded in 8 bits beside them.
inline constexpr const char* kEightBitLoads[] = {
    // SwiGLU's gradient of values that were kept, beside a load of 16 bits and stores of both
    // kinds.
    R"(program kept {
  da = gemm(dx[M, K]:e5m2, w[N, K]:e4m3, nt) + tile(h[M, N]:bf16)
  gate = tile(gate[M, N]:e4m3) * scalar(gate_inverse)
  up = tile(up[M, N]:e4m3) * scalar(up_inverse)
  s = sigmoid(gate)
  store(d_up:bf16, da * gate * s)
  store(d_gate:bf16, da * up * s * (1 + gate * (1 - s)))
  a = gate * s * up
  store(a_rows:e5m2, a)
  store_transposed(a_columns:e4m3, a)
})",
    R"(program kept_pairs {
  gate, up = split_pairs(tile(z[M, 2*N]:e4m3), concatenated)
  dz = gemm(dx[M, K]:e4m3, w[N, K]:e4m3, nt)
  store(y:bf16, merge_pairs(dz * up, dz * gate, concatenated))
})",
    // SwiGLU, which leaves three values along rows alone: one and a half planes.
    R"(program kept_forward {
  gate = gemm(x[M, K]:e4m3, w_gate[N, K]:e4m3, nt) * scalar(inverse)
  up = gemm(x, w_up[N, K]:e4m3, nt) * scalar(inverse)
  a = up * silu(gate)
  store(gate_rows:e4m3, gate * scalar(gate_scale))
  abs_max_into(gate_largest, gate)
  store(a_rows:e4m3, a * scalar(a_scale))
  abs_max_into(a_largest, a)
  store(up_rows:e4m3, up * scalar(up_scale))
  abs_max_into(up_largest, up)
})",
    // Read in a walk over heads of 16, and again behind it.
    R"(program kept_heads {
  y = gemm(x[M, K]:bf16, w[16*S, K]:bf16, nt) + tile(h[M, 16*S]:e5m2)
  store(y:bf16, y * repeat_group(rsqrt(reduce_group(y * y, 16) + 1), 16))
})"};

// With operands whose blocks have scales: the sizes are K = 128 B, N = 128 C columns.
inline constexpr const char* kScaledProducts[] = {
    R"(program by_blocks {
  y = gemm(scaled(x[M, 128*B]:e4m3, xs[M, B]), scaled(w[128*C, 128*B]:e4m3, ws[C, B]))
  store(y:bf16, y)
})",
    // A gradient and a weight, a residual and statistics; its largest magnitudes, whose scales the
    // tile finds.
    R"(program quantises {
  acc = gemm(scaled(dy[M, 128*B]:e5m2, dys[M, B]), scaled(w[128*C, 128*B]:e4m3, ws[C, B]))
  y = acc + tile(h[M, 128*C]:bf16)
  scale = max(abs_max_group(y, 128) / 448, 1e-30)
  store(ys, scale)
  store(y_blocks:e4m3, y / repeat_group(scale, 128))
  row_partial(squares, sum(y * y))
})",
    R"(program gated {
  gate, up = split_pairs(gemm(scaled(x[M, 128*B]:e4m3, xs[M, B]),
                              scaled(w[256*C, 128*B]:e4m3, ws[2*C, B])), concatenated)
  store(y:bf16, silu(gate) * up)
})",
    R"(program rotated {
  first, second = split_pairs(gemm(scaled(x[M, 128*B]:e4m3, xs[M, B]),
                                   scaled(w[128*C, 128*B]:e4m3, ws[C, B])), 64)
  store(y:bf16, merge_pairs(first * 2, second - first, 64))
})",
    // Two products of one operand, of which one has scales of its own only.
    R"(program beside {
  a = gemm(scaled(x[M, 128*B]:e4m3, xs[M, B]), v[128*C, 128*B]:e4m3)
  store(y:bf16, a * gemm(scaled(x, xs), scaled(w[128*C, 128*B]:e4m3, ws[C, B])))
})",
    R"(program segments {
  y = gemm(scaled(x[M, 128*B]:e4m3, xs[M, B]), scaled(w[128*C, 128*B]:e4m3, ws[C, B]);
           scaled(z[M, 256]:e4m3, zs[M, 2]), v[128*C, 256]:e4m3)
  store(y:bf16, y)
})",
    // Scales of rows of both, which are a plain kernel's; and of rows by blocks.
    R"(program by_rows {
  store(dw, gemm(scaled(dy[M, 128*B]:e4m3, dys[M, B]), scaled(x[128*C, 128*B]:e4m3, xs[128*C, B])))
})",
    R"(program turned {
  store(dw, gemm(scaled(w[128*C, 128*B]:e4m3, ws[C, B]), dy[M, 128*B]:e5m2))
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

// A value by blocks of a row, with scales that are found where it is read; and groups that no tile
// holds.
inline constexpr const char* kQuantisedTiles[] = {
    R"(program blocks {
  x = tile(x[M, 128*C]:bf16) * per_row(r[M]) + per_column(c[128*C])
  scale = max(abs_max_group(x, 128) / 448, 1e-30)
  store(xs, scale)
  store(x_blocks:e4m3, x / repeat_group(scale, 128))
})",
    R"(program wide_groups {
  x = tile(x[M, 384*C]:bf16)
  store(largest, abs_max_group(x, 384))
  store(sums, reduce_group(x, 384))
})"};

}  // namespace coda::tests
