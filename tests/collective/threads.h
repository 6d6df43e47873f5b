// SPDX-License-Identifier: Apache-2.0
// Processes that train together as threads of one: what a test needs to see all of them. Tensors
// lie in the host's memory.
#pragma once

#include <algorithm>
#include <barrier>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "coda/communicator.h"
#include "coda/error.h"

namespace coda {

class ThreadGroup {
 public:
  explicit ThreadGroup(int world)
      : barrier_(world),
        views_(static_cast<size_t>(world)),
        settings_(static_cast<size_t>(world)),
        channels_(static_cast<size_t>(world)) {}

  // Nobody sends any more: who receives is told.
  void close() {
    for (Channel& channel : channels_) {
      const std::lock_guard lock(channel.mutex);
      channel.is_closed = true;
      channel.changed.notify_all();
    }
  }

 private:
  friend class ThreadCommunicator;
  // Bytes on their way to rank 0.
  struct Channel {
    std::mutex mutex;
    std::condition_variable_any changed;
    std::span<const std::byte> waiting;
    bool is_closed = false;
  };
  std::barrier<> barrier_;
  std::vector<TensorView> views_;  // of what is exchanged, by rank
  std::vector<Settings> settings_;
  std::deque<Channel> channels_;  // by rank
};

class ThreadCommunicator : public Communicator {
 public:
  // `late`: what goes on beside the backend is made when it is waited for, else at once; any moment
  // between is as good.
  ThreadCommunicator(ThreadGroup& group, int rank, bool late = false)
      : group_(group), rank_(rank), late_(late) {}
  int rank() const override { return rank_; }
  int world() const override { return static_cast<int>(group_.views_.size()); }

  void reduce_scatter(const TensorView& blocks) override {
    exchange(blocks, [&] {
      const int64_t block = blocks.size() / world();
      float* const own = floats(blocks) + block * rank_;
      for (int64_t i = 0; i < block; ++i) {
        float sum = 0;
        for (const TensorView& view : group_.views_) sum += floats(view)[block * rank_ + i];
        own[i] = sum;
      }
    });
  }

  void all_gather(const TensorView& blocks) override {
    const auto bytes = static_cast<size_t>(blocks.size() * size_of(blocks.dtype) / world());
    exchange(blocks, [&] {
      for (int r = 0; r < world(); ++r) {
        const size_t offset = bytes * static_cast<size_t>(r);
        const void* const theirs = group_.views_[static_cast<size_t>(r)].data;
        if (r != rank_)
          std::memcpy(static_cast<char*>(blocks.data) + offset,
                      static_cast<const char*>(theirs) + offset, bytes);
      }
    });
  }

  void maximum(const TensorView& values) override {
    std::vector<float> largest(static_cast<size_t>(values.size()));
    exchange(values, [&] {
      for (size_t i = 0; i < largest.size(); ++i) {
        largest[i] = floats(values)[i];
        for (const TensorView& view : group_.views_)
          largest[i] = std::max(largest[i], floats(view)[i]);
      }
    });
    std::copy(largest.begin(), largest.end(), floats(values));
  }

  // All throw where one differs, as nobody can be ended.
  void require_same(const Settings& settings) override {
    group_.settings_[static_cast<size_t>(rank_)] = settings;
    group_.barrier_.arrive_and_wait();
    std::string different;
    const Settings& own = group_.settings_[0];
    for (const Settings& theirs : group_.settings_)
      for (size_t i = 0; i < own.size(); ++i)
        if (different.empty() && theirs[i].value != own[i].value) different = own[i].name;
    group_.barrier_.arrive_and_wait();
    require(different.empty(), "the processes differ in: " + different);
  }
  void announce(const std::string& /*what*/) override {}

  std::function<void()> overlap(const std::function<void()>& exchanges) override {
    ++besides;
    if (!late_) return Communicator::overlap(exchanges);
    return exchanges;
  }

  // Nothing is kept on the way: who sends waits for who receives.
  void send_to_first(std::span<const std::byte> bytes, const std::stop_token& stop) override {
    ThreadGroup::Channel& channel = group_.channels_[static_cast<size_t>(rank_)];
    std::unique_lock lock(channel.mutex);
    channel.waiting = bytes;
    channel.changed.notify_all();
    const bool is_used = channel.changed.wait(lock, stop, [&] { return channel.waiting.empty(); });
    channel.waiting = {};
    require(is_used, "nobody has taken what was sent");
  }

  void receive_from(int rank, std::span<std::byte> bytes) override {
    ThreadGroup::Channel& channel = group_.channels_[static_cast<size_t>(rank)];
    std::unique_lock lock(channel.mutex);
    while (!bytes.empty()) {
      channel.changed.wait(lock, [&] { return channel.is_closed || !channel.waiting.empty(); });
      require(!channel.waiting.empty(), "a process has ended");
      const size_t count = std::min(bytes.size(), channel.waiting.size());
      std::copy_n(channel.waiting.begin(), count, bytes.begin());
      channel.waiting = channel.waiting.subspan(count);
      bytes = bytes.subspan(count);
      channel.changed.notify_all();
    }
  }

  void fail(const std::string& /*message*/) override {}
  void set_remedy(const std::string& /*remedy*/) override {}

  int besides = 0;  // calls of overlap()

 private:
  static float* floats(const TensorView& view) { return static_cast<float*>(view.data); }

  void exchange(const TensorView& own, const std::function<void()>& work) {
    group_.views_[static_cast<size_t>(rank_)] = own;
    group_.barrier_.arrive_and_wait();
    work();
    group_.barrier_.arrive_and_wait();
  }

  ThreadGroup& group_;
  int rank_;
  bool late_;
};

// work(communicator) in as many threads as there are ranks.
inline void in_threads(int world, const std::function<void(ThreadCommunicator&)>& work,
                       bool late = false) {
  ThreadGroup group(world);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      ThreadCommunicator communicator(group, rank, late);
      work(communicator);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace coda
