// SPDX-License-Identifier: Apache-2.0
// Fast large copies between the GPU and pageable host memory, which copy engines cannot access. The
// data pass in pieces through pinned buffers; each buffer has a thread that fills or empties it
// while the engine copies the other buffers. The driver does the same with a single thread, at
// about 7 GB/s.
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
  // Whether both matrices are dense and have the same shape and type.
  static bool are_for(const TensorView& host, const TensorView& device);
  // Whether such a copy is also large enough to be worth the threads.
  static bool are_worth(const TensorView& host, const TensorView& device);

  // Throws Error if pinned memory is not available.
  explicit StagedCopies(std::shared_ptr<const Context> context);

  // Copies after the event; complete when the function returns. Throws Error.
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

  // `move` takes a piece through a buffer and returns when it has arrived.
  void in_pieces(std::span<const Copy> copies, const StreamEvent& before,
                 const std::function<void(const Place&, const Piece&)>& move) const;

  std::shared_ptr<const Context> context_;
  std::vector<Place> places_;
};

}  // namespace coda::gpu
