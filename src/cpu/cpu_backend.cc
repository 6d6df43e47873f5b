// SPDX-License-Identifier: Apache-2.0
// Prepares programs: lowering, tile shapes, GEMM kernels and scratch sizes are determined once;
// run() only computes.
#include "cpu/cpu_backend.h"

#include <omp.h>

#include <algorithm>

#include "coda/error.h"
#include "cpu/lower.h"
#include "cpu/opaque.h"
#include "cpu/tile_space_kernel.h"
#include "cpu/vector_program.h"
#include "cpu/workspace.h"
#include "program/tile_map.h"
#include "runtime/plan_programs.h"

namespace coda::cpu {
namespace {

// A program with tiles: its tile spaces are independent and run one after another.
class TileKernelSet : public Kernel {
 public:
  TileKernelSet(std::vector<TileSpaceKernel> spaces, std::shared_ptr<Workspace> workspace)
      : spaces_(std::move(spaces)), workspace_(std::move(workspace)) {
    for (const TileSpaceKernel& space : spaces_) bytes_ = std::max(bytes_, space.scratch_bytes());
    workspace_->reserve(bytes_);
  }

  void run(std::span<const TensorView> tensors) override {
    Workspace::Lease scratch(*workspace_, bytes_);
    for (size_t i = 0; i < spaces_.size(); ++i) {
      const bool b_is_packed = i > 0 && spaces_[i].shares_b(spaces_[i - 1]);
      spaces_[i].run(tensors, scratch.data(), b_is_packed);
    }
  }

 private:
  std::vector<TileSpaceKernel> spaces_;
  std::shared_ptr<Workspace> workspace_;
  int64_t bytes_ = 0;
};

class FinalizerKernel : public Kernel {
 public:
  FinalizerKernel(VectorProgram vectors, std::shared_ptr<Workspace> workspace, int threads)
      : vectors_(std::move(vectors)), workspace_(std::move(workspace)), threads_(threads) {
    vectors_.place(pieces_);
    workspace_->reserve(pieces_.size());
  }

  void run(std::span<const TensorView> tensors) override {
    Workspace::Lease scratch(*workspace_, pieces_.size());
    vectors_.run(tensors, scratch.data(), threads_);
  }

 private:
  VectorProgram vectors_;
  std::shared_ptr<Workspace> workspace_;
  int threads_;
  ScratchPieces pieces_;
};

bool has_tiles(const program::TileMap& map) {
  return std::find(map.on_tile.begin(), map.on_tile.end(), char{1}) != map.on_tile.end();
}

class CpuBackend : public Backend {
 public:
  explicit CpuBackend(const CpuOptions& options) : options_(options) {
    require(options.threads >= 0, "threads must be 0 (all) or more");
    for (int64_t size : {options.tile_rows, options.tile_cols}) {
      require(size >= 0 && size % kPartialSpan == 0,
              "a tile's rows and columns must be multiples of 64, or 0");
    }
    options_.gemm = resolve(options.gemm);
    threads_ = options.threads > 0 ? options.threads : omp_get_max_threads();
  }

  std::string_view name() const override { return "cpu"; }

  std::unique_ptr<Kernel> prepare(const Program& program, const DimValues& sizes) override {
    verify(program);
    const program::TileMap map = program::map_tiles(program);
    if (!has_tiles(map)) {
      VectorProgram vectors(program, sizes);
      for (size_t i = 0; i < program.steps.size(); ++i) vectors.add_step(static_cast<int>(i));
      return std::make_unique<FinalizerKernel>(std::move(vectors), workspace_, threads_);
    }
    return std::make_unique<TileKernelSet>(tile_spaces(program, map, sizes), workspace_);
  }

  std::unique_ptr<Kernel> prepare(const OpaqueCall& call, std::span<const TensorDecl> tensors,
                                  const DimValues& sizes) override {
    return prepare_opaque(call, tensors, sizes, threads_);
  }

  int64_t scratch_bytes() const override { return workspace_->bytes(); }

  // Finalizers have a few rows of vectors, which are not counted.
  int64_t workspace_bytes(const Plan& plan, const DimValues& sizes) override {
    int64_t bytes = 0;
    for (const AnnouncedProgram& one : programs_of(plan, sizes)) {
      const program::TileMap map = program::map_tiles(*one.program);
      if (!has_tiles(map)) continue;
      for (const TileSpaceKernel& space : tile_spaces(*one.program, map, one.sizes))
        bytes = std::max(bytes, space.scratch_bytes());
    }
    return bytes;
  }

 private:
  std::vector<TileSpaceKernel> tile_spaces(const Program& program, const program::TileMap& map,
                                           const DimValues& sizes) const {
    std::vector<TileSpaceKernel> spaces;
    for (size_t i = 0; i < map.spaces.size(); ++i) {
      VectorProgram vectors(program, sizes);
      TileProgram tiles =
          lower_tile_space(program, map, static_cast<int>(i), sizes, options_.gemm, vectors);
      spaces.emplace_back(std::move(tiles), std::move(vectors), options_, threads_);
    }
    return spaces;
  }

  CpuOptions options_;
  int threads_ = 1;
  std::shared_ptr<Workspace> workspace_ = std::make_shared<Workspace>();
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options) {
  return std::make_unique<CpuBackend>(options);
}

}  // namespace coda::cpu
