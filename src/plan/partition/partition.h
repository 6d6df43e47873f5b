// SPDX-License-Identifier: Apache-2.0
// Decides where everything is computed. A value is computed in the epilogue of the GEMM that
// produces its latest operand, if it is tile-local there. Otherwise it floats to a later epilogue
// with the same tiles that loads least in addition, or to a program of its own. A minimum cut
// decides what must be in memory between programs.
#pragma once

#include <compare>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "coda/compile_request.h"
#include "ir/readers.h"
#include "plan/partition/inverses.h"
#include "plan/partition/units.h"

namespace coda {

// The position of a program: (k, 0) is the program of unit k; (k, 1), (k, 2), ... are tile programs
// between unit k and unit k + 1.
struct PlanPoint {
  int slot = -1;
  int level = 0;
  friend auto operator<=>(const PlanPoint&, const PlanPoint&) = default;
  PlanPoint next() const { return {slot, level + 1}; }
};

// What one program must compute.
struct ProgramWork {
  std::vector<int> stores;      // tensors that it writes
  std::vector<int> reductions;  // row or column reductions of its tiles
};

struct Partition {
  UnitOrder order;
  std::map<PlanPoint, ProgramWork> programs;  // GEMM and tile programs; opaque units have none
  std::map<int, PlanPoint> stored_forward;    // value -> the program that stores it
  std::map<int, PlanPoint> stored_backward;   // backward values, and recomputed forward ones
  std::map<int, PlanPoint> reduced;           // reduction -> its program
  std::set<int> saved;                        // forward values that the backward reads from memory
  std::map<int, int>
      stand_in;  // forward value -> the saved one that it is made from by a proven inverse
  std::vector<InverseLink> links;  // the steps of this computation, by id
  std::vector<int>
      dropped;  // forward operands that the backward recomputes; see Request::also_saved
};

struct PartitionRequest {
  const JointGraph* joint = nullptr;
  DimValues sizes;           // for counting bytes
  double storage_bytes = 4;  // per stored element
  bool fuse = true;          // false: epilogues of GEMMs only store
  std::set<int> also_saved;  // values that are saved although they could be recomputed
};

Partition partition(const PartitionRequest& request);

// The earliest point at which each value is known or can be computed, given the places of
// reductions; see partition.cc.
class ReadyTimes {
 public:
  ReadyTimes(const JointGraph& joint, const UnitOrder& order, bool fuse);
  void compute(const std::vector<bool>& live, const std::map<int, PlanPoint>& reduced);
  // Updates the times after some reductions have moved.
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

// Whether a value is in memory without being written by a program: an input, a result of an opaque
// call, or a view of one.
bool is_source(const Graph& graph, int id);
// Whether a plan keeps a reduction as two numbers (a log-sum-exp: the maximum, and the logarithm of
// the sum), so that cancellation happens before the small number is added.
bool is_pair(const Node& node);
// The base of a source that is a view: the input or result under slices, repeats and gathers.
int source_base(const Graph& graph, int id);

}  // namespace coda
