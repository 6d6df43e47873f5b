// SPDX-License-Identifier: Apache-2.0
// A TCP connection with an owner, and messages on it: a letter and a text.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>

namespace coda {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }

  bool is_open() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }
  void close();

 private:
  int descriptor_ = -1;
};

using Deadline = std::chrono::steady_clock::time_point;

// A socket that listens at a port of this machine, 0: any free one; for this machine alone where
// `address` is its loopback address. Throws Error where the port is taken.
Socket listen_at(const std::string& address, int port);
int port_of(const Socket& listening);
// The next connection; none before the deadline.
std::optional<Socket> accept_until(const Socket& listening, Deadline deadline);
// Tries until the deadline, as who listens may start later. Throws Error.
Socket connect_until(const std::string& address, int port, Deadline deadline);

struct Message {
  char kind = 0;
  std::string text;  // at most 64 KiB
};
// False where the other side is gone.
bool send_message(const Socket& socket, const Message& message);
// Nothing where the other side is gone, or sends what is no message.
std::optional<Message> receive_message(const Socket& socket);

// Of many bytes: who sends waits for a receiver that is slow, however long, until `stop` is asked
// for. False then, and where the other side is gone.
void allow_slow_receiver(const Socket& socket);
bool send_bytes(const Socket& socket, std::span<const std::byte> bytes,
                const std::stop_token& stop);
bool receive_bytes(const Socket& socket, std::span<std::byte> bytes);

// "node7": of this machine.
std::string host_name();

}  // namespace coda
