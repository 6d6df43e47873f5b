// SPDX-License-Identifier: Apache-2.0
// Copies each part's steps in program order, and loads saved values where earlier parts computed
// them.
#include "gpu/legalise/split_program.h"

#include <algorithm>
#include <map>
#include <set>

#include "coda/error.h"
#include "gpu/target/element.h"
#include "program/problem.h"
#include "program/step_table.h"
#include "program/tile_map.h"
#include "program/vocabulary.h"

namespace coda::gpu {
namespace {

class Splitter {
 public:
  Splitter(const Program& program, std::span<const PartPlan> plans)
      : program_(program), plans_(plans), map_(program::map_tiles(program)) {
    for (const TensorDecl& tensor : program.tensors) names_.insert(tensor.name);
  }

  SplitProgram run() {
    for (size_t p = 0; p < plans_.size(); ++p) make_part(p);
    return std::move(result_);
  }

 private:
  const Step& step(int i) const { return program_.steps[i]; }
  const TensorDecl& tensor(int t) const {
    const int given = static_cast<int>(program_.tensors.size());
    return t < given ? program_.tensors[t] : result_.scratch[t - given];
  }

  void make_part(size_t p) {
    const PartPlan& plan = plans_[p];
    // Saved values that this part stores in scratch: value -> tensor.
    std::map<int, int> stored;
    std::map<int, int> kept;
    for (int value : plan.kept) {
      if (places_.contains(value)) continue;
      int place = stored_anyway(value, p);
      if (place < 0) place = stored[value] = new_scratch(value);
      kept[value] = place;
    }
    std::set<int> needed(plan.effects.begin(), plan.effects.end());
    for (const auto& [value, place] : stored) needed.insert(value);
    for (int i = static_cast<int>(program_.steps.size()) - 1; i >= 0; --i) {
      if (!needed.contains(i) || places_.contains(i)) continue;
      for (int operand : step(i).operands) needed.insert(operand);
    }
    ProgramPart part = assemble(p, needed, stored, {});
    const std::set<int> unpaired = lost_pairings(part);
    if (!unpaired.empty()) part = assemble(p, needed, stored, unpaired);
    verify(part.program);
    result_.parts.push_back(std::move(part));
    places_.merge(kept);
  }

  // The tensor of an effect in parts up to p that stores the value exactly; -1: none.
  int stored_anyway(int value, size_t p) const {
    const Step& v = step(value);
    for (size_t q = 0; q <= p; ++q) {
      for (int i : plans_[q].effects) {
        const Step& store = step(i);
        if (!program::is_tile_store(store)) continue;
        const DType type = program_.tensors[store.tensor()].dtype;
        const int operand = store.operands[0];
        const bool is_rounded = program::is_rounding(v) && v.dtype() == type &&
                                (operand == value || operand == v.operands[0]);
        if (is_rounded || (type == DType::f32 && operand == value)) return store.tensor();
      }
    }
    return -1;
  }

  int new_scratch(int value) {
    const Step& v = step(value);
    std::string name = "kept" + std::to_string(result_.scratch.size() + 1);
    while (!names_.insert(name).second) name += "_";
    const bool is_rounded = program::is_rounding(v) && is_16_bits(v.dtype());
    result_.scratch.push_back(
        {.name = name, .shape = v.shape, .dtype = is_rounded ? v.dtype() : DType::f32});
    return static_cast<int>(program_.tensors.size() + result_.scratch.size()) - 1;
  }

  // Row partials count base columns, so the part of a partial of pairs must have those pairs.
  std::set<int> lost_pairings(const ProgramPart& part) const {
    const program::TileMap map = program::map_tiles(part.program);
    std::set<int> lost;
    for (size_t i = 0; i < part.origin.size(); ++i) {
      const int origin = part.origin[i];
      if (origin < 0 || !program::is_row_partial(step(origin))) continue;
      if (!map_.pairing[origin].is(0) && map.pairing[i].is(0)) lost.insert(origin);
    }
    return lost;
  }

  ProgramPart assemble(size_t p, const std::set<int>& needed, const std::map<int, int>& stored,
                       const std::set<int>& unpaired) const {
    ProgramPart part;
    part.program.name = program_.name;
    if (plans_.size() > 1) part.program.name += "_part" + std::to_string(p + 1);
    std::map<int, int> tensors;  // index in all tensors -> index in the part
    const auto move = [&](int& t) {
      const auto [found, is_new] = tensors.try_emplace(t, static_cast<int>(part.tensors.size()));
      if (is_new) {
        part.tensors.push_back(t);
        part.program.tensors.push_back(tensor(t));
      }
      t = found->second;
    };
    const auto add = [&](Step made, int origin) {
      for (int* t : program::tensor_fields(made)) move(*t);
      part.program.steps.push_back(std::move(made));
      part.origin.push_back(origin);
      return static_cast<int>(part.program.steps.size()) - 1;
    };
    std::map<int, int> made;  // step of the program -> step of the part
    for (int i : needed) {
      const auto place = places_.find(i);
      if (place != places_.end()) {
        made[i] = add(program::tile_load(place->second, step(i).shape), -1);
        continue;
      }
      Step copy = step(i);
      for (int& operand : copy.operands) operand = made.at(operand);
      if (unpaired.contains(i)) {
        const Shape wide = copy.shape;
        const Shape half{wide.rows, *wide.cols.half()};
        Step merged{steps::MergePairs{map_.pairing[i]}, wide};
        for (int which = 0; which < 2; ++which) {
          merged.operands.push_back(
              add({steps::SplitPair{map_.pairing[i], which}, half, copy.operands}, -1));
        }
        copy.operands = {add(std::move(merged), -1)};
      }
      made[i] = add(std::move(copy), i);
      if (const auto kept = stored.find(i); kept != stored.end()) {
        add(program::tile_store(kept->second, made[i], step(i).shape), -1);
      }
    }
    return part;
  }

  const Program& program_;
  const std::span<const PartPlan> plans_;
  const program::TileMap map_;
  std::set<std::string> names_;
  std::map<int, int> places_;  // tensors of the values that parts so far save
  SplitProgram result_;
};

}  // namespace

SplitProgram split_program(const Program& program, std::span<const PartPlan> parts) {
  try {
    return Splitter(program, parts).run();
  } catch (const program::Problem& problem) {
    throw Error("a part of program '" + program.name + "': " + problem.message);
  }
}

Program with_uniform_products(const Program& program) {
  Program result = program;
  result.steps.clear();
  std::vector<int> place;
  const auto push = [&](Step step) {
    result.steps.push_back(std::move(step));
    return static_cast<int>(result.steps.size()) - 1;
  };
  for (Step step : program.steps) {
    for (int& operand : step.operands) operand = place[operand];
    std::vector<GemmSegment> rest = step.segments();
    if (rest.empty()) {
      place.push_back(push(std::move(step)));
      continue;
    }
    const auto alike = [&](const GemmSegment& a, const GemmSegment& b) {
      return a.transpose_a == b.transpose_a && a.transpose_b == b.transpose_b &&
             program.tensors[a.a].dtype == program.tensors[b.a].dtype &&
             program.tensors[a.b].dtype == program.tensors[b.b].dtype;
    };
    int sum = -1;
    while (!rest.empty()) {
      steps::Gemm part;
      std::vector<GemmSegment> others;
      for (const GemmSegment& segment : rest)
        (alike(segment, rest.front()) ? part.segments : others).push_back(segment);
      rest = std::move(others);
      const int product = push({std::move(part), step.shape});
      sum =
          sum < 0 ? product : push(program::applied(Elementwise::add, {sum, product}, step.shape));
    }
    place.push_back(sum);
  }
  return result;
}

}  // namespace coda::gpu
