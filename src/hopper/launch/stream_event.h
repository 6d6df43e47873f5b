// SPDX-License-Identifier: Apache-2.0
// A point in a stream that the host can wait for; the waiting thread sleeps.
#pragma once

#include <memory>

#include "hopper/launch/context.h"

namespace coda::hopper {

class StreamEvent {
 public:
  // Behind all that the stream has been given. Throws Error.
  StreamEvent(std::shared_ptr<const Context> context, DriverHandle stream);
  ~StreamEvent();
  StreamEvent(const StreamEvent&) = delete;
  StreamEvent& operator=(const StreamEvent&) = delete;

  // Throws Error if something before it has failed.
  void wait() const;

 private:
  std::shared_ptr<const Context> context_;
  DriverHandle event_ = nullptr;
};

}  // namespace coda::hopper
