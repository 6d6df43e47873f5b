// SPDX-License-Identifier: Apache-2.0
// Uses events that let the waiting thread sleep, so that waiting does not occupy a core.
#include "gpu/launch/stream_event.h"

#include <utility>

#include "coda/error.h"

namespace coda::gpu {

StreamEvent::StreamEvent(std::shared_ptr<const Context> context, DriverHandle stream, Kind kind)
    : context_(std::move(context)) {
  const Context::Scope scope(*context_);
  check_driver(driver().event_create(
                   &event_, kind == timed ? cuda::kSleepingWaitTimed : cuda::kSleepingWait),
               "making an event");
  check_driver(driver().event_record(event_, stream), "marking a stream");
}

StreamEvent::~StreamEvent() {
  try {
    const Context::Scope scope(*context_);
    driver().event_destroy(event_);
  } catch (const Error&) {  // the context and the event are already gone
  }
}

void StreamEvent::hold(DriverHandle stream) const {
  const Context::Scope scope(*context_);
  check_driver(driver().stream_wait_event(stream, event_, 0), "letting a stream wait");
}

void StreamEvent::wait() const {
  const Context::Scope scope(*context_);
  check_driver(driver().event_synchronize(event_), "waiting for the GPU");
}

double StreamEvent::seconds_since(const StreamEvent& earlier) const {
  const Context::Scope scope(*context_);
  earlier.wait();
  wait();
  float milliseconds = 0;
  check_driver(driver().event_elapsed_time(&milliseconds, earlier.event_, event_),
               "timing the GPU");
  return 1e-3 * static_cast<double>(milliseconds);
}

}  // namespace coda::gpu
