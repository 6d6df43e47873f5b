// SPDX-License-Identifier: Apache-2.0
// The tensors of a plan: where each value is in memory, and its name. Names are made once and
// stored here: the caller's name, else the value's label, with a number if it is taken. Everything
// else refers to tensors by these names.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "coda/compile_request.h"
#include "coda/plan.h"
#include "plan/partition/partition.h"
#include "plan/write/labels.h"

namespace coda {

// Where a value is read or written.
struct TensorRef {
  std::string name;
  int row_index = -1;  // node of the index vector, if rows are gathered
  Dim repeat = 1;
};

class TensorNames {
 public:
  TensorNames(const JointGraph& joint, const Partition& partition, const CompileRequest& request,
              const CompileOptions& options);

  // A tensor-valued node in memory as the given phase sees it. (A recomputed value has two
  // tensors.)
  TensorRef read(int id, bool backward);
  std::string written(int id, bool backward);
  // A vector in memory; `result`: which number of a reduction with two (is_pair), else -1.
  std::string vector(int id, int result = -1);
  std::string partial(int id, PartialKind kind, const Shape& shape, TensorKind tensor_kind);
  // Reduction `id` takes its results from the partials of `other`, which is `id` or an entropy.
  void reduce_with(int id, int other) { reduced_with_[id] = other; }
  int reduced_with(int id) const {
    const auto found = reduced_with_.find(id);
    return found == reduced_with_.end() ? id : found->second;
  }
  // Reduces the second members of pairs to a partial of their own and returns its name; "" if that
  // is not possible.
  std::string reduce_members_apart(const std::string& partial);
  std::string second_members(const std::string& partial) const;
  std::string opaque_result(int result_id);

  // The caller's tensor of a gradient, or the view that a part of a concatenation fills.
  std::string gradient_tensor(int id);
  // Whether a gradient is accumulated: the sum goes to the caller's tensor, while other readers
  // need the value itself.
  bool accumulates(int id) const;

  // The tensor that a backward value is added to (an accumulated gradient, or an intermediate sum
  // of calls up to that gradient), or "".
  std::string added_to(int id);

  // The gradient request that a root fulfils, or null.
  const GradientRequest* gradient_of(int id) const;
  // The name of a value, whether it is in memory or not.
  std::string name_of(int id);
  bool is_written_by_caller_name(int id) const { return caller_names_.contains(id); }

  void set_partial_shape(const std::string& name, const Shape& shape);
  TensorDecl& decl(const std::string& name);
  const std::vector<PlanTensor>& tensors() const { return tensors_; }
  std::vector<PlanTensor>& tensors() { return tensors_; }

 private:
  std::string free_name(const std::string& wanted) const;  // with a number if the name is taken
  std::string own_name(int id);
  std::string declare(PlanTensor tensor);
  std::string view(const std::string& base, const Shape& shape, const Dim& offset, bool transposed);
  DType type_of(int id) const;

  const JointGraph& joint_;
  const Graph& graph_;
  const Partition& partition_;
  const CompileOptions& options_;
  std::set<std::string> upstream_;  // inputs that seed the backward before the forward runs
  std::vector<PlanTensor> tensors_;
  Labels labels_;
  std::set<std::string> taken_;           // names of the caller and of values
  std::map<int, std::string> own_names_;  // values without a caller's name
  std::map<std::string, size_t> index_;
  std::map<int, std::string> caller_names_;  // outputs and gradients
  std::map<int, DType> caller_types_;
  std::map<int, const GradientRequest*> gradients_;
  std::map<int, int> reduced_with_;
  std::map<int, int> summands_;  // tensors that calls add to -> the final gradient
  std::map<int, std::pair<int, Dim>>
      part_of_;  // part of a concatenation -> (concatenation, offset)
};

}  // namespace coda
