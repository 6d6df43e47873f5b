// SPDX-License-Identifier: Apache-2.0
// Backends by name, and what a backend offers: it prepares a Program or an opaque call once for
// given sizes (lowering, tile shapes, scratch), and runs it many times. A Session does so with a
// plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "coda/api.h"
#include "coda/plan.h"
#include "coda/rates.h"
#include "coda/tensor.h"

namespace CODA_API coda {

class Communicator;  // coda/communicator.h
class Stream;        // coda/device.h
struct ProcessPlace;

// Bytes that a backend's kernels read and write, freed with the last copy. On a device the address
// is the device's: only the backend may use it.
using BackendMemory = std::shared_ptr<std::byte>;

// A prepared program or call. run() is not reentrant: one Kernel is run by one thread at a time (it
// may use many), and on a GPU its runs follow one another, on one stream or on streams that wait.
class Kernel {
 public:
  virtual ~Kernel() = default;
  // `tensors` in the order of Program::tensors, or an opaque call's inputs followed by its outputs.
  // Views have the physical shape (see physical_shape) and the declared dtype; the backend may
  // assume both.
  virtual void run(std::span<const TensorView> tensors) = 0;

  // Bytes of memory that run() uses while it runs, and that keep nothing from one run to the next:
  // kernels that never run at once may share it. A kernel that is given none allocates its own.
  virtual size_t scratch_bytes() const { return 0; }
  virtual void use_scratch([[maybe_unused]] const BackendMemory& memory,
                           [[maybe_unused]] size_t bytes) {}
};

// A program that is about to be prepared, for the sizes given.
struct AnnouncedProgram {
  const Program* program = nullptr;
  DimValues sizes;
  std::vector<int64_t> row_strides = {};  // of its tensors; empty: all are dense
  bool owns_padding = false;              // nobody reads what lies between those rows
};

// Likewise a call of an operation.
struct AnnouncedCall {
  const OpaqueCall* call = nullptr;
  std::vector<TensorDecl> tensors;  // of the inputs, then of the outputs
  DimValues sizes;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  virtual std::unique_ptr<Kernel> prepare(const Program& program, const DimValues& sizes) = 0;
  // `tensors`: declarations of the inputs, then of the outputs.
  virtual std::unique_ptr<Kernel> prepare(const OpaqueCall& call,
                                          std::span<const TensorDecl> tensors,
                                          const DimValues& sizes) = 0;

  // What the cost model should know of the machine: CompileOptions::rates.
  virtual Rates rates() const;
  // Bytes of its own that its kernels use while they run, beside Kernel::scratch_bytes: the CPU's
  // packed operands.
  virtual int64_t scratch_bytes() const { return 0; }
  // Before anything is prepared or allocated: bytes that the kernels of a plan will use while they
  // run, beside the plan's tensors, and bytes that can still be allocated.
  virtual int64_t workspace_bytes(const Plan& plan, const DimValues& sizes);
  virtual int64_t free_bytes();

  // What follows is for backends whose memory, or time, is not the caller's; the defaults are the
  // host's.

  // Whether the memory of its tensors is the host's.
  virtual bool is_on_host() const { return true; }
  // Between the host's memory and the backend's, of one type and size; what was run before comes
  // first, and the copy is there when they return.
  virtual void copy_in(const TensorView& host, const TensorView& own);
  virtual void copy_out(const TensorView& own, const TensorView& host);
  // All that is run, copied and allocated from now on goes to this stream, which must outlive it;
  // without, to the default stream. Throws Error where a backend has no streams (the host's).
  virtual void use_stream(const Stream& stream);

  // Programs and calls that will be prepared next: what compiles may compile all of them at once.
  virtual void announce(std::span<const AnnouncedProgram> programs,
                        std::span<const AnnouncedCall> calls);
  // At least `bytes`, aligned to cache lines; `what` names them in errors: "the saved tensors".
  virtual BackendMemory allocate(size_t bytes, std::string_view what);
  // Sets every byte of the matrix, after what was run before it.
  virtual void fill(const TensorView& view, std::byte value);
  // Waits until all that was run is done.
  virtual void synchronize() {}

  // What follows lets the host go on while a device works.

  // Memory of the host for the copies below.
  virtual BackendMemory allocate_on_host(size_t bytes, std::string_view what);
  // As copy_in and copy_out of dense matrices, in the order of what is run, but they return at
  // once: `host` lies in memory of allocate_on_host and is left alone until a later mark has been
  // waited for.
  virtual void start_copy_in(const TensorView& host, const TensorView& own);
  virtual void start_copy_out(const TensorView& own, const TensorView& host);
  // Copies that go on beside what is run from now on, behind what was run before. What they read
  // and write is left alone until a call of the result has returned, which waits for them, from
  // any thread and as often as wanted. It throws Error where a copy has failed.
  struct CopyOut {
    TensorView own;   // dense
    TensorView host;  // dense, of the same type and size, of any memory of the host
  };
  virtual std::function<void()> copy_out_beside(const std::vector<CopyOut>& copies);
  // A point in what was run so far: calling it waits until the device has passed it.
  virtual std::function<void()> mark();
  // The time of a point in what was run so far, in seconds from some start: calling it waits until
  // the device has passed it.
  virtual std::function<double()> stamp();
  // Runs `work` again when it is called, at little cost to the host. `work` runs kernels and fills,
  // and waits for nothing; it has been run before, with tensors that lie where they lie now.
  virtual std::function<void()> record(std::function<void()> work);

  // This process among those that train together, each with a backend of this kind; returns once
  // all are there. It exchanges tensors of this backend, and the backend must outlive it. On the
  // host it exchanges over shared memory or Open MPI, on GPUs over NCCL. Throws Error where those
  // are missing, or a process is.
  virtual std::unique_ptr<Communicator> join(const ProcessPlace& place);
};

// How attention runs on a GPU: forward, and backward.
enum class GpuAttention : uint8_t {
  repeatable,  // cuDNN, the same bits each time; where there is no cuDNN, the library's own kernel
  fast,        // cuDNN, whose backward adds the queries' gradient up in any order
  plain,       // the library's own kernel: repeatable, and slower by tens of times
};

struct BackendOptions {
  int threads = 0;  // of the CPU; 0: as many as OpenMP would use
  int device = -1;  // the GPU's number; -1: of the thread's current CUDA context, else 0
  GpuAttention attention = GpuAttention::repeatable;
};

// "cpu": fast on x86-64 with AVX2 or AVX-512, slow on other CPUs. "gpu": an H100 or
// H200; see why_no_gpu. "best": "gpu" if there is a usable GPU, else "cpu". "reference":
// float64, unoptimised, for comparison. Throws Error for an unknown name, or if the machine lacks
// the required hardware.
std::unique_ptr<Backend> make_backend(std::string_view name, const BackendOptions& options = {});

}  // namespace CODA_API coda
