// SPDX-License-Identifier: Apache-2.0
// A GPU target as a value: everything that legalisation, the choice of configurations, emission and
// the compiler need to know about the hardware. Each target has a folder next to this one
// (src/gpu/sm90) and device code under device/ (device/sm90). No other code in src/gpu knows a
// matrix instruction, the layout of its results or how tiles reach shared memory. Kernels without a
// GEMM are the same for all targets.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/embedded_text.h"
#include "device/layout/shared_layout.cuh"
#include "gpu/target/compiler_version.h"
#include "gpu/target/fragment_map.h"

namespace coda::gpu {

// A tile shape that kernels may have.
struct TileKind {
  uint32_t m;
  uint32_t n;
  device::Schedule schedule;
  uint32_t most_stages;
  double factor;  // time of a long mainloop, relative to the peak rate of the tensor cores
};

struct ClusterShape {
  uint32_t m;
  uint32_t n;
};

// The rates of the cost model (configure/config_model.h) in cycles of one multiprocessor, fitted to
// measurements. A plane has 16 bits for each element of a sub-tile of 64 x 64. Operations are
// counted for each element.
struct KernelRates {
  double multiplications = 0;  // multiply-adds of 16-bit operands in a cycle
  double operand_bytes = 0;    // bytes of operands from L2 in a cycle
  // Only for targets whose threads load operands from shared memory into registers
  // (Target::shared_traffic): the bandwidth of shared memory in bytes per cycle. Shared-memory
  // accesses overlap only partly with the tensor cores, so the model's time of a mainloop is
  // tensor_part * (tensor-core time) + shared_part * (shared-memory time), and at least the
  // tensor-core time.
  double shared_bytes = 0;
  double tensor_part = 1;
  double shared_part = 0;
  double alone = 1;          // factor on the tensor cores' time for a CTA that shares no operand
  double tile = 0;           // fixed cost of a tile
  double sub_tile = 0;       // cost of a sub-tile of a cooperative tile: nothing hides its epilogue
  double exposed_plane = 0;  // for each plane of such a sub-tile
  double exposed_work = 0;   // for each operation of such a sub-tile
  double hidden_work = 0;    // number of operations that the store of a plane hides
  double hidden_plane = 0;   // for each plane of a sub-tile of a ping-pong tile
  double hidden_plane_of_k = 0;  // added to hidden_plane for each element along K: energy
  double own_sub_tile = 0;       // cost of a sub-tile whose epilogue takes longer than the mainloop
  double own_plane = 0;
  // Cost of a sub-tile if the launch has only one wave, where nothing hides one warpgroup's
  // epilogue.
  double lone = 0;
  double lone_plane = 0;
  double lone_work = 0;
};

// The shared memory that a configuration needs.
struct SharedUse {
  uint32_t bytes = 0;
  uint32_t groups = 0;  // number of sub-tiles whose planes fit into the staging ring together
  bool fits = false;
};

// How the planes of an epilogue pass through shared memory: how many planes may, and the lines of
// source that move a plane ("$" stands for values that the emitter fills in). If `most` is 0,
// threads load and store every tensor directly.
struct PlaneMoves {
  int most = 0;  // in each direction: planes of 16-bit elements, and byte planes that are loaded
  int most_bytes = 0;  // byte planes that are stored
  std::string_view load{};
  std::string_view store{};
  std::string_view store_bytes{};         // stores one of the two halves of a byte plane
  std::string_view store_bytes_turned{};  // the same for a plane that lies along columns
  // Planes use the shared memory of the stages after the mainloop, and no other shared memory.
  bool replace_stages = false;
};

// Ways for a kernel's argument to describe a stored operand of a product. Each function adds the
// named value to the argument and returns the expression that reads it.
struct OperandText {
  std::function<std::string()> descriptor;  // address of a TMA descriptor for boxes of the operand
  std::function<std::string()> address;     // address of the whole tensor
  std::function<std::string()> stride;      // elements between two rows of the tensor
  std::function<std::string()> rows;        // rows of the rectangle that the product reads
  std::function<std::string()> columns;
  std::function<std::string()> first_row;  // first row of the rectangle in the tensor
  std::function<std::string()> first_column;
};

// The source around the tile spaces of a GEMM kernel.
struct KernelFrame {
  std::string config;                // defines kConfig
  std::vector<std::string> headers;  // under device/
  std::string attributes;
  std::string body;  // "$" stands for ", Space0, Space1"; a second "$" stands for the tile counter
};

struct Target {
  std::string_view name;          // "sm90"
  std::string_view folder;        // of its device code, under device/: "sm90"
  std::string_view architecture;  // NVRTC's --gpu-architecture
  // The oldest NVRTC that has this architecture, and what an older one compiles to instead: PTX,
  // which the driver compiles. `ptx` is empty if every NVRTC that the library accepts has it.
  CompilerVersion compiler{};
  std::string_view ptx{};
  int major = 0;  // compute capability
  int minor = 0;
  // Whether kernels also run on newer GPUs; else only on GPUs of this capability.
  bool runs_on_newer = false;
  std::string_view gpus;      // names for messages
  uint32_t shared_bytes = 0;  // shared memory that a block may use
  // The multiprocessors of these GPUs; measured configurations are for this number.
  uint32_t multiprocessors = 0;
  uint32_t registers = 0;  // available to a thread that holds accumulators

  FragmentMap fragment;
  std::span<const TileKind> tiles;
  std::span<const ClusterShape> clusters;
  uint32_t fewest_stages = 0;
  uint32_t threads = 0;            // threads of a CTA
  bool overlaps_launches = false;  // a kernel may start before the previous one has ended
  bool has_eight_bits = false;     // 8-bit floats, e4m3 and e5m2
  bool adds_in_memory = false;     // one instruction adds four fp32 numbers in memory
  bool deals_tiles = false;        // persistent CTAs take tile numbers from a counter in memory
  // The mainloop hides the load of tables that all sub-tiles read.
  bool loads_under_mainloop = false;
  PlaneMoves planes;
  std::string_view operand_type;  // return type of a space's functions that return operands
  KernelRates rates;

  // Whether tensor cores multiply elements of this type.
  bool (*multiplies)(device::Element);
  // Whether a tile space of these traits can have the configuration; ignores shared memory.
  bool (*is_valid)(const device::GemmConfig&, const device::EpilogueTraits&);
  SharedUse (*shared_use)(const device::GemmConfig&, const device::RingShape&);
  // Bytes that are written to and read from shared memory for each K block of a tile. Null if
  // threads load no operands into registers.
  uint32_t (*shared_traffic)(const device::GemmConfig&, const device::EpilogueTraits&) = nullptr;
  uint32_t (*accumulators)(const device::GemmConfig&);  // accumulator registers of a thread
  uint32_t (*row_blocks)(const device::GemmConfig&);    // blocks of rows of a thread
  // The expression that a space's functions return for an operand.
  std::string (*operand)(const OperandText&);
  KernelFrame (*frame)(const device::GemmConfig&);
  // Returns the measured configurations (configure/tuned_rows.h); null: none were measured.
  std::span<const EmbeddedText> (*measured)();
};

}  // namespace coda::gpu
