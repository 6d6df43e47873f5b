// SPDX-License-Identifier: Apache-2.0
#include "table_kernels.h"

#include <fmt/format.h>

#include <set>
#include <string>
#include <vector>

#include "coda/error.h"
#include "hopper/codegen/gemm_program.h"
#include "hopper/codegen/kernel_names.h"
#include "hopper/jit/kernel_builder.h"
#include "hopper/jit/parallel_for.h"
#include "measure/tune.h"
#include "table_cases.h"

namespace coda::tools {
namespace {

struct NamedSource {
  std::string program;
  std::string source;
};

class Sources {
 public:
  void add(const std::string& program, std::string source) {
    if (seen_.insert(source).second) all_.push_back({program, std::move(source)});
  }
  const std::vector<NamedSource>& all() const { return all_; }

 private:
  std::set<std::string> seen_;
  std::vector<NamedSource> all_;
};

// Of products only: nothing else has a configuration. One text for all sizes and names.
Sources sources_of_table() {
  Sources sources;
  for (const int64_t tokens : {1024, 4096, 16384, 65536}) {
    for (const SizedProgram& one : table_programs(tokens)) {
      for (const measure::TuneJob& job : measure::tune_jobs(one.program, one.sizes, one.options)) {
        const hopper::GemmProgram program(hopper::without_names(job.program), job.sizes,
                                          job.options);
        const hopper::GemmConfig choice = program.chosen(job.kernel).choice;
        sources.add(job.name + " as " + hopper::text(choice),
                    measure::without_comments(program.emit(job.kernel, choice).source));
      }
    }
  }
  return sources;
}

}  // namespace

void check_table(unsigned threads) {
  const Sources sources = sources_of_table();
  hopper::KernelBuilder builder;
  std::vector<std::string> defects(sources.all().size());
  hopper::parallel_for(sources.all().size(), threads, [&](size_t i) {
    const NamedSource& one = sources.all()[i];
    const hopper::CompiledKernel kernel = builder.build(one.program, one.source);
    if (!kernel.defect.empty())
      defects[i] = "the kernel of program '" + one.program + "': " + kernel.defect;
  });
  std::erase(defects, "");
  fmt::print("{} kernels: {} compiled, {} were in the cache\n", sources.all().size(),
             builder.cache().misses(), builder.cache().hits());
  for (const std::string& defect : defects) fmt::print("slow: {}\n", defect);
  require(
      defects.empty(),
      fmt::format("{} kernels of the shipped table's configurations have defects", defects.size()));
}

}  // namespace coda::tools
