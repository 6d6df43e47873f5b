// SPDX-License-Identifier: Apache-2.0
// Large values are compared by digests, computed in parallel.
#include "train/compared_settings.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <span>
#include <string_view>

#include "base/sha256.h"
#include "io/mapped_file.h"
#include "io/model_config.h"

namespace coda {
namespace {

// The shortest text that parses to the same number.
std::string text_of(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

std::string text_of(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ",") + word;
  return text;
}

template <typename T>
std::string number(T value) {
  return std::to_string(static_cast<int64_t>(value));
}

std::string text_of(const LearningSchedule& s) {
  return text_of(s.peak) + " to " + text_of(s.floor) + ", " + number(s.warmup_steps) + " of " +
         number(s.total_steps) + " steps to the peak";
}

// The text includes a digest of the formulas, because an application may define its own optimizer.
std::string text_of(const Optimizer& o) {
  return text(o) + ", decay " + text_of(o.decay) + ", formulas " + sha256(o.formulas).substr(0, 8);
}

// A fast hash of many bytes, against accidental differences, not malicious ones.
class Digest {
 public:
  void add(std::span<const std::byte> bytes) {
    for (size_t i = 0; i < bytes.size(); i += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, bytes.data() + i, std::min(sizeof word, bytes.size() - i));
      mix(word);
    }
  }
  void add(const std::vector<float>& values) { add(std::as_bytes(std::span(values))); }
  // Missing values count as zeros.
  void add_or_zeros(const std::vector<float>& values, size_t count) {
    if (!values.empty()) return add(values);
    for (size_t i = 0; i < count; i += sizeof(uint64_t) / sizeof(float)) mix(0);
  }
  void add(std::string_view text) {
    mix(text.size());
    for (const char c : text) mix(static_cast<unsigned char>(c));
  }
  void mix(uint64_t word) {
    hash_ = (hash_ ^ word) * 0x9e3779b97f4a7c15ULL;
    hash_ ^= hash_ >> 29;
  }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0;
};

// of(i, digest) adds part i to the digest. Parts are hashed in parallel and combined in order.
template <typename Of>
std::string digest_of(size_t count, const Of& of) {
  std::vector<uint64_t> parts(count);
#pragma omp parallel for schedule(dynamic)
  for (size_t i = 0; i < count; ++i) {
    Digest digest;
    of(i, digest);
    parts[i] = digest.value();
  }
  return sha256(std::as_bytes(std::span(parts))).substr(0, 16);
}

}  // namespace

Settings compared_settings(const TrainOptions& options, const Weights& weights,
                           const Rates& rates) {
  std::string sizes;
  for (const auto& [name, size] : options.sizes)
    sizes += (sizes.empty() ? "" : ", ") + name + " = " + std::to_string(size);
  const auto add_shape = [&](size_t i, Digest& digest) {
    const WeightTensor& w = weights[i];
    digest.add(w.name);
    for (const int64_t number : {w.rows, w.cols, int64_t{w.decays}, int64_t{w.bf16.empty()}})
      digest.mix(static_cast<uint64_t>(number));
  };
  return {{"sizes", sizes},
          {"accumulate", number(options.accumulate)},
          {"storage", std::string(name_of(options.storage))},
          {"eight_bits", number(options.eight_bits)},
          {"eight_bits_except", text_of(options.eight_bits_except)},
          {"schedule", text_of(options.schedule)},
          {"optimizer", text_of(options.optimizer)},
          {"clip", text_of(options.clip)},
          {"objective", number(options.objective)},
          {"recomputed_layers", number(options.recomputed_layers)},
          {"loss_rows", number(options.loss_rows)},
          {"exchange_bytes", number(options.exchange_bytes)},
          {"kind of GPU (FLOP/s, bytes/s)",
           text_of(rates.flops_per_second) + ", " + text_of(rates.bytes_per_second)},
          {"parameters (digest)", digest_of(weights.size(), add_shape)}};
}

Settings compared_settings(const ModelTrainSettings& settings, const Tokens& tokens) {
  constexpr size_t kPart = 1 << 24;  // bytes
  const auto add_part = [&](size_t i, Digest& digest) {
    const size_t begin = i * kPart;
    digest.add(tokens.bytes.subspan(begin, std::min(kPart, tokens.bytes.size() - begin)));
  };
  const std::string data = digest_of((tokens.bytes.size() + kPart - 1) / kPart, add_part);
  io::require_whole(tokens.bytes);
  return {{"model", io::model_config_text(settings.model, settings.storage)},
          {"batch", number(settings.batch)},
          {"accumulate", number(settings.accumulate)},
          {"sequence", number(settings.sequence)},
          {"seed", std::to_string(settings.seed)},
          {"expert_capacity", text_of(settings.expert_capacity)},
          {"tokens to train on", number(tokens.size())},
          {"data (digest)", data}};
}

Settings compared_settings(const ExchangePlan& plan) {
  std::string text;
  for (const ExchangePlan::Shard& s : plan.shards) {
    for (const size_t place :
         {static_cast<size_t>(s.elements), s.complete, s.start, s.gather, s.read})
      text += std::to_string(place) + (s.has_copy ? "+" : " ");
  }
  for (const size_t parameter : plan.order) text += std::to_string(parameter) + " ";
  return {{"plan of exchanges (digest)", sha256(text).substr(0, 16)}};
}

Settings compared_state(const Trainer& trainer) {
  const Weights& weights = trainer.weights;
  const std::vector<float>& scales = trainer.eight_bit_scales;
  return {
      {"steps done", number(trainer.step_count)},
      {"weights (digest)",
       digest_of(weights.size(), [&](size_t i, Digest& digest) { digest.add(weights[i].values); })},
      {"optimizer's states (digest)",
       digest_of(trainer.states.size(),
                 [&](size_t i, Digest& digest) {
                   static const std::vector<float> none;
                   const ParameterState& its = trainer.states[i];
                   for (const OptimizerState& state : trainer.optimizer().states) {
                     const auto found = its.find(state.name);
                     digest.add_or_zeros(found == its.end() ? none : found->second,
                                         weights[i].values.size());
                   }
                 })},
      {"scales of 8 bits (digest)",
       digest_of(1, [&](size_t, Digest& digest) { digest.add(scales); })}};
}

}  // namespace coda
