// SPDX-License-Identifier: Apache-2.0
// Prints a plan: each step with its program, flops, bytes and predicted time, and the reasons for
// its position.
#include <cstdio>

#include "coda/plan_cost.h"
#include "plan/after/cost.h"
#include "plan/after/row_blocks.h"

namespace coda {
namespace {

std::string number(const char* format, double value) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, format, value);
  return buffer;
}

std::string indent(const std::string& text) {
  std::string out;
  size_t start = 0;
  while (start < text.size()) {
    size_t end = text.find('\n', start);
    if (end == std::string::npos) end = text.size();
    out += "    " + text.substr(start, end - start) + "\n";
    start = end + 1;
  }
  return out;
}

std::string call_text(const OpaqueCall& call) {
  std::string line;
  for (const std::string& name : call.outputs) line += (line.empty() ? "" : ", ") + name;
  line += " = " + call.function + "(";
  for (size_t i = 0; i < call.inputs.size(); ++i) line += (i > 0 ? ", " : "") + call.inputs[i];
  return line + ")\n";
}

// The copies between the GPU and the host that start before a step, with its number from 0.
std::string copies_text(const Plan& plan, bool is_forward, size_t step) {
  std::string out;
  for (const HostCopy& copy : plan.host_copies) {
    if (step != (is_forward ? copy.out : copy.in)) continue;
    out += "    copy " + (is_forward ? copy.stored + " to" : copy.fetched + " from") +
           " the host, complete before " +
           std::to_string((is_forward ? copy.out_end : copy.in_end) + 1) + "\n";
  }
  return out;
}

}  // namespace

std::string row_blocks_text(const Plan& plan, int index, const DimValues& sizes) {
  const RowBlocks& loop = plan.loops[static_cast<size_t>(index)];
  const RowBlockBytes bytes = row_block_bytes(plan, index, sizes);
  std::string out = "blocks of " + std::to_string(rows_of_block(loop, sizes)) + " rows of " +
                    loop.symbol + " (" + std::to_string(row_blocks_of(loop, sizes)) + "), in " +
                    number("%.2f MB", bytes.block / 1e6) +
                    number(" instead of %.2f MB", bytes.whole / 1e6);
  for (size_t i = 0; i < loop.sums.size(); ++i)
    out += (i == 0 ? "; sums over all rows: " : ", ") + loop.sums[i];
  return out;
}

std::string text(const Plan& plan, const DimValues& sizes, const Rates& rates) {
  std::string out;
  StepCost total;
  for (const auto* phase : {&plan.forward, &plan.backward}) {
    if (phase->empty()) continue;
    out += phase == &plan.forward ? "forward\n" : "backward\n";
    int index = 1;
    int loop = -1;
    for (const PlanStep& step : *phase) {
      if (step.loop != loop) {
        if (loop >= 0) out += "}\n";
        if (step.loop >= 0) out += "for " + row_blocks_text(plan, step.loop, sizes) + " {\n";
        loop = step.loop;
      }
      out += copies_text(plan, phase == &plan.forward, static_cast<size_t>(index) - 1);
      const StepCost cost = cost_of(step, plan, sizes, rates);
      total.flops += cost.flops;
      total.bytes += cost.bytes;
      total.seconds += cost.seconds;
      out += number("%3.0f ", index++) + step.name + number("  %.3f GFLOP", cost.flops / 1e9) +
             number(", %.2f MB", cost.bytes / 1e6) + number(", %.1f us", cost.seconds * 1e6) + "\n";
      const auto* program = std::get_if<Program>(&step.work);
      out +=
          indent(program != nullptr ? text(*program) : call_text(std::get<OpaqueCall>(step.work)));
      if (step.later) out += "    in later blocks\n" + indent(text(*step.later));
      for (const std::string& reason : step.reasons) out += "    why: " + reason + "\n";
    }
    if (loop >= 0) out += "}\n";
  }
  for (const std::string& note : plan.notes) out += note + "\n";
  out += number("total %.3f GFLOP", total.flops / 1e9) +
         number(", %.2f MB moved", total.bytes / 1e6) +
         number(", %.1f us predicted", total.seconds * 1e6) +
         number(", %.2f MB saved for the backward\n", saved_bytes(plan, sizes) / 1e6);
  return out;
}

}  // namespace coda
