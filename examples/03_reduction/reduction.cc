// SPDX-License-Identifier: Apache-2.0
// A reduction over a whole row takes two programs: tiles leave partial sums, a finalizer combines
// them. So no tile waits for another, and the bits are the same for every shape of the tiles.
#include "ladder.h"

int main(int count, char** arguments) {
  return ladder::main(count, arguments, [](const auto& texts) {
    coda::ProgramBuilder p("residual");
    const coda::TileValue x = p.gemm("y[M, K]", "w[N, K]") + p.load_tile("x0[M, N]");
    p.store("x", x);
    p.row_partial("squares", coda::PartialKind::sum, x * x);

    coda::ProgramBuilder f("statistic");
    const coda::TileValue squares = f.combine_rows("squares[M, N]", coda::PartialKind::sum);
    f.store("r", rsqrt(squares * f.load_scalar("inv_n") + 1e-5));
    const ladder::Programs programs{p.build(), f.build()};
    ladder::require_same(programs, texts);

    ladder::Values values{{"inv_n", {1.0F / 100}}};
    ladder::run(programs, {{"M", 3}, {"N", 100}, {"K", 4}}, values);
    double sum = 0;
    for (size_t j = 0; j < 100; ++j) sum += values["x"][j] * values["x"][j];
    const double r = 1 / std::sqrt(sum / 100 + 1e-5);
    std::printf("r[0] = %g, by hand %g\n", values["r"][0], r);
    coda::require(std::abs(values["r"][0] - r) < 1e-5, "the statistic is wrong");
  });
}
