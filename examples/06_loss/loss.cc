// SPDX-License-Identifier: Apache-2.0
// A reduction whose partials have two parts, a maximum and a sum; and a value that is rounded
// before its statistics are.
#include "ladder.h"

int main(int count, char** arguments) {
  return ladder::main(count, arguments, [](const auto& texts) {
    constexpr auto kLogSumExp = coda::PartialKind::log_sum_exp;
    coda::ProgramBuilder p("head");
    const coda::TileValue l =
        p.as_stored(p.gemm("h[M, K]:bf16", "w[N, K]:bf16"), coda::DType::bf16);
    p.store("l:bf16", l);
    p.store("l_target", p.select_column(l, p.load_per_row("target[M]:i32")));
    p.row_partial("sums", kLogSumExp, l);

    coda::ProgramBuilder f("loss");
    const coda::TileValue lse = f.combine_rows("sums[M, N]", kLogSumExp, coda::kBothResults);
    f.store("loss", lse - f.load_per_row("l_target[M]"));
    const ladder::Programs programs{p.build(), f.build()};
    ladder::require_same(programs, texts);

    ladder::Values values{{"target", {0, 1, 2}}};
    ladder::run(programs, {{"M", 3}, {"N", 5}, {"K", 4}}, values);
    double sum = 0;
    for (size_t j = 0; j < 5; ++j) sum += std::exp(values["l"][j]);
    const double loss = std::log(sum) - values["l"][0];
    std::printf("loss[0] = %g, by hand %g\n", values["loss"][0], loss);
    coda::require(std::abs(values["loss"][0] - loss) < 1e-5, "the loss is wrong");
  });
}
