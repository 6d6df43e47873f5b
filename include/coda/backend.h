// SPDX-License-Identifier: Apache-2.0
// The interface of a backend, and backends by name. A backend prepares a Program or an opaque call
// once for given sizes (lowering, tile shapes, scratch) and then runs it many times. A Session does
// this for a whole plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
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

// Memory that a backend's kernels read and write. It is freed with its last copy. On a GPU this is
// a device address, which only the backend may dereference.
using BackendMemory = std::shared_ptr<std::byte>;

// A prepared program or call. run() is not reentrant: only one thread at a time may run a Kernel
// (which may itself use many threads). On a GPU, runs must be ordered by one stream or by streams
// that wait for each other.
class Kernel {
 public:
  virtual ~Kernel() = default;
  // `tensors` in the order of Program::tensors, or an opaque call's inputs followed by its outputs.
  // Views have the physical shape (see physical_shape) and the declared dtype; the backend may
  // assume both.
  virtual void run(std::span<const TensorView> tensors) = 0;

  // Bytes of scratch memory that run() uses. Scratch holds nothing between two runs, so kernels
  // that never run concurrently may share it. A kernel that gets no scratch allocates its own.
  virtual size_t scratch_bytes() const { return 0; }
  virtual void use_scratch([[maybe_unused]] const BackendMemory& memory,
                           [[maybe_unused]] size_t bytes) {}
};

// A program that is about to be prepared, for the sizes given.
struct AnnouncedProgram {
  const Program* program = nullptr;
  DimValues sizes;
  std::vector<int64_t> row_strides = {};  // of the program's tensors; empty: all are dense
  bool owns_padding = false;              // nobody reads the gaps between rows
};

// A call of an operation that is about to be prepared.
struct AnnouncedCall {
  const OpaqueCall* call = nullptr;
  std::vector<TensorDecl> tensors;  // the inputs, then the outputs
  DimValues sizes;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  virtual std::unique_ptr<Kernel> prepare(const Program& program, const DimValues& sizes) = 0;
  // `tensors`: declarations of the inputs, then those of the outputs.
  virtual std::unique_ptr<Kernel> prepare(const OpaqueCall& call,
                                          std::span<const TensorDecl> tensors,
                                          const DimValues& sizes) = 0;

  // Why programs with 8-bit floats cannot run, in one line; empty if they can.
  virtual std::string why_no_eight_bits() const { return ""; }
  // What the cost model has to know about the machine (CompileOptions::rates).
  virtual Rates rates() const;
  // Bytes of the backend's own that its kernels use while they run, in addition to
  // Kernel::scratch_bytes: the CPU's packed operands.
  virtual int64_t scratch_bytes() const { return 0; }
  // workspace_bytes: what the kernels of a plan will use while they run, in addition to the plan's
  // tensors. free_bytes: what can still be allocated. Both may be called before anything is
  // prepared or allocated.
  virtual int64_t workspace_bytes(const Plan& plan, const DimValues& sizes);
  virtual int64_t free_bytes();

  // The functions below are for backends that have their own memory or run asynchronously. The
  // default implementations are for the host.

  // Whether the memory of its tensors is the host's.
  virtual bool is_on_host() const { return true; }
  // Copies between host memory and the backend's; both sides have the same type and size. A copy
  // starts after earlier work and is complete when the function returns.
  virtual void copy_in(const TensorView& host, const TensorView& own);
  virtual void copy_out(const TensorView& own, const TensorView& host);
  // All later work, copies and allocations use this stream, which must outlive them. Until the
  // first call they use the default stream. Throws Error if the backend has no streams (on the
  // host).
  virtual void use_stream(const Stream& stream);

  // Announces programs and calls that will be prepared next, so that a compiling backend can
  // compile them in parallel.
  virtual void announce(std::span<const AnnouncedProgram> programs,
                        std::span<const AnnouncedCall> calls);
  // Allocates at least `bytes`, aligned to cache lines. `what` names the memory in error messages,
  // for example "the saved tensors".
  virtual BackendMemory allocate(size_t bytes, std::string_view what);
  // Sets every byte of the matrix, after earlier work.
  virtual void fill(const TensorView& view, std::byte value);
  // Waits until all earlier work is done.
  virtual void synchronize() {}

  // The functions below let the host continue while the device works.

  // Host memory for the asynchronous copies below.
  virtual BackendMemory allocate_on_host(size_t bytes, std::string_view what);
  // As copy_in and copy_out of dense matrices, in order with other work, but without waiting.
  // `host` must be memory of allocate_on_host, and must not be touched until a later mark() has
  // been waited for.
  virtual void start_copy_in(const TensorView& host, const TensorView& own);
  virtual void start_copy_out(const TensorView& own, const TensorView& host);
  // Starts copies after earlier work; they overlap with later work. Calling the result waits until
  // the copies are complete; it may be called from any thread and more than once. Until then nobody
  // may change what the copies read or write. The call throws Error if a copy has failed.
  struct CopyOut {
    TensorView own;   // dense
    TensorView host;  // dense, of the same type and size; any host memory
  };
  virtual std::function<void()> copy_out_concurrently(const std::vector<CopyOut>& copies);
  // Calls `copies`, which calls start_copy_in and start_copy_out, and overlaps these copies with
  // later work. The copies wait for all earlier work and for the copies of earlier calls of
  // overlap(). Calling the returned function makes later work wait for the copies on the device;
  // the host does not wait. record() can record both calls. A backend in the host's memory copies
  // before overlap() returns.
  virtual std::function<void()> overlap(const std::function<void()>& copies);
  // Marks the current point in the backend's work. Calling the result waits until the device has
  // passed that point.
  virtual std::function<void()> mark();
  // As mark(), but the result returns the time at which the device passed that point, in seconds
  // since an arbitrary start.
  virtual std::function<double()> stamp();
  // Returns a function that replays `work` at little cost to the host (on a GPU: a CUDA graph).
  // `work` may run kernels and fills and must not wait. It must have run before, with its tensors
  // at the addresses that they have now.
  virtual std::function<void()> record(std::function<void()> work);

  // Joins a group of processes that train together, all with this kind of backend. Returns when all
  // have joined. The communicator exchanges tensors of this backend, which must outlive it. It uses
  // shared memory or Open MPI on the host, NCCL on GPUs. Throws Error if these are missing or a
  // process does not arrive.
  virtual std::unique_ptr<Communicator> join(const ProcessPlace& place);
};

// How attention runs on a GPU, both forward and backward. On Hopper, heads of 64, 96 and 128 run in
// the library's own kernels in any case: they are the fastest, and repeatable (docs/attention.md).
enum class GpuAttention : uint8_t {
  repeatable,  // cuDNN with bitwise repeatable results; without cuDNN: the library's own
  fast,        // cuDNN with a faster backward, which sums the queries' gradient in varying order
  plain,       // the library's own kernels
};

struct BackendOptions {
  int threads = 0;  // of the CPU backend; 0: OpenMP's default
  int device = -1;  // number of the GPU; -1: that of the thread's current CUDA context, else 0
  // A GPU's kernels: "sm90" (H100, H200), "sm80" (since Ampere), "sm89" (since Ada). Empty: the
  // variable CODA_GPU_TARGET, else by the GPU. Other names are in docs/gpus.md.
  std::string target = {};
  GpuAttention attention = GpuAttention::repeatable;
  // For sizes that vary from step to step, on a GPU: a session does not wait for the compiler if
  // this process has compiled a kernel of the same program for other sizes, which gives the same
  // bits. After precompile() has compiled the fastest kernel, new sessions use that one.
  bool takes_compiled = false;
};

// "cpu": fast on x86-64 with AVX2 or AVX-512, slow on other CPUs. "gpu": an H100 or
// H200, or another NVIDIA GPU since Ampere (untested); see why_no_gpu. "best": "gpu" if there is a
// usable GPU, else "cpu". "reference": float64, unoptimised, for comparison. Throws Error for an
// unknown name, or if the machine lacks the required hardware.
std::unique_ptr<Backend> make_backend(std::string_view name, const BackendOptions& options = {});

}  // namespace CODA_API coda
