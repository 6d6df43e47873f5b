// SPDX-License-Identifier: Apache-2.0
// An event on a stream: the host can wait for it (the waiting thread sleeps) and read its time.
#pragma once

#include <cstdint>
#include <memory>

#include "gpu/launch/context.h"

namespace coda::gpu {

class StreamEvent {
 public:
  enum Kind : uint8_t { untimed, timed };
  // Recorded after all work enqueued so far. Throws Error.
  StreamEvent(std::shared_ptr<const Context> context, DriverHandle stream, Kind kind = untimed);
  ~StreamEvent();
  StreamEvent(const StreamEvent&) = delete;
  StreamEvent& operator=(const StreamEvent&) = delete;

  // Makes later work on `stream` wait for the event.
  void hold(DriverHandle stream) const;
  // Throws Error if earlier work has failed.
  void wait() const;
  // The time between two timed events; waits for both. Throws Error as wait().
  double seconds_since(const StreamEvent& earlier) const;

 private:
  std::shared_ptr<const Context> context_;
  DriverHandle event_ = nullptr;
};

}  // namespace coda::gpu
