// SPDX-License-Identifier: Apache-2.0
#include "choices.h"

#include <fmt/format.h>

#include "hopper/codegen/gemm_program.h"
#include "hopper/lower_parts.h"
#include "hopper/tuned_file.h"
#include "sized_programs.h"

namespace coda::tools {
namespace {

void list_choices(const Program& whole, const DimValues& sizes,
                  const hopper::LowerOptions& options) {
  const hopper::GemmProgram program(whole, sizes, options);
  for (size_t kernel = 0; kernel < program.kernels(); ++kernel) {
    const hopper::ChosenConfig chosen = program.chosen(kernel);
    const hopper::KernelClass own = program.class_of(kernel);
    fmt::print("{}: {}, from {}\n", whole.name, hopper::text(chosen.choice), hopper::text(chosen));
    fmt::print("  class {}, extents {}\n", own.name, hopper::text(own.extents));
    for (const hopper::RankedChoice& ranked : program.ranked(kernel))
      fmt::print("  {}\n", hopper::text(ranked.choice));
  }
}

}  // namespace

void print_choices(const ProgramFlags& flags) {
  const auto tuned =
      hopper::load_tuned_rows(hopper::latest_tuned_file(hopper::default_cache_folder()));
  for (SizedProgram& one : sized_programs(flags)) {
    one.options.tuned = tuned;
    for (const hopper::LoweredPart& part : hopper::parts_of(one.program, one.sizes, one.options))
      list_choices(part.part.program, one.sizes, part.options);
  }
}

}  // namespace coda::tools
