// SPDX-License-Identifier: Apache-2.0
// A profiled step is the step, and what it did: every program of the plan and of the update by its
// name and as often as it runs, nothing at the same time as something else on its track, in a trace
// that parses.
#include "coda/profile.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "coda/row_blocks.h"
#include "cpu/cpu_backend.h"
#include "runtime/far_backend.h"
#include "train/tiny_model.h"

namespace coda {
namespace {
namespace profiles {

std::map<std::string, int64_t> counted(const std::vector<ProfileEvent>& events,
                                       ProfileTrack track) {
  std::map<std::string, int64_t> counts;
  for (const ProfileEvent& event : events)
    if (event.track == track) ++counts[event.name];
  return counts;
}

// How often each step of a plan runs in a pass.
std::map<std::string, int64_t> runs_of(const Session& session, int64_t passes) {
  std::map<std::string, int64_t> runs;
  const Plan& plan = session.plan();
  for (const auto* steps : {&plan.forward, &plan.backward}) {
    for (const PlanStep& step : *steps) {
      const int64_t blocks =
          step.loop < 0
              ? 1
              : row_blocks_of(plan.loops[static_cast<size_t>(step.loop)], session.sizes());
      runs[step.name] += passes * blocks;
    }
  }
  return runs;
}

void expect_no_overlap(const std::vector<ProfileEvent>& events) {
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_GE(events[i].start, 0) << events[i].name;
    EXPECT_GE(events[i].seconds, 0) << events[i].name;
    if (i == 0 || events[i].track != events[i - 1].track) continue;
    // Sums of doubles that stand for the same moments.
    EXPECT_GE(events[i].start, events[i - 1].start + events[i - 1].seconds - 1e-9)
        << events[i].name << " behind " << events[i - 1].name;
  }
}

TEST(Profile, HasEveryProgramByItsNameAndNothingAtTheSameTime) {
  const Tokens text = counting_text(500);
  const auto cpu = cpu::make_cpu_backend({.threads = 1});
  FarBackend far;
  for (Backend* backend : {cpu.get(), static_cast<Backend*>(&far)}) {
    for (const int64_t passes : {1, 2}) {
      ModelTrainSettings settings = tiny_settings();
      settings.accumulate = passes;
      settings.loss_rows = 64;
      ModelTrainer plain(settings, text, *backend), trainer(settings, text, *backend);
      plain.step();
      trainer.step();
      const Trainer::Profiled profiled = trainer.profile();
      const StepReport wanted = plain.step();
      EXPECT_EQ(profiled.report.loss, wanted.loss);
      EXPECT_EQ(profiled.report.norm, wanted.norm);
      expect_no_overlap(profiled.events);
      std::map<std::string, int64_t> compute = counted(profiled.events, ProfileTrack::compute);
      for (const auto& [name, runs] : runs_of(trainer.session(), passes)) {
        EXPECT_EQ(compute[name], runs) << name;
        compute.erase(name);
      }
      // The rest is the update, by its programs' names where it is programs.
      EXPECT_EQ(compute["adamw"], 1);
      EXPECT_EQ(compute["gradient_norm"], 1);
      EXPECT_EQ(compute.contains("loss_check"), !backend->is_on_host());
      const auto host = counted(profiled.events, ProfileTrack::host);
      EXPECT_EQ(host.at("batch"), passes);
      const auto transfers = counted(profiled.events, ProfileTrack::transfers);
      if (backend->is_on_host()) {
        EXPECT_TRUE(transfers.empty());
      } else {
        EXPECT_EQ(transfers.at("copy ids"), passes);
        EXPECT_EQ(transfers.at("copy the step's results"), 2);
      }
    }
  }
}

// In order with the steps, as often as they run, in either direction.
TEST(Profile, HasTheCopiesOfInputsOfLayersOnTheHost) {
  const Tokens text = counting_text(500);
  FarBackend far;
  ModelTrainSettings settings = tiny_settings();
  std::get<LlamaConfig>(settings.model).layers = 6;
  settings.recomputed_layers = kAllLayers;
  settings.layers_on_host = true;
  settings.accumulate = 2;
  ModelTrainer plain(settings, text, far), trainer(settings, text, far);
  const Trainer::Profiled profiled = trainer.profile();
  EXPECT_EQ(profiled.report.norm, plain.step().norm);
  expect_no_overlap(profiled.events);
  const auto transfers = counted(profiled.events, ProfileTrack::transfers);
  for (const char* direction : {" to the host", " from the host"})
    EXPECT_EQ(transfers.at("copy model.layers.1.mlp.down_proj_residual" + std::string(direction)),
              2);
  EXPECT_EQ(trainer.step().norm, plain.step().norm);
}

// What comes after it is not timed, and what it started in is not left behind.
TEST(Profile, LeavesTheTrainerAsAStepDoes) {
  const Tokens text = counting_text(500);
  FarBackend far;
  const ModelTrainSettings settings = tiny_settings();
  ModelTrainer plain(settings, text, far), trainer(settings, text, far);
  for (int i = 0; i < 2; ++i) {
    const StepReport wanted = plain.step();
    const StepReport profiled = trainer.profile().report;
    EXPECT_EQ(profiled.loss, wanted.loss);
    EXPECT_EQ(profiled.norm, wanted.norm);
    EXPECT_EQ(profiled.rate, wanted.rate);
    EXPECT_EQ(trainer.step().norm, plain.step().norm);
  }
}

TEST(Profile, IsAChromeTrace) {
  const std::vector<ProfileEvent> events{
      {"forward.product1.\"w\"", ProfileTrack::compute, 1e-3, 2e-3},
      {"copy ids", ProfileTrack::transfers, 0, 1e-6},
      {"wait", ProfileTrack::host, 2e-3, 5e-3}};
  const auto trace = nlohmann::json::parse(chrome_trace(events, "step 5"));
  std::map<int, std::string> tracks;
  std::vector<nlohmann::json> spans;
  for (const auto& line : trace["traceEvents"]) {
    if (line["name"] == "process_name") {
      EXPECT_EQ(line["args"]["name"], "step 5");
    }
    if (line["name"] == "thread_name") tracks[line["tid"]] = line["args"]["name"];
    if (line["ph"] == "X") spans.push_back(line);
  }
  ASSERT_EQ(spans.size(), 3U);
  EXPECT_EQ(spans[0]["name"], events[0].name);
  EXPECT_DOUBLE_EQ(spans[0]["ts"], 1000);  // microseconds
  EXPECT_DOUBLE_EQ(spans[0]["dur"], 2000);
  EXPECT_EQ(tracks.at(spans[0]["tid"]), "compute");
  EXPECT_EQ(tracks.at(spans[1]["tid"]), "copies and collectives");
  EXPECT_EQ(tracks.at(spans[2]["tid"]), "host");
}

}  // namespace profiles
}  // namespace
}  // namespace coda
