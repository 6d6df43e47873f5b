// SPDX-License-Identifier: Apache-2.0
// A row at exactly these sizes decides. A row at other sizes corrects the model: how far it erred
// there, for each configuration that was timed, it errs here; so the waves of these sizes count,
// and what was measured counts too.
#include "hopper/configure/chosen_config.h"

#include <algorithm>
#include <optional>

#include "coda/error.h"
#include "hopper/configure/tuned_table.h"

namespace coda::hopper {
namespace {

// What was not timed is the model's worse half there: it has to be better by so much.
constexpr double kUntimed = 1.03;

// What code() says of them: layout and element are the program's.
bool same(const GemmConfig& a, const GemmConfig& b) {
  return a.tile_m == b.tile_m && a.tile_n == b.tile_n && a.cluster_m == b.cluster_m &&
         a.cluster_n == b.cluster_n && a.stages == b.stages && a.schedule == b.schedule;
}

std::optional<GemmConfig> from_row(const TunedRow& row, const KernelClass& kernel,
                                   const std::vector<RankedChoice>& ranked,
                                   std::vector<SpaceWork> work, uint32_t multiprocessors,
                                   uint32_t measured_multiprocessors) {
  const auto is_ranked = [&](const GemmConfig& choice) {
    return std::any_of(ranked.begin(), ranked.end(),
                       [&](const RankedChoice& r) { return same(r.choice, choice); });
  };
  if (row.extents == kernel.extents && multiprocessors == measured_multiprocessors) {
    for (const TimedChoice& timed : row.choices)
      if (is_ranked(timed.choice)) return timed.choice;
    return std::nullopt;
  }
  std::vector<SpaceWork> there = work;
  for (size_t i = 0; i < there.size(); ++i) there[i].extents = row.extents[i];
  std::vector<double> corrections;
  for (const TimedChoice& timed : row.choices) {
    if (!is_ranked(timed.choice)) continue;
    corrections.push_back(timed.microseconds /
                          model_cost(there, timed.choice, measured_multiprocessors));
  }
  if (corrections.empty()) return std::nullopt;
  std::vector<double> sorted = corrections;
  std::sort(sorted.begin(), sorted.end());
  const double median = sorted[sorted.size() / 2];

  std::optional<GemmConfig> best;
  double least = 0;
  size_t next_correction = 0;
  const auto offer = [&](const GemmConfig& choice, double cost) {
    if (best && cost >= least) return;
    best = choice;
    least = cost;
  };
  for (const TimedChoice& timed : row.choices) {
    if (!is_ranked(timed.choice)) continue;
    offer(timed.choice,
          corrections[next_correction++] * model_cost(work, timed.choice, multiprocessors));
  }
  for (const RankedChoice& one : ranked) {
    const bool is_timed = std::any_of(row.choices.begin(), row.choices.end(),
                                      [&](const auto& t) { return same(t.choice, one.choice); });
    if (!is_timed && !one.is_crowded) offer(one.choice, kUntimed * median * one.cost);
  }
  return best;
}

}  // namespace

ChosenConfig choose_config(const ProgramSizes& sizes, const program::TileMap& map,
                           const KernelSpaces& kernel) {
  const LowerOptions& options = sizes.options();
  if (options.choice && is_legal(sizes, kernel, *options.choice))
    return {*options.choice, ChoiceSource::asked};
  const std::vector<RankedChoice> ranked = rank_choices(sizes, map, kernel);
  invariant(!ranked.empty(), "a kernel that some configuration can serve");
  const KernelClass own = class_of(sizes, map, kernel);
  struct Source {
    const TunedRow* row;
    ChoiceSource source;
    uint32_t multiprocessors;  // where it was measured
  };
  const Source tuned{options.tuned == nullptr ? nullptr : options.tuned->nearest(own),
                     ChoiceSource::tuned, options.multiprocessors};
  const Source shipped{options.uses_table ? tuned_table().nearest(own) : nullptr,
                       ChoiceSource::table, options.architecture.multiprocessors};
  // What was tuned at other sizes says less than the table does at these.
  for (const bool exactly : {true, false}) {
    for (const Source& source : {tuned, shipped}) {
      if (source.row == nullptr || (source.row->extents == own.extents) != exactly) continue;
      const auto choice = from_row(*source.row, own, ranked, work_of(sizes, map, kernel),
                                   options.multiprocessors, source.multiprocessors);
      if (choice) return {*choice, source.source, text(source.row->extents)};
    }
  }
  const auto first = std::find_if(ranked.begin(), ranked.end(),
                                  [](const RankedChoice& one) { return !one.is_crowded; });
  return {(first == ranked.end() ? ranked.begin() : first)->choice, ChoiceSource::model};
}

std::string text(const ChosenConfig& chosen) {
  switch (chosen.source) {
    case ChoiceSource::asked: return "asked for";
    case ChoiceSource::tuned: return "tuned at " + chosen.measured_at;
    case ChoiceSource::table: return "the shipped table at " + chosen.measured_at;
    case ChoiceSource::model: return "the model";
  }
  return "";
}

}  // namespace coda::hopper
