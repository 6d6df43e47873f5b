// SPDX-License-Identifier: Apache-2.0
// Plans run on memory of the caller's, by address. What runs leaves Python's lock, and holds its
// backend's: kernels of a backend share memory that they work in.
#include "coda/session.h"

#include <map>
#include <mutex>
#include <optional>

#include "bindings.h"
#include "coda/backend.h"
#include "coda/device.h"
#include "coda/error.h"
#include "coda/optimizer.h"

namespace coda::python {
namespace {

struct PythonBackend {
  std::unique_ptr<Backend> backend;
  std::mutex mutex;
  std::optional<uintptr_t> stream = std::nullopt;  // the handle of the one in use

  // Making a Stream calls the driver several times, so one is made only if the handle changes.
  void use_stream(uintptr_t handle) {
    if (backend->is_on_host() || stream == handle) return;
    backend->use_stream(Stream::of(reinterpret_cast<void*>(handle)));  // NOLINT: Python's
    stream = handle;
  }
};

std::shared_ptr<PythonBackend> open_backend(const std::string& name, int device,
                                            const std::string& target) {
  auto opened = std::make_shared<PythonBackend>();
  const nb::gil_scoped_release released;
  opened->backend = make_backend(
      name, {.threads = 0, .device = device, .target = target, .takes_compiled = true});
  return opened;
}

// A plan of one phase, prepared for sizes; its tensors are bound in one order at every run.
class PlanRunner {
 public:
  PlanRunner(const Plan& plan, const std::shared_ptr<PythonBackend>& backend,
             const PythonSizes& sizes, const std::vector<std::string>& order, bool is_lent)
      : backend_(backend), bound_(order.size()) {
    require(plan.backward.empty(),
            "a plan with a backward is run as two: take the parts of Plan.split()");
    const DimValues values = sizes_of(sizes);
    for (const std::string& name : order) {
      const TensorDecl& decl = plan.tensor(name).decl;
      const PhysicalShape shape = physical_shape(decl, values);
      views_.push_back(dense_view(nullptr, decl.dtype, shape.rows, shape.cols));
    }
    const nb::gil_scoped_release released;
    const std::lock_guard lock(backend_->mutex);
    session_ = std::make_unique<Session>(plan, *backend_->backend, values,
                                         SessionOptions{.own_memory_is_lent = is_lent});
    lent_bytes_ = is_lent ? session_->lent_bytes() : 0;
    for (const std::string& name : order) slots_.push_back(session_->slot(name));
  }
  PlanRunner(const PlanRunner&) = delete;
  PlanRunner& operator=(const PlanRunner&) = delete;
  ~PlanRunner() {  // its kernels are the backend's
    const std::lock_guard lock(backend_->mutex);
    session_.reset();
  }

  // The addresses of tensors in the order given; `stream` is a CUDA stream's handle; `lent` is the
  // address of lent_bytes() for this run. `strides`: the elements between the rows of each tensor;
  // empty: all tensors are dense.
  void run(const std::vector<uintptr_t>& addresses, uintptr_t stream, uintptr_t lent,
           const std::vector<int64_t>& strides) {
    if (addresses.size() != slots_.size()) {
      throw Error("a plan of " + std::to_string(slots_.size()) + " tensors was given " +
                  std::to_string(addresses.size()));
    }
    require(strides.empty() || strides.size() == slots_.size(),
            "give a stride of rows for each tensor, or none");
    const nb::gil_scoped_release released;
    const std::lock_guard lock(backend_->mutex);
    backend_->use_stream(stream);
    for (size_t i = 0; i < slots_.size(); ++i) {
      TensorView& view = views_[i];
      const int64_t stride = strides.empty() ? view.cols : strides[i];
      if (addresses[i] == bound_[i] && stride == view.row_stride) continue;  // as for most weights
      view.data = reinterpret_cast<void*>(addresses[i]);  // NOLINT: an address of Python's
      view.row_stride = stride;
      session_->bind(slots_[i], view);
      bound_[i] = addresses[i];
    }
    if (lent_bytes_ != 0)
      session_->lend(reinterpret_cast<std::byte*>(lent));  // NOLINT: an address of Python's
    session_->forward();
  }

  int64_t own_bytes() const {
    return lent_bytes_ != 0 ? 0 : session_->arena_bytes() + session_->scratch_bytes();
  }
  int64_t lent_bytes() const { return lent_bytes_; }

 private:
  std::shared_ptr<PythonBackend> backend_;
  std::vector<int> slots_;  // of the tensors in the order in which they are bound
  std::vector<TensorView> views_;
  std::vector<uintptr_t> bound_;  // 0: nothing
  int64_t lent_bytes_ = 0;
  std::unique_ptr<Session> session_;
};

// Addresses of fp32 arrays on the host (weights, each state of the optimizer, gradients), the
// number of elements of each array, and whether weight decay applies.
using UpdatedArrays = std::tuple<uintptr_t, std::vector<uintptr_t>, uintptr_t, size_t, bool>;

template <typename T>
std::span<T> array(uintptr_t address, size_t size) {
  return {reinterpret_cast<T*>(address), address == 0 ? 0 : size};  // NOLINT: Python's
}

class Updater {
 public:
  Updater(const std::string& optimizer, const std::map<std::string, double>& settings,
          const std::shared_ptr<PythonBackend>& backend)
      : backend_(backend), update_(make_optimizer(optimizer, settings), *backend->backend) {}

  void run(const std::vector<UpdatedArrays>& arrays, double rate, int64_t step) {
    std::vector<UpdatedTensor> tensors;
    for (const auto& [weights, states, gradients, size, decays] : arrays) {
      UpdatedTensor& tensor = tensors.emplace_back();
      tensor.weights = array<float>(weights, size);
      for (const uintptr_t state : states) tensor.states.push_back(array<float>(state, size));
      tensor.gradients = array<const float>(gradients, size);
      tensor.decays = decays;
    }
    const nb::gil_scoped_release released;
    const std::scoped_lock lock(backend_->mutex);
    update_.run(tensors, rate, step);
  }

 private:
  std::shared_ptr<PythonBackend> backend_;
  TensorUpdate update_;
};

}  // namespace

void bind_session(nb::module_& module) {
  nb::class_<PythonBackend>(module, "Backend", "What runs plans: 'cpu', 'gpu' or 'reference'.")
      .def_prop_ro("name", [](const PythonBackend& b) { return std::string(b.backend->name()); })
      .def_prop_ro("is_on_host", [](const PythonBackend& b) { return b.backend->is_on_host(); })
      .def_prop_ro(
          "why_no_eight_bits",
          [](const PythonBackend& b) { return b.backend->why_no_eight_bits(); },
          "Empty: kernels take 8-bit floats.");
  module.def("open_backend", &open_backend, nb::arg("name"), nb::arg("device") = -1,
             nb::arg("target") = "", "Throws Error where the machine lacks what is asked for.");
  module.def("why_no_gpu", &why_no_gpu, "Empty: there is a GPU that kernels can run on.");
  nb::class_<PlanRunner>(module, "PlanRunner", "A plan prepared for sizes and a backend.")
      .def(nb::init<const Plan&, const std::shared_ptr<PythonBackend>&, const PythonSizes&,
                    const std::vector<std::string>&, bool>(),
           nb::arg("plan"), nb::arg("backend"), nb::arg("sizes"), nb::arg("order"),
           nb::arg("is_lent") = false)
      .def("run", &PlanRunner::run, nb::arg("addresses"), nb::arg("stream") = 0,
           nb::arg("lent") = 0, nb::arg("strides") = std::vector<int64_t>())
      .def_prop_ro("own_bytes", &PlanRunner::own_bytes, "Memory that it holds between runs.")
      .def_prop_ro("lent_bytes", &PlanRunner::lent_bytes, "Memory that each run is to be lent.");
  nb::class_<Updater>(module, "Updater", "An optimizer's step over arrays in the host's memory.")
      .def(nb::init<const std::string&, const std::map<std::string, double>&,
                    const std::shared_ptr<PythonBackend>&>(),
           nb::arg("optimizer"), nb::arg("settings"), nb::arg("backend"))
      .def("run", &Updater::run, nb::arg("tensors"), nb::arg("rate"), nb::arg("step"));
}

}  // namespace coda::python
