// SPDX-License-Identifier: Apache-2.0
#include "collective/socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <thread>

#include "coda/error.h"

namespace coda {
namespace {

constexpr uint32_t kLongest = 64 << 10;

void set(int descriptor, int level, int option, int value) {
  ::setsockopt(descriptor, level, option, &value, sizeof value);
}

constexpr int kSendCheck = 100;  // milliseconds from one look at a stop token to the next

// Messages leave at once, and a machine that is gone is noticed: it is asked after 10 seconds of
// silence, and given up 15 seconds later.
void prepare(int descriptor) {
  set(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
  set(descriptor, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(descriptor, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, 25000);
}

bool is_loopback(const std::string& address) {
  return address == "localhost" || address.starts_with("127.");
}

bool send_all(int descriptor, const char* data, size_t count) {
  while (count > 0) {
    const ssize_t sent = ::send(descriptor, data, count, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    data += sent;
    count -= static_cast<size_t>(sent);
  }
  return true;
}

bool receive_all(int descriptor, char* data, size_t count) {
  while (count > 0) {
    const ssize_t got = ::recv(descriptor, data, count, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    data += got;
    count -= static_cast<size_t>(got);
  }
  return true;
}

int milliseconds_until(Deadline deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::max<int64_t>(0, left.count()));
}

}  // namespace

void Socket::close() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

Socket listen_at(const std::string& address, int port) {
  const bool is_local = is_loopback(address);
  // A socket of IPv6 hears IPv4 too.
  Socket socket(is_local ? -1 : ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const bool is_v6 = socket.is_open();
  if (!is_v6) socket = Socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  set(socket.descriptor(), SOL_SOCKET, SO_REUSEADDR, 1);
  sockaddr_in6 six{};
  sockaddr_in four{};
  six.sin6_family = AF_INET6;
  six.sin6_addr = in6addr_any;
  four.sin_family = AF_INET;
  four.sin_addr.s_addr = htonl(is_local ? INADDR_LOOPBACK : INADDR_ANY);
  six.sin6_port = four.sin_port = htons(static_cast<uint16_t>(port));
  if (is_v6) set(socket.descriptor(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  const auto* const where =
      is_v6 ? reinterpret_cast<const sockaddr*>(&six) : reinterpret_cast<const sockaddr*>(&four);
  const socklen_t size = is_v6 ? sizeof six : sizeof four;
  if (::bind(socket.descriptor(), where, size) != 0 || ::listen(socket.descriptor(), 512) != 0) {
    throw Error("rank 0 cannot listen at port " + std::to_string(port) + ": " +
                std::strerror(errno) + " (set MASTER_PORT to a port that no program has)");
  }
  return socket;
}

int port_of(const Socket& listening) {
  sockaddr_in6 address{};
  socklen_t size = sizeof address;
  ::getsockname(listening.descriptor(), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin6_port);  // where sockaddr_in has its port, too
}

std::optional<Socket> accept_until(const Socket& listening, Deadline deadline) {
  while (true) {
    pollfd waiting{listening.descriptor(), POLLIN, 0};
    const int ready = ::poll(&waiting, 1, milliseconds_until(deadline));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return std::nullopt;
    const int descriptor = ::accept4(listening.descriptor(), nullptr, nullptr, SOCK_CLOEXEC);
    if (descriptor < 0) continue;
    prepare(descriptor);
    return Socket(descriptor);
  }
}

Socket connect_until(const std::string& address, int port, Deadline deadline) {
  std::string reason = "there was no time";
  while (std::chrono::steady_clock::now() < deadline) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int failed = ::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
    if (failed != 0) reason = ::gai_strerror(failed);
    for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
      Socket socket(::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol));
      if (!socket.is_open()) continue;
      prepare(socket.descriptor());
      if (::connect(socket.descriptor(), at->ai_addr, at->ai_addrlen) == 0) {
        ::freeaddrinfo(found);
        return socket;
      }
      reason = std::strerror(errno);
    }
    if (found != nullptr) ::freeaddrinfo(found);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  throw Error("cannot reach rank 0 at " + address + ", port " + std::to_string(port) + ": " +
              reason + " (is it started? MASTER_ADDR and MASTER_PORT must be the same for all)");
}

bool send_message(const Socket& socket, const Message& message) {
  const auto length = static_cast<uint32_t>(std::min<size_t>(message.text.size(), kLongest));
  std::string bytes(1, message.kind);
  for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(length >> shift & 0xff);
  bytes.append(message.text, 0, length);
  return send_all(socket.descriptor(), bytes.data(), bytes.size());
}

std::optional<Message> receive_message(const Socket& socket) {
  char head[5];
  if (!receive_all(socket.descriptor(), head, sizeof head)) return std::nullopt;
  uint32_t length = 0;
  for (int i = 4; i > 0; --i) length = length << 8 | static_cast<unsigned char>(head[i]);
  if (length > kLongest) return std::nullopt;
  Message message{head[0], std::string(length, 0)};
  if (!receive_all(socket.descriptor(), message.text.data(), length)) return std::nullopt;
  return message;
}

// The system gives up a receiver that takes nothing for the time of TCP_USER_TIMEOUT.
void allow_slow_receiver(const Socket& socket) {
  set(socket.descriptor(), IPPROTO_TCP, TCP_USER_TIMEOUT, 0);
}

bool send_bytes(const Socket& socket, std::span<const std::byte> bytes,
                const std::stop_token& stop) {
  while (!bytes.empty()) {
    if (stop.stop_requested()) return false;
    pollfd waiting{socket.descriptor(), POLLOUT, 0};
    if (::poll(&waiting, 1, kSendCheck) == 0) continue;
    const ssize_t sent =
        ::send(socket.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (sent <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(sent));
  }
  return true;
}

bool receive_bytes(const Socket& socket, std::span<std::byte> bytes) {
  return receive_all(socket.descriptor(), reinterpret_cast<char*>(bytes.data()), bytes.size());
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "an unnamed machine";
}

}  // namespace coda
