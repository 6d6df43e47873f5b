// SPDX-License-Identifier: Apache-2.0
// The default implementations of Backend, for backends that use host memory and run synchronously.
#include "coda/backend.h"

#include <chrono>
#include <cstring>

#include "base/aligned_buffer.h"
#include "base/free_memory.h"
#include "coda/communicator.h"
#include "coda/error.h"
#include "collective/memory_communicator.h"
#include "collective/mpi_communicator.h"
#include "runtime/copy_matrix.h"

namespace coda {

Rates Backend::rates() const { return cpu_rates(); }

void Backend::copy_in(const TensorView& host, const TensorView& own) { copy_matrix(host, own); }

void Backend::copy_out(const TensorView& own, const TensorView& host) { copy_matrix(own, host); }

int64_t Backend::workspace_bytes(const Plan& /*plan*/, const DimValues& /*sizes*/) { return 0; }

int64_t Backend::free_bytes() { return free_memory(); }

void Backend::use_stream(const Stream& /*stream*/) {
  throw Error("the backend '" + std::string(name()) +
              "' runs on the host and has no streams: call use_stream where is_on_host() is false");
}

void Backend::announce(std::span<const AnnouncedProgram> /*programs*/,
                       std::span<const AnnouncedCall> /*calls*/) {}

BackendMemory Backend::allocate(size_t bytes, std::string_view /*what*/) {
  const auto buffer = std::make_shared<AlignedBuffer>(bytes);
  return {buffer, buffer->data()};
}

void Backend::fill(const TensorView& view, std::byte value) {
  for (int64_t row = 0; row < view.rows; ++row) {
    std::memset(static_cast<std::byte*>(view.data) + row * view.row_stride * size_of(view.dtype),
                static_cast<int>(value), static_cast<size_t>(view.cols * size_of(view.dtype)));
  }
}

BackendMemory Backend::allocate_on_host(size_t bytes, std::string_view /*what*/) {
  const auto buffer = std::make_shared<AlignedBuffer>(bytes);
  return {buffer, buffer->data()};
}

void Backend::start_copy_in(const TensorView& host, const TensorView& own) { copy_in(host, own); }

void Backend::start_copy_out(const TensorView& own, const TensorView& host) { copy_out(own, host); }

std::function<void()> Backend::copy_out_concurrently(const std::vector<CopyOut>& copies) {
  for (const CopyOut& copy : copies) copy_out(copy.own, copy.host);
  return [] {};
}

std::function<void()> Backend::overlap(const std::function<void()>& copies) {
  copies();
  return [] {};
}

std::function<void()> Backend::mark() {
  return [] {};
}

std::function<double()> Backend::stamp() {
  const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
  return [now] { return now.count(); };
}

std::function<void()> Backend::record(std::function<void()> work) { return work; }

std::unique_ptr<Communicator> Backend::join(const ProcessPlace& place) {
  return place.shared_memory >= 0 ? join_over_memory(place) : join_over_mpi(place);
}

}  // namespace coda
