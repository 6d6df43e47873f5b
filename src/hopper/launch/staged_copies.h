// SPDX-License-Identifier: Apache-2.0
// Large copies between the GPU and memory of the host that no copy engine reaches: through two
// pinned places, of which several threads fill or empty one while the engine moves the other. The
// driver does the same with one thread, at some 7 GB/s.
#pragma once

#include <memory>
#include <optional>

#include "coda/tensor.h"
#include "hopper/launch/context.h"
#include "hopper/launch/stream_event.h"

namespace coda::hopper {

class StagedCopies {
 public:
  // Whether both are dense and alike, and large enough.
  static bool are_for(const TensorView& host, const TensorView& device);

  // Throws Error where there is no pinned memory.
  explicit StagedCopies(std::shared_ptr<const Context> context);

  // In the order of the stream, and done when they return. Throws Error.
  void to_device(const TensorView& host, const TensorView& device, DriverHandle stream);
  void to_host(const TensorView& device, const TensorView& host, DriverHandle stream);

 private:
  struct Place {
    std::shared_ptr<std::byte> memory;
    std::optional<StreamEvent> moved;  // what the engine was told last
  };

  std::shared_ptr<const Context> context_;
  Place places_[2];
};

}  // namespace coda::hopper
