// SPDX-License-Identifier: Apache-2.0
// A point in a stream that the host can wait for, and whose time it can ask for; the waiting thread
// sleeps.
#pragma once

#include <cstdint>
#include <memory>

#include "gpu/launch/context.h"

namespace coda::gpu {

class StreamEvent {
 public:
  enum Kind : uint8_t { untimed, timed };
  // Behind all that the stream has been given. Throws Error.
  StreamEvent(std::shared_ptr<const Context> context, DriverHandle stream, Kind kind = untimed);
  ~StreamEvent();
  StreamEvent(const StreamEvent&) = delete;
  StreamEvent& operator=(const StreamEvent&) = delete;

  // What the stream is given from now on runs behind it.
  void hold(DriverHandle stream) const;
  // Throws Error if something before it has failed.
  void wait() const;
  // Waits for both, which are timed. Throws Error as wait() does.
  double seconds_since(const StreamEvent& earlier) const;

 private:
  std::shared_ptr<const Context> context_;
  DriverHandle event_ = nullptr;
};

}  // namespace coda::gpu
