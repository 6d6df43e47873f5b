// SPDX-License-Identifier: Apache-2.0
// A program is a product and what is done with it. Here it is only stored.
#include "ladder.h"

int main(int count, char** arguments) {
  return ladder::main(count, arguments, [](const auto& texts) {
    coda::ProgramBuilder p("gemm");
    p.store("y", p.gemm("x[M, K]", "w[N, K]"));
    const ladder::Programs programs{p.build()};
    ladder::require_same(programs, texts);

    ladder::Values values;
    ladder::run(programs, {{"M", 3}, {"N", 5}, {"K", 4}}, values);
    double sum = 0;
    for (size_t k = 0; k < 4; ++k) sum += values["x"][k] * values["w"][k];
    std::printf("y[0, 0] = %g, by hand %g\n", values["y"][0], sum);
    coda::require(std::abs(values["y"][0] - sum) < 1e-5, "the product is wrong");
  });
}
