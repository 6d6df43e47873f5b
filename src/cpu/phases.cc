// SPDX-License-Identifier: Apache-2.0
// An operation joins the first phase of its kind that is not before its operands, nor before what
// its memory is read or written by.
#include "cpu/phases.h"

#include <algorithm>
#include <span>

namespace coda::cpu {
namespace {

class Splitter {
 public:
  Splitter(const TileProgram& program, const ChainMachine& machine)
      : program_(program), machine_(machine) {
    for (const TileOp& op : program.ops) {
      for (const Place& p : op.out) {
        if (p.kind == PlaceKind::strip)
          planes_.resize(std::max<size_t>(planes_.size(), p.index + 1));
      }
    }
  }

  Phases run() {
    for (const TileOp& op : program_.ops) place(op);
    find_lifetimes();
    assign_strip_planes();
    for (Group& group : groups_) {
      Phase phase;
      if (group.is_chain) {
        phase.chain = compile_chain(group.ops, program_.cols, machine_);
        result_.slots = std::max(result_.slots, phase.chain.slots);
      } else {
        phase.ops = std::move(group.ops);
      }
      result_.phases.push_back(std::move(phase));
    }
    return std::move(result_);
  }

 private:
  // Operations that run together.
  struct Group {
    bool is_chain = false;
    std::vector<TileOp> ops;

    bool takes(bool chains, const TileOp& op) const {
      if (is_chain != chains) return false;
      const TileOp& other = ops[0];
      return !is_chain || (op.is_narrow == other.is_narrow &&
                           (!op.is_narrow || (op.span == other.span && op.groups == other.groups)));
    }
  };
  // A value, by its number as lowered.
  struct Plane {
    size_t group = 0;  // that makes it
    bool is_in_strip = false;
    int last_turn = -1;  // see for_turns
    int home = -1;       // strip plane
  };

  void place(const TileOp& op) {
    size_t earliest = 0;
    for (const Place& p : op.in) {
      if (p.kind == PlaceKind::strip) earliest = std::max(earliest, planes_[p.index].group);
    }
    if (writes_memory(op)) earliest = std::max(earliest, last_read_);
    if (reads_memory(op)) earliest = std::max(earliest, last_written_);
    const bool chains = fits_chain(op, program_.cols, machine_);
    size_t g = earliest;
    while (g < groups_.size() && !groups_[g].takes(chains, op)) ++g;
    if (g == groups_.size()) groups_.push_back({chains, {}});
    groups_[g].ops.push_back(op);
    if (writes_memory(op)) last_written_ = std::max(last_written_, g);
    if (reads_memory(op)) last_read_ = std::max(last_read_, g);
    for (const Place& p : op.out) {
      if (p.kind == PlaceKind::strip) planes_[p.index].group = g;
    }
  }

  // Calls f(group, its operations that run at one time): a chain's are all one turn.
  template <class Function>
  void for_turns(const Function& f) {
    for (size_t g = 0; g < groups_.size(); ++g) {
      std::vector<TileOp>& ops = groups_[g].ops;
      if (groups_[g].is_chain) {
        f(g, std::span<TileOp>(ops));
      } else {
        for (TileOp& op : ops) f(g, std::span<TileOp>(&op, 1));
      }
    }
  }

  void find_lifetimes() {
    int turn = 0;
    for_turns([&](size_t g, std::span<TileOp> ops) {
      for (const TileOp& op : ops) {
        for (const Place& p : op.in) {
          if (p.kind != PlaceKind::strip) continue;
          Plane& plane = planes_[p.index];
          plane.last_turn = turn;
          if (!groups_[g].is_chain || plane.group != g) plane.is_in_strip = true;
        }
        for (const Place& p : op.out) {
          if (p.kind == PlaceKind::strip && !groups_[g].is_chain)
            planes_[p.index].is_in_strip = true;
        }
      }
      ++turn;
    });
  }

  // A turn's results get planes that nothing has which it reads or which is read later.
  void assign_strip_planes() {
    std::vector<int> free;
    int turn = 0;
    for_turns([&](size_t /*g*/, std::span<TileOp> ops) {
      std::vector<int> dying;
      for (TileOp& op : ops) {
        for (Place& p : op.out) {
          if (p.kind != PlaceKind::strip) continue;
          Plane& plane = planes_[p.index];
          if (!plane.is_in_strip) continue;
          if (free.empty()) free.push_back(result_.strip_planes++);
          plane.home = free.back();
          free.pop_back();
          if (plane.last_turn < 0) dying.push_back(plane.home);
        }
      }
      for (Plane& plane : planes_) {
        if (plane.home >= 0 && plane.last_turn == turn) dying.push_back(plane.home);
      }
      free.insert(free.end(), dying.begin(), dying.end());
      for (TileOp& op : ops) {
        for (Place& p : op.in) settle(p);
        for (Place& p : op.out) settle(p);
      }
      ++turn;
    });
  }

  void settle(Place& p) const {
    if (p.kind != PlaceKind::strip) return;
    const Plane& plane = planes_[p.index];
    p = plane.is_in_strip ? Place{PlaceKind::strip, plane.home} : Place{PlaceKind::value, p.index};
  }

  const TileProgram& program_;
  const ChainMachine& machine_;
  std::vector<Plane> planes_;
  std::vector<Group> groups_;
  size_t last_read_ = 0;     // the last group that reads memory
  size_t last_written_ = 0;  // or writes it
  Phases result_;
};

}  // namespace

Phases split_phases(const TileProgram& program, const ChainMachine& machine) {
  return Splitter(program, machine).run();
}

}  // namespace coda::cpu
