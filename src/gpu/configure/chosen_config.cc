// SPDX-License-Identifier: Apache-2.0
// A row of the table with the same extents decides. A row with other extents corrects the model: we
// assume that the model's relative error for each timed configuration is the same at both sizes.
// Only the number of waves differs.
#include "gpu/configure/chosen_config.h"

#include <algorithm>

#include "coda/error.h"
#include "gpu/configure/tuned_table.h"

namespace coda::gpu {
namespace {

// The cost model may be wrong by this factor for a configuration that was never timed, so such a
// configuration is chosen only if it is predicted to be faster by more than this factor.
constexpr double kUntimed = 1.03;

// Compares the fields of code(); layout and element type come from the program.
bool same(const GemmConfig& a, const GemmConfig& b) {
  return a.tile_m == b.tile_m && a.tile_n == b.tile_n && a.cluster_m == b.cluster_m &&
         a.cluster_n == b.cluster_n && a.stages == b.stages && a.schedule == b.schedule;
}

std::string source_text(const ChosenConfig& chosen) {
  switch (chosen.source) {
    case ChoiceSource::asked: return "asked for";
    case ChoiceSource::tuned: return "tuned at " + chosen.measured_at;
    case ChoiceSource::table: return "the shipped table at " + chosen.measured_at;
    case ChoiceSource::model: return "the model";
  }
  return "";
}

// The configurations that the row timed and the kernel can have, best first for the kernel's sizes.
// Empty if there are none.
std::vector<GemmConfig> order_of(const TunedRow& row, const KernelClass& kernel,
                                 const std::vector<RankedChoice>& ranked,
                                 const std::vector<SpaceWork>& work, const Target& target,
                                 uint32_t multiprocessors, uint32_t measured_multiprocessors) {
  std::vector<TimedChoice> timed;  // with the kernel's layout and element type, which a row lacks
  for (const TimedChoice& one : row.choices) {
    const auto it = std::ranges::find_if(
        ranked, [&](const RankedChoice& r) { return same(r.choice, one.choice); });
    if (it != ranked.end()) timed.push_back({it->choice, one.microseconds});
  }
  std::vector<GemmConfig> order;
  if (timed.empty()) return order;
  if (row.extents == kernel.extents && multiprocessors == measured_multiprocessors) {
    for (const TimedChoice& one : timed) order.push_back(one.choice);
    return order;
  }
  std::vector<SpaceWork> there = work;
  for (size_t i = 0; i < there.size(); ++i) there[i].extents = row.extents[i];
  std::vector<double> corrections;
  std::vector<RankedChoice> here;
  for (const TimedChoice& one : timed) {
    corrections.push_back(one.microseconds /
                          model_cost(target, there, one.choice, measured_multiprocessors));
    here.push_back(
        {one.choice, corrections.back() * model_cost(target, work, one.choice, multiprocessors)});
  }
  std::sort(corrections.begin(), corrections.end());
  const double median = corrections[corrections.size() / 2];
  for (const RankedChoice& one : ranked) {
    const bool is_timed = std::any_of(timed.begin(), timed.end(),
                                      [&](const auto& t) { return same(t.choice, one.choice); });
    if (!is_timed && !one.is_crowded) here.push_back({one.choice, kUntimed * median * one.cost});
  }
  std::stable_sort(here.begin(), here.end(),
                   [](const RankedChoice& a, const RankedChoice& b) { return a.cost < b.cost; });
  for (const RankedChoice& one : here) order.push_back(one.choice);
  return order;
}

}  // namespace

std::vector<ChosenConfig> config_order(const ProgramSizes& sizes, const program::TileMap& map,
                                       const KernelSpaces& kernel) {
  const LowerOptions& options = sizes.options();
  if (options.choice && is_legal(kernel, *options.choice))
    return {{*options.choice, ChoiceSource::asked}};
  const std::vector<RankedChoice> ranked = rank_choices(sizes, map, kernel);
  invariant(!ranked.empty(), "a kernel that some configuration can serve");
  const KernelClass own = class_of(sizes, map, kernel);
  const std::vector<SpaceWork> of_kernel = work_of(sizes, map, kernel);
  std::vector<SpaceWork> work;  // in the order of the class
  for (const size_t space : own.spaces) work.push_back(of_kernel[space]);
  struct Source {
    const TunedRow* row;
    ChoiceSource source;
    uint32_t multiprocessors;  // of the GPU that was measured
  };
  const Source tuned{options.tuned == nullptr ? nullptr : options.tuned->nearest(own),
                     ChoiceSource::tuned, options.multiprocessors};
  const Source shipped{
      options.uses_table ? measured_table(sizes.target(), options.is_h100).nearest(own) : nullptr,
      ChoiceSource::table, sizes.target().multiprocessors};
  std::vector<ChosenConfig> order;
  const auto add = [&](ChosenConfig one) {
    const bool is_there = std::any_of(order.begin(), order.end(), [&](const ChosenConfig& other) {
      return other.choice.tile_m == one.choice.tile_m && other.choice.tile_n == one.choice.tile_n &&
             other.choice.schedule == one.choice.schedule;
    });
    if (!is_there) order.push_back(std::move(one));
  };
  // Measurements at exactly these sizes come first, even the shipped ones before tuned ones at
  // other sizes.
  for (const bool exactly : {true, false}) {
    for (const Source& source : {tuned, shipped}) {
      if (!order.empty() || source.row == nullptr ||
          (source.row->extents == own.extents) != exactly)
        continue;
      for (const GemmConfig& choice : order_of(*source.row, own, ranked, work, sizes.target(),
                                               options.multiprocessors, source.multiprocessors))
        add({choice, source.source, text(source.row->extents)});
    }
  }
  for (const RankedChoice& one : ranked)
    if (!one.is_crowded) add({one.choice, ChoiceSource::model});
  if (order.empty())
    for (const RankedChoice& one : ranked) add({one.choice, ChoiceSource::model});
  return order;
}

std::string text(const ChosenConfig& chosen) {
  std::string result = source_text(chosen);
  for (size_t i = 0; i < chosen.spilled.size(); ++i)
    result += (i == 0 ? "; registers spill with " : ", ") + code(chosen.spilled[i]);
  return result;
}

}  // namespace coda::gpu
