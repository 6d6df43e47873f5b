// SPDX-License-Identifier: Apache-2.0
// Moves matching plan steps to Compiled::parameter_copies and declares their results as inputs.
#include "plan/after/parameter_copies.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "coda/eight_bits.h"
#include "program/step_table.h"

namespace coda {
namespace {

// Maps "eight_bits.7.largest" to the same column of kParameterMagnitudes.
std::string of_parameters(const std::string& magnitude) {
  constexpr std::string_view kAll = kMagnitudes;
  constexpr std::string_view kOfParameters = kParameterMagnitudes;
  const size_t last_word = kAll.find('.');
  return magnitude.substr(0, magnitude.size() - (kAll.size() - last_word)) +
         std::string(kOfParameters.substr(last_word));
}

class Taker {
 public:
  explicit Taker(Plan& plan) : plan_(plan) {}

  std::vector<ParameterCopy> run() {
    std::vector<ParameterCopy> taken;
    for (std::vector<PlanStep>* phase : {&plan_.forward, &plan_.backward}) {
      std::erase_if(*phase, [&](const PlanStep& step) {
        const auto* program = std::get_if<Program>(&step.work);
        if (program == nullptr || step.loop >= 0 || step.later) return false;
        const std::string copied = copied_by(*program);
        if (copied.empty() || !copied_.insert(copied).second) return false;
        taken.push_back({owner_of(copied), *program});
        return true;
      });
    }
    for (ParameterCopy& copy : taken) give(copy.program);
    if (!taken.empty()) {
      plan_.notes.push_back(std::to_string(taken.size()) +
                            " copies of parameters in 8 bits are made when the parameters change");
    }
    return taken;
  }

 private:
  // The parameter that a tensor is or views; else the tensor that it is or views.
  std::string owner_of(const std::string& tensor) const {
    const std::string& owner = plan_.tensor(tensor).view_of;
    return owner.empty() ? tensor : owner_of(owner);
  }

  bool is_column_of(const PlanTensor& tensor, std::string_view vector) const {
    return tensor.view_of == vector;
  }

  // The parameter (or view of one) that a program copies; empty if it does something else.
  std::string copied_by(const Program& program) const {
    std::string copied;
    for (const Step& s : program.steps) {
      for (const int t : program::tensors_of(s)) {
        const TensorDecl& decl = program.tensors[static_cast<size_t>(t)];
        const PlanTensor& tensor = plan_.tensor(decl.name);
        const bool is_whole = tensor.view_of.empty() && decl.kind == TensorKind::dense;
        if (program::is_tile_load(s)) {
          const bool is_new = copied.empty() || copied == decl.name;
          if (tensor.role != TensorRole::parameter || decl.kind != TensorKind::dense || !is_new ||
              s.row_index() >= 0 || decl.shape != s.shape)
            return "";
          copied = decl.name;
        } else if (program::is_tile_store(s) || program::is_transposed_store(s)) {
          const bool is_own =
              tensor.role == TensorRole::temporary || tensor.role == TensorRole::saved;
          if (!is_own || !is_whole) return "";
        } else if (program::is_maximum(s)) {
          if (!is_column_of(tensor, kMagnitudes)) return "";
        } else if (!program::is_vector_load(s) || !is_column_of(tensor, kScales)) {
          return "";
        }
      }
    }
    return copied;
  }

  void give(Program& program) {
    for (TensorDecl& decl : program.tensors) {
      const auto tensor = std::ranges::find(plan_.tensors, decl.name, [](const PlanTensor& t) {
        return std::string_view(t.decl.name);
      });
      if (is_column_of(*tensor, kMagnitudes)) {
        PlanTensor raised = *tensor;
        decl.name = of_parameters(decl.name);
        add(kParameterMagnitudes, plan_.tensor(kMagnitudes));
        add(decl.name, std::move(raised), kParameterMagnitudes);
      } else if (tensor->role == TensorRole::temporary || tensor->role == TensorRole::saved) {
        tensor->role = TensorRole::input;
      }
    }
  }

  // Operands of one GEMM share a scale and a magnitude, so each name is added only once.
  void add(const std::string& name, PlanTensor like, const std::string& view_of = "") {
    if (!added_.insert(name).second) return;
    like.decl.name = name;
    like.role = TensorRole::input;
    like.view_of = view_of;
    plan_.tensors.push_back(std::move(like));
  }

  Plan& plan_;
  std::set<std::string> copied_;  // parameters and their views
  std::set<std::string> added_;   // tensors
};

}  // namespace

std::vector<ParameterCopy> take_parameter_copies(Plan& plan) { return Taker(plan).run(); }

}  // namespace coda
