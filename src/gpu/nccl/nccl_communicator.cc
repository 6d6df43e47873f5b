// SPDX-License-Identifier: Apache-2.0
// Exchanges on the backend's stream, or on a second one of high priority for overlapping exchanges.
#include "gpu/nccl/nccl_communicator.h"

#include <climits>
#include <cstring>
#include <exception>
#include <optional>
#include <utility>

#include "coda/error.h"
#include "collective/exchange_log.h"
#include "collective/meeting.h"
#include "collective/rendezvous.h"
#include "gpu/launch/stream_event.h"
#include "gpu/nccl/nccl_api.h"

namespace coda::gpu::nccl {
namespace {

class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(std::shared_ptr<GpuState> state, const ProcessPlace& place)
      : state_(std::move(state)), rank_(place.rank), world_(place.world) {
    require(!place.address.empty(),
            "the processes of several machines meet at rank 0's: set MASTER_ADDR to its address "
            "(and MASTER_PORT, 29500 if not set), the same for all");
    Socket listening;
    std::string token;
    if (rank_ == 0) listening = listen_for_others(place);
    UniqueId id{};
    const Context::Scope scope(*state_->context);
    if (rank_ == 0) {
      check(api().get_unique_id(&id), "making an id");
      token.assign(id.bytes, sizeof id.bytes);
    }
    rendezvous_.emplace(place, std::move(listening),
                        state_->context->info().name + " with NCCL " + version_text(api().version),
                        token);
    require(rendezvous_->token().size() == sizeof id.bytes, "rank 0 sent no id of NCCL");
    std::memcpy(id.bytes, rendezvous_->token().data(), sizeof id.bytes);
    try {
      check(api().init_rank(&handle_, world_, id, rank_), "connecting the GPUs");
      // When CTAs of a kernel end, NCCL's are scheduled first: they are few, and all other
      // processes wait for them.
      constexpr int kHighest = INT_MIN;  // the driver takes the nearest that there is
      check_driver(driver().stream_create_with_priority(&own_stream_, cuda::kNonBlocking, kHighest),
                   "making a stream");
    } catch (const Error& error) {
      fail(error.what());
      throw;
    }
  }
  ~NcclCommunicator() override {
    const bool may_wait = std::uncaught_exceptions() == 0;  // for the other processes
    rendezvous_.reset();
    if (!may_wait) return;
    try {
      const Context::Scope scope(*state_->context);
      api().destroy(handle_);
      driver().stream_destroy(own_stream_);
    } catch (const Error&) {  // the context and NCCL's state are already gone
    }
  }

  int rank() const override { return rank_; }
  int world() const override { return world_; }

  void reduce_scatter(const TensorView& blocks) override {
    require_blocks(blocks);
    invariant(blocks.dtype == DType::f32, "reduce_scatter is for fp32");
    rendezvous_->announce(exchange_text("reduce_scatter", blocks));
    const auto block = static_cast<size_t>(blocks.size() / world_);
    auto* const values = static_cast<float*>(blocks.data);
    const Context::Scope scope(*state_->context);
    check(api().reduce_scatter(values, values + block * static_cast<size_t>(rank_), block, kFloat32,
                               kSum, handle_, state_->stream),
          "adding up gradients");
  }

  void all_gather(const TensorView& blocks) override {
    require_blocks(blocks);
    rendezvous_->announce(exchange_text("all_gather", blocks));
    const auto block = static_cast<size_t>(blocks.size() / world_ * size_of(blocks.dtype));
    auto* const bytes = static_cast<std::byte*>(blocks.data);
    const Context::Scope scope(*state_->context);
    check(api().all_gather(bytes + block * static_cast<size_t>(rank_), bytes, block, kBytes,
                           handle_, state_->stream),
          "gathering weights");
  }

  void maximum(const TensorView& values) override {
    invariant(values.dtype == DType::f32 && values.is_contiguous(), "maximum is for dense fp32");
    rendezvous_->announce(exchange_text("maximum", values));
    const Context::Scope scope(*state_->context);
    check(api().all_reduce(values.data, values.data, static_cast<size_t>(values.size()), kFloat32,
                           kMaximum, handle_, state_->stream),
          "finding largest values");
  }

  // Forks off the stream and joins it by events, so that a CUDA graph captures both.
  std::function<void()> overlap(const std::function<void()>& exchanges) override {
    StreamEvent(state_->context, state_->stream).hold(own_stream_);
    const DriverHandle stream = std::exchange(state_->stream, own_stream_);
    try {
      exchanges();
    } catch (...) {
      state_->stream = stream;
      throw;
    }
    state_->stream = stream;
    const auto behind = std::make_shared<StreamEvent>(state_->context, own_stream_);
    return [state = state_, behind] { behind->hold(state->stream); };
  }

  void require_same(const Settings& settings) override { rendezvous_->require_same(settings); }
  void announce(const std::string& what) override { rendezvous_->announce(what); }

  void send_to_first(std::span<const std::byte> bytes, const std::stop_token& stop) override {
    rendezvous_->send_to_first(bytes, stop);
  }
  void receive_from(int rank, std::span<std::byte> bytes) override {
    rendezvous_->receive_from(rank, bytes);
  }

  void fail(const std::string& message) override { rendezvous_->fail(message); }
  void set_remedy(const std::string& remedy) override { rendezvous_->set_remedy(remedy); }

 private:
  void require_blocks(const TensorView& blocks) const {
    invariant(blocks.is_contiguous() && blocks.rows % world_ == 0,
              "blocks of processes are dense and of whole rows");
  }

  std::shared_ptr<GpuState> state_;
  int rank_;
  int world_;
  void* handle_ = nullptr;
  DriverHandle own_stream_ = nullptr;  // for overlapping exchanges
  std::optional<Rendezvous> rendezvous_;
};

}  // namespace

std::unique_ptr<Communicator> join(const std::shared_ptr<GpuState>& state,
                                   const ProcessPlace& place) {
  return std::make_unique<NcclCommunicator>(state, place);
}

}  // namespace coda::gpu::nccl
