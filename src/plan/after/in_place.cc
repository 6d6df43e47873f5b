// SPDX-License-Identifier: Apache-2.0
// Renames the stored tensor to the loaded one if the sharing is safe for every tile and block.
#include "plan/after/in_place.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "coda/plan.h"
#include "plan/after/row_blocks.h"
#include "program/step_table.h"
#include "program/tile_map.h"

namespace coda {
namespace {

class Reuse {
 public:
  Reuse(Plan& plan, bool overwrite_saved) : plan_(plan), overwrite_saved_(overwrite_saved) {
    for (const PlanTensor& t : plan.tensors) {
      if (!t.view_of.empty()) fixed_.insert({t.view_of, t.decl.name});
      tensors_[t.decl.name] = &t;
    }
    for (std::vector<PlanStep>* phase : {&plan.forward, &plan.backward}) {
      for (PlanStep& step : *phase) {
        for (const StepTensor& t : step_tensors(step)) users_[t.name].push_back(&step);
      }
    }
  }

  void run() {
    for (std::vector<PlanStep>* phase : {&plan_.forward, &plan_.backward}) {
      for (size_t i = 0; i < phase->size(); ++i) {
        auto* program = std::get_if<Program>(&(*phase)[i].work);
        if (program == nullptr) continue;
        while (const auto pair = find_pair(*program, *phase, i)) {
          (*phase)[i].reasons.push_back(pair->goes + " and " + pair->stays +
                                        " share memory: one is read last here, the other written");
          rename(pair->goes, pair->stays);
        }
      }
    }
    std::erase_if(plan_.tensors,
                  [this](const PlanTensor& t) { return !tensors_.contains(t.decl.name); });
  }

 private:
  // Two names that become one.
  struct Pair {
    std::string stays;
    std::string goes;
  };

  // Finds a loaded tensor after its last read and a stored one that can take its memory. Or, for a
  // sum computed by a loop, the tensor that can hold the sum from the start.
  std::optional<Pair> find_pair(const Program& program, const std::vector<PlanStep>& phase,
                                size_t at) const {
    const program::TileMap map = program::map_tiles(program);
    for (const TileSpace& space : map.spaces) {
      for (int store : space.steps) {
        const Step& s = program.steps[static_cast<size_t>(store)];
        if (!program::is_tile_store(s)) continue;
        const TensorDecl& result = program.tensors[static_cast<size_t>(s.tensor())];
        const bool replaceable = is_replaceable(program, s.tensor());
        const bool is_output = !plan_.loops.empty() && is_output_of_one_step(program, s.tensor());
        if (!replaceable && !is_output) continue;
        for (int load : space.steps) {
          const Step& l = program.steps[static_cast<size_t>(load)];
          if (load > store || !program::is_tile_load(l)) continue;
          const TensorDecl& operand = program.tensors[static_cast<size_t>(l.tensor())];
          // In other pairs, a tile would write what another tile has yet to read.
          const bool same = operand.shape == result.shape && operand.dtype == result.dtype &&
                            map.pairing[load] == map.pairing[store] &&
                            map.grouped[load] == map.grouped[store];
          const int loop = tensors_.at(operand.name)->loop;
          if (!same || loop != tensors_.at(result.name)->loop) continue;
          // A step in a loop may overwrite only the rows of its own block.
          const int of_step = phase[at].loop;
          if (of_step >= 0 && loop != of_step &&
              !is_sliced(operand, plan_.loops[static_cast<size_t>(of_step)]))
            continue;
          if (dies_here(program, l.tensor(), load, space, phase, at)) {
            if (replaceable) return Pair{operand.name, result.name};
            if (is_sum(operand.name)) return Pair{result.name, operand.name};
          }
        }
      }
    }
    return std::nullopt;
  }

  // Whether the stored tensor is a temporary without views that is written once.
  bool is_replaceable(const Program& program, int tensor) const {
    const std::string& name = program.tensors[static_cast<size_t>(tensor)].name;
    if (fixed_.contains(name) || tensors_.at(name)->role != TensorRole::temporary) return false;
    int uses = 0;
    for (const Step& s : program.steps) uses += s.tensor() == tensor ? 1 : 0;
    return uses == 1;
  }

  // Whether the tensor is the caller's and only one step of this program names it.
  bool is_output_of_one_step(const Program& program, int tensor) const {
    const std::string& name = program.tensors[static_cast<size_t>(tensor)].name;
    if (fixed_.contains(name) || tensors_.at(name)->role != TensorRole::output) return false;
    int uses = 0;
    for (const Step& s : program.steps) uses += s.tensor() == tensor ? 1 : 0;
    return uses == 1 && users_.at(name).size() == 1;
  }

  bool is_sum(const std::string& name) const {
    return std::any_of(plan_.loops.begin(), plan_.loops.end(), [&](const RowBlocks& loop) {
      return std::find(loop.sums.begin(), loop.sums.end(), name) != loop.sums.end();
    });
  }

  bool dies_here(const Program& program, int tensor, int load, const TileSpace& space,
                 const std::vector<PlanStep>& phase, size_t at) const {
    const std::string& name = program.tensors[static_cast<size_t>(tensor)].name;
    const TensorRole role = tensors_.at(name)->role;
    const bool owned = role == TensorRole::temporary ||
                       (role == TensorRole::saved && overwrite_saved_ && &phase == &plan_.backward);
    if (!owned || fixed_.contains(name)) return false;
    for (size_t i = 0; i < program.steps.size(); ++i) {
      const Step& s = program.steps[i];
      for (const GemmSegment& segment : s.segments()) {
        for (const int t : segment.tensors())
          if (t == tensor) return false;
      }
      const bool other_use = s.tensor() == tensor && static_cast<int>(i) != load;
      if (other_use || s.row_index() == tensor) return false;
    }
    const Step& l = program.steps[static_cast<size_t>(load)];
    if (!l.repeat().is(1) || l.row_index() >= 0) return false;
    const bool in_space =
        std::find(space.steps.begin(), space.steps.end(), load) != space.steps.end();
    const std::vector<PlanStep*>& users = users_.at(name);
    const PlanStep* end = phase.data() + phase.size();
    return in_space && std::none_of(users.begin(), users.end(), [&](const PlanStep* user) {
             return user > &phase[at] && user < end;
           });
  }

  void rename(const std::string& from, const std::string& to) {
    std::vector<PlanStep*>& users = users_[to];
    for (PlanStep* step : users_.at(from)) {
      if (auto* program = std::get_if<Program>(&step->work)) {
        rename_in(*program, from, to);
        if (step->later) rename_in(*step->later, from, to);
      } else {
        auto& call = std::get<OpaqueCall>(step->work);
        std::replace(call.inputs.begin(), call.inputs.end(), from, to);
        std::replace(call.outputs.begin(), call.outputs.end(), from, to);
      }
      if (std::find(users.begin(), users.end(), step) == users.end()) users.push_back(step);
    }
    users_.erase(from);
    tensors_.erase(from);
    for (RowBlocks& loop : plan_.loops) std::replace(loop.sums.begin(), loop.sums.end(), from, to);
  }

  // Tensor names are unique in a program: a program with both names keeps one entry.
  static void rename_in(Program& program, const std::string& from, const std::string& to) {
    int old_index = -1;
    int new_index = -1;
    for (size_t t = 0; t < program.tensors.size(); ++t) {
      if (program.tensors[t].name == from) old_index = static_cast<int>(t);
      if (program.tensors[t].name == to) new_index = static_cast<int>(t);
    }
    if (old_index < 0) return;
    if (new_index < 0) {
      program.tensors[static_cast<size_t>(old_index)].name = to;
      return;
    }
    auto moved = [&](int& index) {
      if (index == old_index) index = new_index;
      if (index > old_index) --index;  // the removed entry was before it
    };
    for (Step& s : program.steps) {
      for (int* tensor : program::tensor_fields(s)) moved(*tensor);
    }
    program.tensors.erase(program.tensors.begin() + old_index);
  }

  Plan& plan_;
  bool overwrite_saved_;
  std::set<std::string> fixed_;                                    // views and their owners
  std::unordered_map<std::string, const PlanTensor*> tensors_;     // remaining tensors
  std::unordered_map<std::string, std::vector<PlanStep*>> users_;  // the steps that name a tensor
};

}  // namespace

void reuse_in_place(Plan& plan, bool overwrite_saved) { Reuse(plan, overwrite_saved).run(); }

}  // namespace coda
