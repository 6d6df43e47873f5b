// SPDX-License-Identifier: Apache-2.0
// Large copies between the GPU and memory of the host that no copy engine reaches: in pieces
// through pinned places, each of a thread that fills or empties it while the engine moves those of
// the others. The driver does the same with one thread, at some 7 GB/s.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "coda/device.h"
#include "coda/tensor.h"
#include "gpu/launch/context.h"
#include "gpu/launch/stream_event.h"

namespace coda::gpu {

class StagedCopies {
 public:
  struct Copy {
    TensorView host;
    TensorView device;
  };
  // Whether both are dense and alike.
  static bool are_for(const TensorView& host, const TensorView& device);
  // And whether one such copy is worth the threads.
  static bool are_worth(const TensorView& host, const TensorView& device);

  // Throws Error where there is no pinned memory.
  explicit StagedCopies(std::shared_ptr<const Context> context);

  // Behind that event, and done when they return. Throws Error.
  void to_device(std::span<const Copy> copies, const StreamEvent& before);
  void to_host(std::span<const Copy> copies, const StreamEvent& before);

 private:
  struct Place {  // of a thread
    std::shared_ptr<std::byte> memory;
    Stream stream;
  };
  struct Piece {
    std::byte* host = nullptr;
    DeviceAddress device = 0;
    size_t bytes = 0;
  };

  // `move` takes a piece through a place, and returns when it is there.
  void in_pieces(std::span<const Copy> copies, const StreamEvent& before,
                 const std::function<void(const Place&, const Piece&)>& move) const;

  std::shared_ptr<const Context> context_;
  std::vector<Place> places_;
};

}  // namespace coda::gpu
