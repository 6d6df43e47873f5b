// SPDX-License-Identifier: Apache-2.0
#include "collective/mpi_communicator.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "coda/error.h"
#include "collective/mpi_api.h"
#include "collective/rendezvous.h"

namespace coda {
namespace {

constexpr int64_t kPiece = 1 << 18;  // floats that travel at once: of each block in turn

void check(int result, const char* what) {
  require(result == 0, std::string("MPI: ") + what + " failed (" + std::to_string(result) + ")");
}

// A row of a matrix as MPI counts: as an int, and a matrix may have more bytes.
class RowType {
 public:
  explicit RowType(int64_t bytes) {
    check(mpi().type_contiguous(static_cast<int>(bytes), mpi().byte, &type_), "a type");
    check(mpi().type_commit(&type_), "a type");
  }
  ~RowType() { mpi().type_free(&type_); }
  RowType(const RowType&) = delete;
  RowType& operator=(const RowType&) = delete;
  void* get() const { return type_; }

 private:
  void* type_ = nullptr;
};

class MpiCommunicator : public Communicator {
 public:
  explicit MpiCommunicator(const ProcessPlace& given) {
    int is_initialized = 0;
    check(mpi().initialized(&is_initialized), "MPI_Initialized");
    constexpr int kOneThread = 1;  // of several calls MPI
    int provided = 0;
    if (is_initialized == 0) {
      check(mpi().init_thread(nullptr, nullptr, kOneThread, &provided), "MPI_Init_thread");
      is_ours_ = true;
    }
    check(mpi().comm_rank(mpi().comm_world, &rank_), "MPI_Comm_rank");
    check(mpi().comm_size(mpi().comm_world, &world_), "MPI_Comm_size");
    require(rank_ == given.rank && world_ == given.world,
            "this process is rank " + std::to_string(given.rank) + " of " +
                std::to_string(given.world) + ", but to MPI rank " + std::to_string(rank_) +
                " of " + std::to_string(world_) +
                ": on CPUs start the processes with coda train --processes, or with mpirun "
                "(torchrun starts no MPI)");
    meet(given);
  }
  ~MpiCommunicator() override {
    const bool may_wait = std::uncaught_exceptions() == 0;  // for the others
    rendezvous_.reset();
    if (is_ours_ && may_wait) mpi().finalize();
  }

  int rank() const override { return rank_; }
  int world() const override { return world_; }

  void reduce_scatter(const TensorView& blocks) override {
    require_blocks(blocks);
    invariant(blocks.dtype == DType::f32, "reduce_scatter is for fp32");
    const int64_t block = blocks.size() / world_;
    auto* const values = static_cast<float*>(blocks.data);
    received_.resize(static_cast<size_t>(world_) * kPiece);
    for (int64_t begin = 0; begin < block; begin += kPiece) {
      const int64_t count = std::min(kPiece, block - begin);
      for (int step = 1; step < world_; ++step) {
        const int to = (rank_ + step) % world_;
        const int from = (rank_ - step + world_) % world_;
        const auto bytes = static_cast<int>(count * static_cast<int64_t>(sizeof(float)));
        check(mpi().sendrecv(values + to * block + begin, bytes, mpi().byte, to, 0, place_of(from),
                             bytes, mpi().byte, from, 0, mpi().comm_world, nullptr),
              "MPI_Sendrecv");
      }
      float* const own = values + rank_ * block + begin;
      std::memcpy(place_of(rank_), own, static_cast<size_t>(count) * sizeof(float));
      std::memcpy(own, place_of(0), static_cast<size_t>(count) * sizeof(float));
      for (int from = 1; from < world_; ++from)
        for (int64_t i = 0; i < count; ++i) own[i] += place_of(from)[i];
    }
  }

  void all_gather(const TensorView& blocks) override {
    require_blocks(blocks);
    const RowType row(blocks.cols * size_of(blocks.dtype));
    check(mpi().allgather(mpi().in_place, 0, nullptr, blocks.data,
                          static_cast<int>(blocks.rows / world_), row.get(), mpi().comm_world),
          "MPI_Allgather");
  }

  void maximum(const TensorView& values) override {
    invariant(values.dtype == DType::f32 && values.is_contiguous(), "maximum is for dense fp32");
    const auto count = static_cast<size_t>(values.size());
    std::vector<float> all(count * static_cast<size_t>(world_));
    auto* const own = static_cast<float*>(values.data);
    std::copy_n(own, count, all.begin() + static_cast<std::ptrdiff_t>(count) * rank_);
    all_gather(dense_view(all.data(), DType::f32, world_, values.size()));
    for (size_t i = 0; i < all.size(); ++i)
      own[i % count] = i < count ? all[i] : std::max(own[i % count], all[i]);
  }

  void send_to_first(std::span<const std::byte> bytes, const std::stop_token& stop) override {
    rendezvous_->send_to_first(bytes, stop);
  }
  void receive_from(int rank, std::span<std::byte> bytes) override {
    rendezvous_->receive_from(rank, bytes);
  }

  void fail(const std::string& message) override { rendezvous_->fail(message); }
  void set_remedy(const std::string& remedy) override { rendezvous_->set_remedy(remedy); }

 private:
  float* place_of(int from) { return received_.data() + from * kPiece; }

  void require_blocks(const TensorView& blocks) const {
    invariant(blocks.is_contiguous() && blocks.rows % world_ == 0,
              "blocks of processes are dense and of whole rows");
  }

  // Where rank 0 listens, MPI tells the others.
  void meet(const ProcessPlace& given) {
    ProcessPlace place = given;
    if (place.address.empty()) place.address = host_name();
    char where[300] = {};
    Socket listening;
    if (rank_ == 0) {
      listening = listen_at(place.address, 0);
      std::snprintf(where, sizeof where, "%d %s", port_of(listening), place.address.c_str());
    }
    check(mpi().bcast(where, sizeof where, mpi().byte, 0, mpi().comm_world), "MPI_Bcast");
    place.port = std::atoi(where);
    place.address = std::strchr(where, ' ') + 1;
    rendezvous_.emplace(place, std::move(listening), "CPUs", "");
  }

  int rank_ = 0;
  int world_ = 1;
  bool is_ours_ = false;
  std::optional<Rendezvous> rendezvous_;
  std::vector<float> received_;  // a piece of each rank
};

}  // namespace

std::unique_ptr<Communicator> join_over_mpi(const ProcessPlace& place) {
  return std::make_unique<MpiCommunicator>(place);
}

}  // namespace coda
