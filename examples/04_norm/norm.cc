// SPDX-License-Identifier: Apache-2.0
// What waits for a whole row moves behind the next product, where it commutes: the scale of a norm.
#include "ladder.h"

int main(int count, char** arguments) {
  return ladder::main(count, arguments, [](const auto& texts) {
    coda::ProgramBuilder p("swiglu");
    const coda::TileValue r = p.load_per_row("r[M]");
    const coda::TileValue gate = p.gemm("h[M, K]", "wg[N, K]") * r;
    const coda::TileValue up = p.gemm("h", "wu[N, K]") * r;
    p.store("a", silu(gate) * up);
    const ladder::Programs programs{p.build()};
    ladder::require_same(programs, texts);

    ladder::Values values;
    ladder::run(programs, {{"M", 3}, {"N", 5}, {"K", 4}}, values);
    std::printf("a[0, 0] = %g\n", values["a"][0]);
  });
}
