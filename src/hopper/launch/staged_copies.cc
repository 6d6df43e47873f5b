// SPDX-License-Identifier: Apache-2.0
#include "hopper/launch/staged_copies.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "hopper/jit/parallel_for.h"
#include "hopper/launch/device_memory.h"

namespace coda::hopper {
namespace {

constexpr size_t kPlace = size_t{64} << 20;  // bytes
constexpr size_t kShare = size_t{8} << 20;   // of a thread: eight reach the host's bandwidth

size_t bytes_of(const TensorView& view) {
  return static_cast<size_t>(view.rows * view.cols * size_of(view.dtype));
}

void copy_by_threads(std::byte* to, const std::byte* from, size_t bytes) {
  parallel_for((bytes + kShare - 1) / kShare, 0, [&](size_t i) {
    std::memcpy(to + i * kShare, from + i * kShare, std::min(kShare, bytes - i * kShare));
  });
}

}  // namespace

bool StagedCopies::are_for(const TensorView& host, const TensorView& device) {
  return host.is_contiguous() && device.is_contiguous() && host.rows == device.rows &&
         host.cols == device.cols && host.dtype == device.dtype && bytes_of(host) >= kPlace;
}

StagedCopies::StagedCopies(std::shared_ptr<const Context> context) : context_(std::move(context)) {
  for (Place& place : places_)
    place.memory = pinned_memory(context_, kPlace, "copies to and from the GPU");
}

void StagedCopies::to_device(const TensorView& host, const TensorView& device,
                             DriverHandle stream) {
  const size_t bytes = bytes_of(host);
  for (size_t at = 0, i = 0; at < bytes; at += kPlace, ++i) {
    Place& place = places_[i % 2];
    const size_t part = std::min(kPlace, bytes - at);
    if (place.moved) place.moved->wait();
    copy_by_threads(place.memory.get(), static_cast<const std::byte*>(host.data) + at, part);
    check_driver(
        driver().memcpy_htod_async(address_of(device.data) + at, place.memory.get(), part, stream),
        "copying a tensor to the GPU");
    place.moved.emplace(context_, stream);
  }
  for (Place& place : places_)
    if (place.moved) place.moved->wait();
}

void StagedCopies::to_host(const TensorView& device, const TensorView& host, DriverHandle stream) {
  const size_t bytes = bytes_of(host);
  const auto start = [&](size_t at, Place& place) {
    check_driver(driver().memcpy_dtoh_async(place.memory.get(), address_of(device.data) + at,
                                            std::min(kPlace, bytes - at), stream),
                 "copying a tensor from the GPU");
    place.moved.emplace(context_, stream);
  };
  start(0, places_[0]);
  for (size_t at = 0, i = 0; at < bytes; at += kPlace, ++i) {
    const Place& place = places_[i % 2];
    if (at + kPlace < bytes) start(at + kPlace, places_[(i + 1) % 2]);
    place.moved->wait();
    copy_by_threads(static_cast<std::byte*>(host.data) + at, place.memory.get(),
                    std::min(kPlace, bytes - at));
  }
}

}  // namespace coda::hopper
