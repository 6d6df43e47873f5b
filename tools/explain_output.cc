// SPDX-License-Identifier: Apache-2.0
// Prints explained plans as text and as JSON.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "coda/row_blocks.h"
#include "explained_plan.h"

namespace coda::tools {
namespace {

using nlohmann::ordered_json;

const char* name_of(StepRole role) {
  switch (role) {
    case StepRole::gemm: return "gemm";
    case StepRole::tile: return "tile";
    case StepRole::finalizer: return "finalizer";
    case StepRole::opaque: return "opaque";
  }
  return "?";
}

ordered_json explained_json(const StepCost& cost) {
  return {{"flops", cost.flops}, {"bytes", cost.bytes}, {"predicted_seconds", cost.seconds}};
}

ordered_json loops_of(const ExplainedPlan& plan) {
  const DimValues& sizes = plan.source.options.sizes;
  ordered_json loops = ordered_json::array();
  for (size_t i = 0; i < plan.compiled.plan.loops.size(); ++i) {
    const RowBlocks& loop = plan.compiled.plan.loops[i];
    const RowBlockBytes bytes = row_block_bytes(plan.compiled.plan, static_cast<int>(i), sizes);
    loops.push_back({{"symbol", loop.symbol},
                     {"rows", rows_of_block(loop, sizes)},
                     {"blocks", row_blocks_of(loop, sizes)},
                     {"bytes", bytes.block},
                     {"bytes_without_blocks", bytes.whole},
                     {"sums", loop.sums}});
  }
  return loops;
}

ordered_json explained_json(const ExplainedPlan& plan) {
  ordered_json steps = ordered_json::array();
  for (const ExplainedStep& s : plan.steps) {
    ordered_json step{{"name", s.step->name},
                      {"phase", s.is_backward ? "backward" : "forward"},
                      {"kind", name_of(s.step->role)}};
    step.update(explained_json(s.cost));
    if (s.measured) step["measured_seconds"] = *s.measured;
    if (const auto* program = std::get_if<Program>(&s.step->work)) {
      step["program"] = text(*program);
    } else {
      step["function"] = std::get<OpaqueCall>(s.step->work).function;
    }
    step["reasons"] = s.step->reasons;
    if (s.step->loop >= 0) step["loop"] = s.step->loop;
    if (s.step->later) step["program_of_later_blocks"] = text(*s.step->later);
    steps.push_back(std::move(step));
  }
  ordered_json out = explained_json(plan.total());
  if (const auto seconds = plan.measured()) out["measured_seconds"] = *seconds;
  out["saved_bytes"] = plan.saved();
  out["loops"] = loops_of(plan);
  out["notes"] = plan.compiled.plan.notes;
  out["steps"] = std::move(steps);
  return out;
}

constexpr const char* kRule =
    "An operation stands in the epilogue of the product that makes its latest operand, unless a\n"
    "line `why` says what stopped it or that memory is shared.\n\n";

constexpr const char* kLetters =
    "  A letter for each norm, where its weight goes: h into the activations (x * w is stored), F\n"
    "  into the next weight (folded), n nowhere: the norm is applied before its product. A letter\n"
    "  for each row scale, of what weight gradients are made: u of the scaled activations, d of\n"
    "  the scaled gradient. s or - for what need not be saved and saves time: it is, or is not.\n";

std::string measured_text(std::optional<double> seconds) {
  return seconds ? fmt::format("{:11.3f} ms", *seconds * 1e3) : std::string();
}

void print_steps(const ExplainedPlan& plan) {
  const bool has_times = plan.measured().has_value();
  fmt::print("\n{:4} {:10} {:>10} {:>12} {:>12}{}  {}\n", "", "kind", "GFLOP", "bytes", "predicted",
             has_times ? "      measured" : "", "step");
  size_t i = 0;
  for (const ExplainedStep& s : plan.steps) {
    fmt::print("{:4} {:10} {:10.3f} {:9.2f} MB {:9.3f} ms{}  {}{}{}\n", ++i, name_of(s.step->role),
               s.cost.flops / 1e9, s.cost.bytes / 1e6, s.cost.seconds * 1e3,
               measured_text(s.measured), s.is_backward ? "backward " : "forward ", s.step->name,
               s.step->loop >= 0 ? "  (in blocks)" : "");
  }
  const Plan& p = plan.compiled.plan;
  for (size_t loop = 0; loop < p.loops.size(); ++loop) {
    fmt::print("\nin {}\n", row_blocks_text(p, static_cast<int>(loop), plan.source.options.sizes));
  }
  for (const std::string& note : p.notes) fmt::print("\n{}\n", note);
}

void print_total(const char* name, const ExplainedPlan& plan) {
  const StepCost total = plan.total();
  fmt::print("  {:8} {:6} {:10.3f} {:9.2f} MB {:9.2f} MB {:9.3f} ms{}\n", name, plan.steps.size(),
             total.flops / 1e9, total.bytes / 1e6, plan.saved() / 1e6, total.seconds * 1e3,
             measured_text(plan.measured()));
}

}  // namespace

void print_json(const Explanation& what) {
  ordered_json out{{"title", what.title}, {"settings", what.how}};
  if (!what.prediction.empty()) out["prediction"] = what.prediction;
  out["fused"] = explained_json(*what.fused);
  out["unfused"] = explained_json(*what.unfused);
  if (what.memory) {
    ordered_json uses = ordered_json::object();
    for (const MemoryUse& use : what.memory->uses) uses[use.what] = use.bytes;
    out["memory"] = {{"bytes", what.memory->bytes()}, {"uses", std::move(uses)}};
  }
  out["alternatives"] = ordered_json::array();
  for (const Alternative& a : what.fused->compiled.alternatives) {
    out["alternatives"].push_back({{"choice", a.choice},
                                   {"predicted_seconds", a.seconds},
                                   {"moved_bytes", a.moved_bytes},
                                   {"saved_bytes", a.saved_bytes},
                                   {"chosen", a.chosen}});
  }
  fmt::print("{}\n", out.dump(2));
}

void print_text(const Explanation& what, bool brief) {
  const ExplainedPlan& fused = *what.fused;
  fmt::print("{}\n{}\n{}\n", what.title, what.how,
             what.prediction.empty() ? "" : what.prediction + "\n");
  if (!brief) {
    const CompileOptions& options = fused.source.options;
    fmt::print(kRule);
    fmt::print("{}", text(fused.compiled.plan, options.sizes, options.rates));
  }
  print_steps(fused);
  fmt::print("\n  {:8} {:>6} {:>10} {:>12} {:>12} {:>12}{}\n", "", "steps", "GFLOP", "moved",
             "saved", "predicted", fused.measured() ? "      measured" : "");
  print_total("fused", fused);
  print_total("unfused", *what.unfused);
  if (what.memory) fmt::print("\nmemory of a training step: {}\n", what.memory->text());
  if (fused.compiled.alternatives.empty()) return;
  fmt::print("\nplans compared (*: chosen)\n");
  for (const Alternative& a : fused.compiled.alternatives) {
    fmt::print("  {} {:9.3f} ms {:9.2f} MB moved {:9.2f} MB saved  {}\n", a.chosen ? '*' : ' ',
               a.seconds * 1e3, a.moved_bytes / 1e6, a.saved_bytes / 1e6, a.choice);
  }
  fmt::print(kLetters);
}

}  // namespace coda::tools
