// SPDX-License-Identifier: Apache-2.0
// Compiles the graph and passes the reports to CheckOutput.
#include "check_graph.h"

#include <cstdio>

#include "check_report.h"
#include "check_sizes.h"
#include "coda/device.h"
#include "coda/error.h"
#include "coda/run_graph.h"
#include "program_file.h"

namespace coda::tools {

void check_graph(const NamedGraph& named, const GraphCheck& how) {
  refuse_other_sizes(named, how.sizes);
  const Factors factors = factors_of(named);
  std::vector<DimValues> all = usual_sizes(factors);
  if (!how.sizes.empty()) all = {how.sizes};
  for (const std::string& symbol : symbols_of(named)) {
    require(all.front().contains(symbol),
            factors.contains(symbol)
                ? "the size " + symbol + " is not known: give it, as in --sizes " + symbol + "=128"
                : "no input of the graph has the size " + symbol +
                      ": give all sizes, as in --sizes " + symbol + "=128");
  }
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // as for programs
  const std::string why = how.backend == "cpu" ? "" : why_no_gpu();
  require(how.backend != "gpu" || why.empty(), "--backend gpu: " + why);
  CheckOutput output(how.json);
  if (how.backend != "cpu") {
    output.device(why.empty() ? describe_gpu()
                              : "no GPU here: checked on the CPU alone; `coda info` says why");
  }
  output.begin_backends(named.name);
  for (const DimValues& sizes : all) {
    output.announce(sizes);
    output.add(sizes,
               coda::check_graph(named, sizes,
                                 {.backend = how.backend, .target = how.target, .seed = how.seed}));
  }
  if (how.backward) {
    output.begin("the derived backward");
    const DimValues sizes = how.sizes.empty() ? small_sizes(factors) : how.sizes;
    output.add(sizes, check_backward(named, sizes, how.seed), true);
  }
  output.end(how.seed, how.backend == "gpu", "graph");
}

}  // namespace coda::tools
