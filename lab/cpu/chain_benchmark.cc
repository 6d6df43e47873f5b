// SPDX-License-Identifier: Apache-2.0
// What chains gain: the epilogues of a LLaMA block's programs, without their products, as the
// backend runs them ("chain": a value stays in registers from step to step) and one operation after
// another over each strip of rows ("strips": a value goes through the first-level cache). The same
// vector code runs in both. One thread; times are of the processor, so that a busy machine tells
// too.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cpu/chain_machine.h"
#include "cpu/epilogue.h"
#include "cpu/lower.h"
#include "cpu/tile_space_kernel.h"
#include "lab/cpu/block_epilogues.h"

namespace coda::cpu {
namespace {

// Each operation by itself. A strip plane is used again once nothing reads what it holds.
Phases one_by_one(const TileProgram& program) {
  const ChainMachine machine = chain_machine();
  std::vector<size_t> last_read;
  const auto strip = [](const Place& p) { return p.kind == PlaceKind::strip; };
  for (size_t i = 0; i < program.ops.size(); ++i) {
    for (const Place& p : program.ops[i].out) {
      if (strip(p)) last_read.resize(std::max<size_t>(last_read.size(), p.index + 1), i);
    }
    for (const Place& p : program.ops[i].in) {
      if (strip(p)) last_read[p.index] = i;
    }
  }
  Phases result;
  std::vector<int> home(last_read.size(), -1);
  std::vector<int> free;
  for (size_t i = 0; i < program.ops.size(); ++i) {
    TileOp op = program.ops[i];
    for (Place& p : op.out) {
      if (!strip(p)) continue;
      if (free.empty()) free.push_back(result.strip_planes++);
      home[p.index] = free.back();
      free.pop_back();
    }
    for (size_t k = 0; k < home.size(); ++k) {
      if (home[k] >= 0 && last_read[k] == i) free.push_back(home[k]);
    }
    for (Place& p : op.in) {
      if (strip(p)) p.index = home[p.index];
    }
    for (Place& p : op.out) {
      if (strip(p)) p.index = home[p.index];
    }
    Phase phase;
    if (fits_chain(op, program.cols, machine)) {
      phase.chain = compile_chain({op}, program.cols, machine);
      result.slots = std::max(result.slots, phase.chain.slots);
    } else {
      phase.ops = {op};
    }
    result.phases.push_back(phase);
  }
  return result;
}

void run(benchmark::State& state, const BlockEpilogue& epilogue, DType type, const DimValues& sizes,
         bool chain) {
  const AllocatedProgram allocated(epilogue, type, false, sizes);
  VectorProgram vectors(allocated.program, sizes);
  const TileProgram tiles =
      lower_tile_space(allocated.program, program::map_tiles(allocated.program), 0, sizes,
                       GemmLibrary::portable, vectors);
  const Phases phases = chain ? split_phases(tiles, chain_machine()) : one_by_one(tiles);
  const TileShape shape = choose_tile_shape(tiles, phases.strip_planes, {.threads = 1}, 1);

  ScratchPieces pieces;
  vectors.place(pieces);
  std::vector<char> scratch(static_cast<size_t>(pieces.size()) + 64);
  vectors.run(allocated.tensors, scratch.data(), 1);
  const auto floats = [](int64_t count) {
    return std::vector<float>(static_cast<size_t>(count + kVectorPad), 0.5f);
  };
  std::vector<float> accumulators = floats(tiles.accumulators * shape.rows * shape.stride);
  std::vector<float> strips = floats(phases.strip_planes * shape.strip_rows * shape.stride);
  std::vector<float> slots = floats(phases.slots * kWidestChunk);
  std::vector<float> states = floats(tiles.states * 2 * shape.stride);
  TileContext tile;
  tile.tensors = allocated.tensors;
  tile.vectors = &vectors;
  tile.scratch = scratch.data();
  tile.total_rows = tiles.rows;
  tile.stride = shape.stride;
  tile.plane_rows = shape.rows;
  tile.strip_rows = shape.strip_rows;
  tile.accumulators = accumulators.data();
  tile.strips = strips.data();
  tile.slots = slots.data();
  tile.states = states.data();

  Epilogue epilogue_of_tiles(phases);
  for (auto _ : state) {
    for (tile.m0 = 0; tile.m0 < tiles.rows; tile.m0 += shape.rows) {
      tile.rows = std::min(shape.rows, tiles.rows - tile.m0);
      for (tile.n0 = 0; tile.n0 < tiles.cols; tile.n0 += shape.cols) {
        tile.cols = std::min(shape.cols, tiles.cols - tile.n0);
        epilogue_of_tiles.run(tile);
      }
    }
  }
  // Of one core, for 16 columns of a row: the unit of lab/notebook/cpu.md.
  const double vectors_done = static_cast<double>(tiles.rows * tiles.cols) / 16;
  state.counters["ns_per_16"] =
      benchmark::Counter(vectors_done * 1e-9, benchmark::Counter::kIsIterationInvariantRate |
                                                  benchmark::Counter::kInvert);
}

}  // namespace
}  // namespace coda::cpu

int main(int argc, char** argv) {
  return coda::cpu::measure_epilogues(argc, argv, coda::cpu::run, "strips", "chain");
}
