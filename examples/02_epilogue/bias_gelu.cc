// SPDX-License-Identifier: Apache-2.0
// What happens to a tile of a product before it goes to memory is its epilogue: no pass over memory
// for the bias, none for the activation.
#include "ladder.h"

int main(int count, char** arguments) {
  return ladder::main(count, arguments, [](const auto& texts) {
    coda::ProgramBuilder p("bias_gelu");
    const coda::TileValue z = p.gemm("x[M, K]", "w[N, K]") + p.load_per_column("bias[N]");
    p.store("a", gelu(z));
    const ladder::Programs programs{p.build()};
    ladder::require_same(programs, texts);

    ladder::Values values;
    ladder::run(programs, {{"M", 3}, {"N", 5}, {"K", 4}}, values);
    std::printf("a[0, 0] = %g\n", values["a"][0]);
  });
}
