// SPDX-License-Identifier: Apache-2.0
// Sums over groups of columns (heads) in a product's epilogue: right, and the same bits, for every
// tile that holds a head whole. Needs a GPU; skipped elsewhere.
#include <set>
#include <string>
#include <tuple>

#include "gpu/configure/choose_config.h"
#include "gpu/lower.h"
#include "on_gpu/on_gpu.h"
#include "on_gpu/program_check.h"

namespace coda::tests {
namespace {

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
  return text;
}

// `D` is the head's columns, `d` half of them.
constexpr const char* kPrograms[] = {
    // A norm with its weight, of a value that is stored too, rotated, as queries are in training.
    R"(program rotated {
  q = as_stored(gemm(x[M, K]:bf16, w[D*H, K]:bf16) * per_row(rstd[M]), bf16)
  store(q[M, D*H]:bf16, q)
  s = rsqrt(reduce_group(q * q, D) * 0.02 + 1e-6)
  store(s[M, H], s)
  a, b = split_pairs(q * repeat_group(s, D) * per_column(g[D*H]), D)
  cos = tile(cos[S, d], rows=position[M]:i32, repeat=H)
  sin = tile(sin[S, d], rows=position, repeat=H)
  store(rotated:bf16, merge_pairs(a * cos - b * sin, b * cos + a * sin, D))
})",
    // A layer norm of each head: a sum of what another sum is taken from; with a bias of columns.
    R"(program centred {
  z = gemm(x[M, K]:bf16, w[K, D*H]:bf16) + per_column(bias[D*H]:bf16)
  c = z - repeat_group(reduce_group(z, D) * 0.02, D)
  store(y:bf16, c * repeat_group(rsqrt(reduce_group(c * c, D) * 0.02 + 1e-6), D))
  row_partial(squares, sum(c * c))
})",
    // A norm's gradient, of what was saved.
    R"(program backward {
  dy = gemm(g[M, K]:bf16, w[K, D*H]:bf16)
  x = tile(x[M, D*H]:bf16)
  s = repeat_group(tile(s[M, H]), D)
  c = repeat_group(reduce_group(dy * x, D) * 0.02, D)
  store(dx:bf16, (dy - x * s * s * c) * s)
})"};

using HeadSums = OnGpu;

TEST_F(HeadSums, AreRightWithTheSameBitsForEveryTile) {
  uint64_t seed = 60;
  for (const int head : {32, 64, 96, 128, 256}) {
    for (const char* text : kPrograms) {
      std::string own = replaced(text, "D*H", std::to_string(3 * head));
      own = replaced(replaced(own, "repeat=H", "repeat=3"), ", H]", ", 3]");
      own = replaced(replaced(own, ", d]", ", " + std::to_string(head / 2) + "]"), "D",
                     std::to_string(head));
      const Program program = parse_program(own);
      for (const DimValues& all : {DimValues{{"M", 392}, {"K", 200}, {"S", 50}},
                                   DimValues{{"M", 77}, {"K", 65}, {"S", 9}}}) {
        const DimValues sizes = bind(program, all);
        const RowGaps gaps{.gap = 0, .multiple = 8};
        SCOPED_TRACE(program.name + " of heads of " + std::to_string(head));
        check(program, sizes, ++seed, gaps, kSinglePrecision);
        const Values inputs = random_inputs(program, sizes, seed);
        std::vector<std::pair<const Program*, gpu::LowerOptions>> kernels;
        std::set<std::tuple<uint32_t, uint32_t, device::Schedule>> seen;
        for (const gpu::GemmConfig& choice : gpu::legal_choices(program, sizes, {})) {
          if (!seen.insert({choice.tile_m, choice.tile_n, choice.schedule}).second) continue;
          gpu::LowerOptions options;
          options.choice = choice;
          kernels.emplace_back(&program, options);
        }
        compile_ahead(kernels, sizes, gaps);
        const Values chosen = run_on_gpu(program, sizes, inputs, gaps);
        for (const auto& [same, options] : kernels) {
          expect_same_bits(chosen, run_on_gpu(program, sizes, inputs, gaps, options),
                           program.name + " with " + gpu::text(*options.choice));
        }
      }
    }
  }
}

}  // namespace
}  // namespace coda::tests
