// SPDX-License-Identifier: Apache-2.0
// Pairs of columns: a tile has both members, wherever they lie, so no weight is permuted in memory.
#include "ladder.h"

int main(int count, char** arguments) {
  return ladder::main(count, arguments, [](const auto& texts) {
    coda::ProgramBuilder p("rope");
    const coda::Pairs heads = coda::Pairs::within(64);
    const coda::TileValue cos = p.load_tile("cos[S, 32]", {.rows = "position[M]:i32", .repeat = 4});
    const coda::TileValue sin = p.load_tile("sin[S, 32]", {.rows = "position", .repeat = 4});
    const auto [a, b] = p.split_pairs(p.gemm("h[M, K]", "w[256, K]"), heads);
    p.store("q", p.merge_pairs(a * cos - b * sin, b * cos + a * sin, heads));
    const ladder::Programs programs{p.build()};
    ladder::require_same(programs, texts);

    ladder::Values values{{"position", {0, 1, 2}}};
    ladder::run(programs, {{"M", 3}, {"K", 4}, {"S", 10}}, values);
    std::printf("q[0, 0] = %g\n", values["q"][0]);
  });
}
