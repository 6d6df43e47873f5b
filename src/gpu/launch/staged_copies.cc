// SPDX-License-Identifier: Apache-2.0
// Threads take pieces in turn; each owns a pinned buffer and a stream.
#include "gpu/launch/staged_copies.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "gpu/jit/parallel_for.h"
#include "gpu/launch/device_memory.h"

namespace coda::gpu {
namespace {

constexpr size_t kPlaces = 8;                // number of threads, enough to saturate host memory
constexpr size_t kPlace = size_t{16} << 20;  // bytes
constexpr size_t kWorthThreads = size_t{64} << 20;

size_t bytes_of(const TensorView& view) {
  return static_cast<size_t>(view.rows * view.cols * size_of(view.dtype));
}

}  // namespace

bool StagedCopies::are_for(const TensorView& host, const TensorView& device) {
  return host.is_contiguous() && device.is_contiguous() && host.rows == device.rows &&
         host.cols == device.cols && host.dtype == device.dtype;
}

bool StagedCopies::are_worth(const TensorView& host, const TensorView& device) {
  return are_for(host, device) && bytes_of(host) >= kWorthThreads;
}

StagedCopies::StagedCopies(std::shared_ptr<const Context> context) : context_(std::move(context)) {
  const Context::Scope scope(*context_);
  for (size_t i = 0; i < kPlaces; ++i)
    places_.push_back(
        {pinned_memory(context_, kPlace, "copies to and from the GPU"), Stream::make()});
}

void StagedCopies::in_pieces(std::span<const Copy> copies, const StreamEvent& before,
                             const std::function<void(const Place&, const Piece&)>& move) const {
  std::vector<Piece> pieces;
  for (const auto& [host, device] : copies) {
    const size_t bytes = bytes_of(host);
    for (size_t at = 0; at < bytes; at += kPlace) {
      pieces.push_back({static_cast<std::byte*>(host.data) + at, address_of(device.data) + at,
                        std::min(kPlace, bytes - at)});
    }
  }
  std::atomic<size_t> next = 0;
  parallel_for(kPlaces, kPlaces, [&](size_t number) {
    const Context::Scope scope(*context_);
    const Place& place = places_[number];
    before.hold(place.stream.handle());
    for (size_t i = next++; i < pieces.size(); i = next++) move(place, pieces[i]);
  });
}

void StagedCopies::to_device(std::span<const Copy> copies, const StreamEvent& before) {
  in_pieces(copies, before, [](const Place& place, const Piece& piece) {
    std::memcpy(place.memory.get(), piece.host, piece.bytes);
    check_driver(driver().memcpy_htod_async(piece.device, place.memory.get(), piece.bytes,
                                            place.stream.handle()),
                 "copying a tensor to the GPU");
    place.stream.synchronize();
  });
}

void StagedCopies::to_host(std::span<const Copy> copies, const StreamEvent& before) {
  in_pieces(copies, before, [](const Place& place, const Piece& piece) {
    check_driver(driver().memcpy_dtoh_async(place.memory.get(), piece.device, piece.bytes,
                                            place.stream.handle()),
                 "copying a tensor from the GPU");
    place.stream.synchronize();
    std::memcpy(piece.host, place.memory.get(), piece.bytes);
  });
}

}  // namespace coda::gpu
