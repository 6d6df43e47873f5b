// SPDX-License-Identifier: Apache-2.0
// Where everything is computed. Every value finds its place relative to the units: in the epilogue
// of the product that makes its latest operand, if it is tile-local there; otherwise it floats
// behind that point, to an epilogue with the same tiles that loads least extra for it, or to a
// program of its own. What must lie in memory between programs is a minimum cut.
#pragma once

#include <compare>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "coda/compile_request.h"
#include "ir/readers.h"
#include "plan/partition/units.h"

namespace coda {

// Where a program stands: (k, 0) is unit k's; (k, 1), (k, 2), ... are tile programs between unit k
// and unit k + 1.
struct PlanPoint {
  int slot = -1;
  int level = 0;
  friend auto operator<=>(const PlanPoint&, const PlanPoint&) = default;
  PlanPoint next() const { return {slot, level + 1}; }
};

// What one program must make.
struct ProgramWork {
  std::vector<int> stores;      // tensors that it writes
  std::vector<int> reductions;  // row or column reductions of its tiles
};

struct Partition {
  UnitOrder order;
  std::map<PlanPoint, ProgramWork> programs;  // GEMM and tile programs; opaque units have none
  std::map<int, PlanPoint> stored_forward;    // value -> the program that writes it
  std::map<int, PlanPoint>
      stored_backward;               // backward values, and forward ones that are made again
  std::map<int, PlanPoint> reduced;  // reduction -> its program
  std::set<int> saved;               // forward values that the backward reads from memory
  std::map<int, int>
      stand_in;  // forward value -> the saved one that it is made from by a proven inverse
  std::vector<int>
      dropped;  // forward operands that the backward makes again; see Request::also_saved
};

struct PartitionRequest {
  const JointGraph* joint = nullptr;
  DimValues sizes;           // what bytes are counted with
  double storage_bytes = 4;  // of a stored element
  bool fuse = true;          // false: products' epilogues only store
  std::set<int> also_saved;  // values that are saved although they could be made again
};

Partition partition(const PartitionRequest& request);

// When a value is known or can be computed at the earliest, given where reductions stand; see
// partition.cc.
class ReadyTimes {
 public:
  ReadyTimes(const JointGraph& joint, const UnitOrder& order, bool fuse);
  void compute(const std::vector<bool>& live, const std::map<int, PlanPoint>& reduced);
  // The same after the places of some reductions have changed.
  void update(std::set<int> moved, const Readers& readers, const std::map<int, PlanPoint>& reduced);

  struct Time {
    PlanPoint at;
    bool home =
        false;  // a tile of unit at.slot; otherwise: computable in any program at `at` or later
    bool operator==(const Time&) const = default;
  };
  const Time& of(int id) const { return times_[static_cast<size_t>(id)]; }
  bool is_home(int id, int unit) const { return of(id).home && of(id).at.slot == unit; }

 private:
  Time time_of(int id, const std::map<int, PlanPoint>& reduced);
  Time tensor_time(int id, const Node& node);

  const JointGraph& joint_;
  const Graph& graph_;
  const UnitOrder& order_;
  bool fuse_;
  std::vector<Time> times_;
};

// Lies in memory without any program of the plan writing it: an input, a result of an opaque call,
// or a view of such.
bool is_source(const Graph& graph, int id);
// A reduction that a plan keeps as two numbers (a log-sum-exp: the maximum and the logarithm of the
// sum), so that what cancels does so before the small one is added.
bool is_pair(const Node& node);
// Operands of a source that are views: the input or result under slices, repeats and gathers.
int source_base(const Graph& graph, int id);

}  // namespace coda
