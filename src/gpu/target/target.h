// SPDX-License-Identifier: Apache-2.0
// A GPU target, as a value: all that legalisation, the choice of configurations, emission and the
// compiler ask about the hardware that kernels are made for. Each target is a folder beside this
// one (src/gpu/sm90) with its device code under device/ (device/sm90); nothing else of src/gpu
// knows a matrix instruction, the layout of its results or how tiles reach shared memory.
// Kernels without a product are the same for all targets.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/embedded_text.h"
#include "device/layout/shared_layout.cuh"
#include "gpu/target/fragment_map.h"

namespace coda::gpu {

// Tile shapes that kernels may have.
struct TileKind {
  uint32_t m;
  uint32_t n;
  device::Schedule schedule;
  uint32_t most_stages;
  double factor;  // over the tensor cores' own time, in a long mainloop
};

struct ClusterShape {
  uint32_t m;
  uint32_t n;
};

// What the cost model (configure/config_model.h) multiplies with: cycles of one multiprocessor,
// fitted to measurements. Planes are of 16 bits for each element of a sub-tile of 64 x 64;
// operations are of each element.
struct KernelRates {
  double multiplications = 0;    // of 16-bit operands, a cycle
  double operand_bytes = 0;      // a cycle, from L2
  double alone = 1;              // over that, of a CTA that shares no operand with another
  double tile = 0;               // what a tile costs besides
  double sub_tile = 0;           // of a cooperative sub-tile, whose epilogue nothing hides
  double exposed_plane = 0;      // for each plane of it
  double exposed_work = 0;       // for each operation of it
  double hidden_work = 0;        // operations that cost nothing beside a plane's store
  double hidden_plane = 0;       // of a ping-pong sub-tile
  double hidden_plane_of_k = 0;  // and more where K is long: energy
  double own_sub_tile = 0;       // of one whose epilogue takes longer than the mainloop
  double own_plane = 0;
  // Of a sub-tile in a launch's only wave, where nothing hides one warpgroup's epilogue.
  double lone = 0;
  double lone_plane = 0;
  double lone_work = 0;
};

// What a configuration takes of shared memory.
struct SharedUse {
  uint32_t bytes = 0;
  uint32_t groups = 0;  // sub-tiles whose planes fit into the staging ring at once
  bool fits = false;
};

// How an epilogue's planes pass through shared memory: the most that do, and the lines that move a
// plane ("$" stands for what the emitter knows). 0 planes: threads move every tensor themselves.
struct PlaneMoves {
  int most = 0;        // each way, of 16-bit elements and of bytes that are loaded
  int most_bytes = 0;  // of bytes that are stored
  std::string_view load{};
  std::string_view store{};
  std::string_view store_bytes{};         // one of the two halves of a plane
  std::string_view store_bytes_turned{};  // of one that lies along columns
};

// One stored operand of a product, as a kernel's argument can describe it: each function adds what
// it names to the argument and returns the expression to read it by.
struct OperandText {
  std::function<std::string()> descriptor;  // address of a TMA descriptor of its boxes
  std::function<std::string()> address;     // of the whole tensor
  std::function<std::string()> stride;      // elements between its rows
  std::function<std::string()> rows;        // of the rectangle that the product reads
  std::function<std::string()> columns;
  std::function<std::string()> first_row;  // where the rectangle begins in the tensor
  std::function<std::string()> first_column;
};

// What surrounds the tile spaces in the text of a kernel with products.
struct KernelFrame {
  std::string config;                // defines kConfig
  std::vector<std::string> headers;  // under device/
  std::string attributes;
  std::string body;  // "$" stands for ", Space0, Space1", and then for the tile counter if any
};

struct Target {
  std::string_view name;          // "sm90"
  std::string_view architecture;  // as NVRTC is asked for it
  int major = 0;                  // compute capability
  int minor = 0;
  bool runs_on_newer = false;    // else on GPUs of exactly that capability
  std::string_view gpus;         // for people
  uint32_t multiprocessors = 0;  // of those GPUs, and of the one that the measured choices are of
  uint32_t registers = 0;        // that a thread with accumulators may have

  FragmentMap fragment;
  std::span<const TileKind> tiles;
  std::span<const ClusterShape> clusters;
  uint32_t fewest_stages = 0;
  uint32_t threads = 0;               // of a CTA
  bool overlaps_launches = false;     // a kernel may start while the one before it ends
  bool has_eight_bits = false;        // floats of 8 bits, e4m3 and e5m2
  bool adds_in_memory = false;        // memory adds four fp32 numbers at a time
  bool deals_tiles = false;           // persistent CTAs take tiles from a counter in memory
  bool loads_under_mainloop = false;  // tables of an epilogue that all sub-tiles read
  PlaneMoves planes;
  std::string_view operand_type;  // of the functions of a space that return operands
  KernelRates rates;

  // Whether tensor cores multiply elements of this type.
  bool (*multiplies)(device::Element);
  // Whether a tile space of these traits can have the configuration, shared memory aside.
  bool (*is_valid)(const device::GemmConfig&, const device::EpilogueTraits&);
  SharedUse (*shared_use)(const device::GemmConfig&, const device::RingShape&);
  uint32_t (*accumulators)(const device::GemmConfig&);  // registers of a thread
  uint32_t (*row_blocks)(const device::GemmConfig&);    // of a thread
  std::string (*operand)(const OperandText&);           // what such a function returns
  KernelFrame (*frame)(const device::GemmConfig&);
  // Configurations that were measured (configure/tuned_rows.h); null: none were.
  std::span<const EmbeddedText> (*measured)();
};

}  // namespace coda::gpu
