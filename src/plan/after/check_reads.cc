// SPDX-License-Identifier: Apache-2.0
// Walks through the plan steps in order and records, for each tensor with its own memory, which
// columns have been written. Inside a loop, the first block must find everything that it reads.
#include "plan/after/check_reads.h"

#include <algorithm>
#include <map>
#include <vector>

#include "coda/error.h"
#include "coda/plan.h"

namespace coda {
namespace {

struct Columns {
  int64_t begin = 0;
  int64_t end = 0;
};

class Reads {
 public:
  Reads(const Plan& plan, const std::set<std::string>& given, const DimValues& sizes)
      : plan_(plan), given_(given), sizes_(sizes) {
    for (const PlanTensor& t : plan.tensors) tensors_[t.decl.name] = &t;
  }

  void run() {
    for (const PlanStep& step : plan_.forward) check(step, "forward");
    std::erase_if(written_, [&](const auto& entry) {
      return tensors_.at(entry.first)->role == TensorRole::temporary;
    });
    for (const PlanStep& step : plan_.backward) check(step, "backward");
  }

 private:
  void check(const PlanStep& step, const char* phase) {
    check_work(step, phase);
    if (!step.later) return;
    PlanStep later = step;  // the same loop's step after the first block
    later.work = *step.later;
    check_work(later, phase);
  }

  void check_work(const PlanStep& step, const char* phase) {
    const std::vector<StepTensor> uses = step_tensors(step);
    for (const StepTensor& use : uses) {
      if (!tensors_.contains(use.name)) fail(step, phase, use.name, "the plan does not declare");
      if (use.read && !is_there(use.name)) {
        fail(step, phase, use.name, "nothing before it has written");
      }
    }
    for (const StepTensor& use : uses) {
      if (use.written) written_[owner(use.name)].push_back(columns(use.name));
    }
  }

  [[noreturn]] static void fail(const PlanStep& step, const char* phase, const std::string& name,
                                const char* why) {
    throw InternalError("compile wrote a wrong plan: step '" + step.name + "' of the " + phase +
                        " reads '" + name + "', which " + why);
  }

  std::string owner(const std::string& name) const {
    const PlanTensor& t = *tensors_.at(name);
    return t.view_of.empty() ? name : owner(t.view_of);
  }

  // The columns of the owner; a transposed view covers the whole vector.
  Columns columns(const std::string& name) const {
    const PlanTensor& t = *tensors_.at(name);
    if (t.transposed) return columns(t.view_of);
    int64_t begin = t.view_of.empty() ? 0 : columns(t.view_of).begin;
    if (t.column_offset != Dim(0)) begin += t.column_offset.evaluate(sizes_);
    return {begin, begin + t.decl.shape.cols.evaluate(sizes_)};
  }

  bool is_there(const std::string& name) const {
    const std::string& base = owner(name);
    const TensorRole role = tensors_.at(base)->role;
    if (role == TensorRole::input || role == TensorRole::parameter) return true;
    if (given_.contains(base) || given_.contains(name)) return true;
    const auto found = written_.find(base);
    if (found == written_.end()) return false;
    std::vector<Columns> pieces = found->second;
    std::sort(pieces.begin(), pieces.end(),
              [](const Columns& a, const Columns& b) { return a.begin < b.begin; });
    const Columns wanted = columns(name);
    int64_t until = wanted.begin;
    for (const Columns& piece : pieces) {
      if (piece.begin <= until) until = std::max(until, piece.end);
    }
    return until >= wanted.end;
  }

  const Plan& plan_;
  const std::set<std::string>& given_;
  const DimValues& sizes_;
  std::map<std::string, const PlanTensor*> tensors_;
  std::map<std::string, std::vector<Columns>> written_;  // by owner
};

}  // namespace

void check_reads(const Plan& plan, const std::set<std::string>& given, const DimValues& sizes) {
  Reads(plan, given, sizes).run();
}

}  // namespace coda
