// SPDX-License-Identifier: Apache-2.0
// Attention's kernels for tensor cores (device/attention/, device/sm90/attention/), compiled for
// the CPU: their errors are at most those of the same computation in 16 bits step by step, for all
// options. NVRTC compiles them for all head sizes without spills.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <set>
#include <string>

#include "device/attention/tiles.cuh"
#include "device/sm90/attention/tiles.cuh"
#include "gpu/clean_kernels.h"
#include "gpu/operation_run.h"
#include "gpu/targets/targets.h"
#include "operations/attention.h"

namespace coda::gpu::of_calls {
namespace {

// Attention as a framework computes it step by step in 16 bits: each result is rounded, softmax is
// computed in fp32 or better. The float64 results between the roundings are exact.
class StepByStep {
 public:
  StepByStep(const AttentionCase& c, const Numbers& numbers)
      : c_(c), in_(numbers), q_(numbers.at("q")), k_(numbers.at("k")), v_(numbers.at("v")) {}

  Numbers forward() {
    Numbers out{{"y", zeros(c_.heads * c_.value_dim)}};
    each_row([&](int64_t row, int64_t head, const std::vector<double>& p, int64_t first) {
      for (int64_t d = 0; d < c_.value_dim; ++d) {
        double sum = 0;
        for (size_t j = 0; j < p.size(); ++j) sum += p[j] * v(first + j, head, d);
        out["y"][row * c_.heads * c_.value_dim + head * c_.value_dim + d] = rounded(sum);
      }
    });
    return out;
  }

  // Keys and values of a group are copies, whose gradients are rounded, then summed.
  Numbers backward() {
    Numbers out{{"dq", zeros(c_.heads * c_.head_dim)}};
    std::vector<double> dk = zeros(c_.heads * c_.head_dim), dv = zeros(c_.heads * c_.value_dim);
    each_row([&](int64_t row, int64_t head, const std::vector<double>& p, int64_t first) {
      const double* dy = &in_.at("dy")[(row * c_.heads + head) * c_.value_dim];
      std::vector<double> dp(p.size());
      double dot = 0;
      for (size_t j = 0; j < p.size(); ++j) {
        for (int64_t d = 0; d < c_.value_dim; ++d) dp[j] += dy[d] * v(first + j, head, d);
        dp[j] = rounded(dp[j]);
        dot += p[j] * dp[j];
      }
      double* dq = &out["dq"][(row * c_.heads + head) * c_.head_dim];
      for (size_t j = 0; j < p.size(); ++j) {
        const int64_t key = first + static_cast<int64_t>(j);
        double ds = rounded(p[j] * (dp[j] - dot));
        if (c_.soft_cap != 0) {
          const double t = tangent(row, head, key);
          ds = rounded(rounded(ds * (1 - t * t)));
        }
        ds = rounded(ds * kScale);
        for (int64_t d = 0; d < c_.head_dim; ++d) {
          dq[d] += ds * k(key, head, d);
          dk[(key * c_.heads + head) * c_.head_dim + d] += ds * q(row, head, d);
        }
        for (int64_t d = 0; d < c_.value_dim; ++d)
          dv[(key * c_.heads + head) * c_.value_dim + d] += p[j] * dy[d];
      }
    });
    for (double& x : out["dq"]) x = rounded(x);
    out["dk"] = of_group(dk, c_.head_dim);
    out["dv"] = of_group(dv, c_.value_dim);
    return out;
  }

 private:
  static constexpr double kScale = 0.3;  // AttentionCase::call's

  int64_t rows() const { return c_.sequences * c_.tokens; }
  std::vector<double> zeros(int64_t cols) const { return std::vector<double>(rows() * cols); }
  double rounded(double x) const {
    char bytes[8];
    write_element(c_.type, bytes, 0, x);
    return read_element(c_.type, bytes, 0);
  }
  double q(int64_t row, int64_t head, int64_t d) const {
    return q_[(row * c_.heads + head) * c_.head_dim + d];
  }
  int64_t kv_head(int64_t head) const { return head / (c_.heads / c_.kv_heads); }
  double k(int64_t row, int64_t head, int64_t d) const {
    return k_[(row * c_.kv_heads + kv_head(head)) * c_.head_dim + d];
  }
  double v(int64_t row, int64_t head, int64_t d) const {
    return v_[(row * c_.kv_heads + kv_head(head)) * c_.value_dim + d];
  }
  double scaled(int64_t row, int64_t head, int64_t key) const {
    double dot = 0;
    for (int64_t d = 0; d < c_.head_dim; ++d) dot += q(row, head, d) * k(key, head, d);
    return rounded(rounded(dot) * kScale);
  }
  double tangent(int64_t row, int64_t head, int64_t key) const {
    return rounded(std::tanh(rounded(scaled(row, head, key) / c_.soft_cap)));
  }
  double score(int64_t row, int64_t head, int64_t key) const {
    return c_.soft_cap == 0 ? scaled(row, head, key)
                            : rounded(c_.soft_cap * tangent(row, head, key));
  }
  // use(row, head, rounded probabilities, their first key)
  template <class Use>
  void each_row(Use use) const {
    for (int64_t row = 0; row < rows(); ++row) {
      const int64_t start = row / c_.tokens * c_.tokens;
      int64_t last = c_.causal ? row + 1 : start + c_.tokens;
      const bool has_window = c_.window != 0 && !c_.padded;  // else the spans have it
      int64_t first = has_window ? std::max(start, row + 1 - c_.window) : start;
      if (!c_.documents.empty()) {
        const double* span = &in_.at("documents")[(c_.padded ? 4 : 2) * row];
        first = std::max(first, start + static_cast<int64_t>(span[0]));
        last = std::min(last, start + static_cast<int64_t>(span[1]));
      }
      if (first >= last) continue;
      for (int64_t head = 0; head < c_.heads; ++head) {
        std::vector<double> p;
        for (int64_t key = first; key < last; ++key) p.push_back(score(row, head, key));
        const double sink = c_.sinks ? in_.at("sinks")[head] : -HUGE_VAL;
        const double top = std::max(sink, *std::max_element(p.begin(), p.end()));
        double total = std::exp(sink - top);
        for (double& x : p) total += x = std::exp(x - top);
        for (double& x : p) x = rounded(x / total);
        use(row, head, p, first);
      }
    }
  }
  std::vector<double> of_group(const std::vector<double>& of_heads, int64_t dim) const {
    std::vector<double> sums = zeros(c_.kv_heads * dim);
    for (size_t i = 0; i < of_heads.size(); ++i) {
      const int64_t row = static_cast<int64_t>(i) / (c_.heads * dim);
      const int64_t head = static_cast<int64_t>(i) / dim % c_.heads;
      sums[(row * c_.kv_heads + kv_head(head)) * dim + static_cast<int64_t>(i) % dim] +=
          rounded(of_heads[i]);
    }
    for (double& x : sums) x = rounded(x);
    return sums;
  }

  const AttentionCase& c_;
  const Numbers& in_;
  const std::vector<double>&q_, &k_, &v_;
};

std::string text(const AttentionCase& c) {
  std::ostringstream out;
  out << c.sequences << " x " << c.tokens << ", heads " << c.heads << "/" << c.kv_heads << " of "
      << c.head_dim << " and " << c.value_dim << ", causal " << c.causal << ", window " << c.window
      << ", soft-cap " << c.soft_cap << ", " << name_of(c.type);
  if (!c.documents.empty()) out << ", documents " << ::testing::PrintToString(c.documents);
  if (c.padded) out << " of padding";
  if (c.sinks) out << ", sinks";
  return out.str();
}

// The errors of the kernels and of StepByStep, for each result. Root mean squares over the seeds
// are compared. Results of fewer than 1024 elements may have a quarter more.
class Errors {
 public:
  void add(const Numbers& results, const Numbers& exact, const Numbers& stepwise) {
    for (const auto& [name, steps] : stepwise) {
      const auto is_tiny = [](double x) { return std::abs(x) < 1e-6; };
      if (std::ranges::all_of(exact.at(name), is_tiny)) {  // gradients of a single score
        for (const double x : results.at(name)) ASSERT_LT(std::abs(x), 1e-2) << name;
        continue;
      }
      Sums& sums = of_[name];
      sums.size = steps.size();
      sums.own += std::pow(relative_error(results.at(name), exact.at(name)), 2);
      sums.stepwise += std::pow(relative_error(steps, exact.at(name)), 2);
    }
  }
  void expect_none_is_larger() const {
    for (const auto& [name, sums] : of_) {
      EXPECT_LE(std::sqrt(sums.own), (sums.size < 1024 ? 1.25 : 1.0) * std::sqrt(sums.stepwise))
          << name;
    }
  }

 private:
  struct Sums {
    double own = 0, stepwise = 0;  // of squares
    size_t size = 0;
  };
  std::map<std::string, Sums> of_;
};

// The targets whose kernels differ.
std::vector<const Target*> different_targets(const AttentionCase& c, bool backward) {
  const auto source = [&](const Target& target) {
    return launches_of(c.call(backward), c.tensors(backward), 0, {.target = &target}).at(0).source;
  };
  if (source(sm80()) == source(sm90())) return {&sm90()};
  return {&sm80(), &sm90()};
}

void expect_as_right_as_steps(const AttentionCase& c, HostRows rows) {
  SCOPED_TRACE(text(c) + ", rows in multiples of " + std::to_string(rows.multiple));
  const int seeds = c.sequences * c.tokens < 64 ? 8 : 1;  // the errors of a few rows vary
  std::map<const Target*, Errors> of_target;
  for (int i = 0; i < seeds; ++i) {
    Numbers numbers = c.numbers(static_cast<uint64_t>(c.tokens + 100 * i));
    Numbers results, exact;
    for (const Target* target : different_targets(c, false)) {
      // Few CTAs, so that each computes several tiles.
      results = results_of_kernels(c.call(false), c.tensors(false), numbers, rows,
                                   {.target = target, .multiprocessors = 3});
      if (exact.empty()) exact = results_of_definition(c.call(false), c.tensors(false), numbers);
      of_target[target].add(results, exact, StepByStep(c, numbers).forward());
      EXPECT_LT(error_of(results.at("lse"), exact.at("lse")), 2e-6) << "lse, " << target->name;
    }

    for (const char* name : {"y", "lse"}) numbers[name] = results.at(name);
    Numbers own = numbers;
    for (const char* name : {"y", "lse"}) numbers[name] = exact.at(name);
    const Numbers exact_gradients = results_of_definition(c.call(true), c.tensors(true), numbers);
    const Numbers stepwise = StepByStep(c, numbers).backward();
    for (const Target* target : different_targets(c, true)) {
      const Numbers gradients = results_of_kernels(c.call(true), c.tensors(true), own, rows,
                                                   {.target = target, .multiprocessors = 3});
      of_target[target].add(gradients, exact_gradients, stepwise);
      // So few numbers have no typical error, so they are compared with those of the same y.
      if (c.sinks) {
        const Numbers of_own = results_of_definition(c.call(true), c.tensors(true), own);
        EXPECT_LT(error_of(gradients.at("dsinks"), of_own.at("dsinks")), 1e-5) << target->name;
      }
    }
  }
  for (const auto& [target, errors] : of_target) {
    SCOPED_TRACE(target->name);
    errors.expect_none_is_larger();
  }
}

constexpr HostRows kAligned{.gap = 8, .multiple = 8};
constexpr HostRows kAnyPitch{.gap = 3, .multiple = 1};

const AttentionCase kMasksAndTails[] = {
    // More than one block of queries and of keys, with a last block that is not full.
    {2, 150, 2, 1, 64, 64, true, 0, 0, DType::bf16},
    {1, 135, 4, 2, 64, 64, false, 0, 0, DType::f16},
    // Windows of one token, smaller than a block, of a few blocks.
    {1, 140, 1, 1, 64, 64, true, 1, 0, DType::bf16},
    {1, 200, 1, 1, 64, 64, true, 17, 0, DType::bf16},
    {1, 300, 1, 1, 64, 64, true, 130, 0, DType::bf16},
    // Sequences that are shorter than a tile of the tensor cores.
    {3, 1, 2, 2, 64, 64, true, 0, 0, DType::bf16},
    {5, 7, 3, 1, 64, 64, false, 0, 0, DType::f16},
};

const AttentionCase kHeadSizes[] = {
    // Not whole steps of a product, not whole pieces, wide ones, in parts.
    {1, 70, 2, 2, 40, 24, true, 0, 0, DType::bf16},
    {1, 66, 2, 1, 72, 33, true, 20, 0, DType::f16},
    {1, 130, 2, 1, 128, 128, true, 0, 0, DType::bf16},
    {1, 140, 1, 1, 80, 96, true, 0, 0, DType::f16},
    {1, 140, 2, 1, 96, 96, true, 0, 0, DType::bf16},
    {1, 70, 1, 1, 192, 128, true, 0, 0, DType::bf16},
    {1, 90, 1, 1, 256, 256, true, 0, 30, DType::bf16},
};

// Flat and steep.
const AttentionCase kSoftCaps[] = {
    {1, 150, 2, 1, 64, 64, true, 0, 50, DType::bf16},
    {1, 150, 2, 1, 64, 64, false, 0, 0.7, DType::f16},
    {1, 150, 2, 1, 64, 64, true, 40, 5, DType::bf16},
    // Fewer keys than a tile.
    {2, 4, 2, 1, 64, 64, false, 0, 50, DType::bf16},
    {2, 4, 6, 2, 64, 64, false, 0, 50, DType::bf16},
};

const AttentionCase kDocuments[] = {
    // Bounds within tiles, at their ends and one off; documents of one token and of none.
    {1, 210, 2, 1, 64, 64, true, 0, 0, DType::bf16, {1, 63, 0, 64, 65, 1, 1, 15}},
    {1, 200, 2, 1, 64, 64, false, 0, 0, DType::f16, {100, 0, 28, 64, 8}},
    // Documents that are shorter and longer than their window, with a soft-cap.
    {2, 150, 4, 2, 64, 64, true, 33, 5, DType::bf16, {20, 50, 80}},
    // Tokens behind the documents see nothing: part of a tile, and whole tiles.
    {1, 270, 2, 2, 64, 64, true, 0, 0, DType::bf16, {40, 5}},
    {1, 200, 2, 1, 64, 64, false, 0, 20, DType::f16, {0, 128}},
    {1, 150, 1, 1, 128, 128, true, 0, 0, DType::bf16, {50, 100}},
    {1, 80, 1, 1, 256, 256, true, 40, 30, DType::bf16, {64, 16}},
};

const AttentionCase kSinks[] = {
    {2, 90, 2, 1, 64, 64, true, 0, 0, DType::bf16, {}, true},
    {1, 210, 2, 1, 64, 64, true, 33, 0, DType::f16, {}, true},
    {1, 135, 2, 2, 128, 128, false, 0, 20, DType::bf16, {}, true},
    {1, 70, 2, 1, 40, 24, true, 0, 0, DType::bf16, {}, true},
    // Tokens behind the documents see nothing but the sink.
    {2, 150, 2, 1, 64, 64, true, 20, 5, DType::bf16, {40, 65}, true},
    {5, 7, 3, 1, 96, 96, true, 0, 0, DType::f16, {}, true},
};

const AttentionCase kPadding[] = {
    // Padding behind, of part of a tile and of whole tiles; in front; tokens hidden in between.
    {2, 210, 2, 1, 64, 64, true, 0, 0, DType::bf16, {100, 0, 150}, false, true},
    {1, 270, 2, 2, 64, 64, true, 0, 0, DType::bf16, {0, 150, 120}, false, true},
    {1, 200, 2, 1, 64, 64, false, 0, 0, DType::f16, {30, 100, 40}, false, true},
    {1, 150, 1, 1, 128, 128, true, 33, 5, DType::bf16, {1, 1, 1, 60, 70}, false, true},
    {2, 70, 1, 1, 80, 80, true, 20, 0, DType::f16, {50, 20}, true, true},
    // Windows to both sides.
    {2, 210, 2, 1, 64, 64, false, 40, 0, DType::bf16, {150, 60}, false, true},
    {1, 150, 1, 1, 64, 64, false, 1, 0, DType::f16, {150}, false, true},
    // No key is seen.
    {1, 140, 2, 1, 64, 64, false, 0, 0, DType::bf16, {0, 140}, false, true},
};

// Errors at most those of the steps in 16 bits.
TEST(AttentionOnHost, MasksAndTails) {
  for (const AttentionCase& c : kMasksAndTails) expect_as_right_as_steps(c, kAligned);
}

TEST(AttentionOnHost, HeadSizes) {
  for (const AttentionCase& c : kHeadSizes) expect_as_right_as_steps(c, kAligned);
}

TEST(AttentionOnHost, SoftCaps) {
  for (const AttentionCase& c : kSoftCaps) expect_as_right_as_steps(c, kAligned);
}

TEST(AttentionOnHost, Documents) {
  for (const AttentionCase& c : kDocuments) expect_as_right_as_steps(c, kAligned);
}

TEST(AttentionOnHost, Padding) {
  for (const AttentionCase& c : kPadding) expect_as_right_as_steps(c, kAligned);
}

TEST(AttentionOnHost, RandomPadding) {
  std::mt19937 random(9);
  const auto upto = [&](int64_t most) { return static_cast<int64_t>(random() % most) + 1; };
  for (int i = 0; i < 4; ++i) {
    AttentionCase c = kPadding[i % 3];
    c.sequences = upto(2);
    c.tokens = 64 + upto(170);
    c.causal = random() % 3 != 0;
    c.window = random() % 2 == 0 ? upto(c.tokens) : 0;
    c.documents.clear();
    for (int64_t left = c.tokens; left > 0 && c.documents.size() < 7; left -= c.documents.back())
      c.documents.push_back(upto(left + 1) - 1);
    expect_as_right_as_steps(c, random() % 3 == 0 ? kAnyPitch : kAligned);
  }
}

TEST(AttentionOnHost, Sinks) {
  for (const AttentionCase& c : kSinks) expect_as_right_as_steps(c, kAligned);
}

TEST(AttentionOnHost, RowsOfAnyPitch) {
  expect_as_right_as_steps(kDocuments[2], kAnyPitch);
  expect_as_right_as_steps(kMasksAndTails[0], kAnyPitch);
  expect_as_right_as_steps(kHeadSizes[1], kAnyPitch);
}

TEST(AttentionOnHost, RandomShapesAndOptions) {
  std::mt19937 random(7);
  const auto upto = [&](int64_t most) { return static_cast<int64_t>(random() % most) + 1; };
  for (int i = 0; i < 8; ++i) {
    AttentionCase c = i % 2 == 0 ? kMasksAndTails[0] : kSoftCaps[0];
    c.sequences = upto(2);
    c.tokens = upto(170);
    c.kv_heads = upto(2);
    c.heads = c.kv_heads * upto(3);
    c.causal = random() % 4 != 0;
    c.window = c.causal && random() % 2 == 0 ? upto(c.tokens) : 0;
    c.sinks = i % 4 >= 2;
    expect_as_right_as_steps(c, random() % 3 == 0 ? kAnyPitch : kAligned);
  }
}

TEST(AttentionOnHost, RandomDocuments) {
  std::mt19937 random(8);
  const auto upto = [&](int64_t most) { return static_cast<int64_t>(random() % most) + 1; };
  for (int i = 0; i < 6; ++i) {
    AttentionCase c = i % 2 == 0 ? kMasksAndTails[0] : kSoftCaps[0];
    c.sequences = 1;
    c.tokens = 64 + upto(170);
    c.kv_heads = upto(2);
    c.heads = c.kv_heads * upto(2);
    c.causal = random() % 3 != 0;
    c.window = c.causal && random() % 2 == 0 ? upto(c.tokens) : 0;
    for (int64_t left = c.tokens; left > 0 && c.documents.size() < 6; left -= c.documents.back())
      c.documents.push_back(upto(left + 1) - 1);
    c.sinks = i % 4 == 2;
    expect_as_right_as_steps(c, random() % 3 == 0 ? kAnyPitch : kAligned);
  }
}

// The largest score of a row rises from block to block, once by less than what rescales the sums,
// once by more, and falls again.
TEST(AttentionOnHost, RowsWhoseScoresRise) {
  AttentionCase c{1, 256, 1, 1, 64, 64, false, 0, 0, DType::bf16};
  Numbers numbers;
  for (const CallTensor& t : c.tensors(false)) numbers[t.name] = random_values(t.rows * t.cols, 3);
  constexpr double kSize[] = {0.2, 1, 30, 2};
  for (int64_t key = 0; key < c.tokens; ++key)
    for (int64_t d = 0; d < c.head_dim; ++d) numbers["k"][key * c.head_dim + d] *= kSize[key / 64];
  const Numbers results = results_of_kernels(c.call(false), c.tensors(false), numbers, kAligned);
  const Numbers exact = results_of_definition(c.call(false), c.tensors(false), numbers);
  Errors errors;
  errors.add(results, exact, StepByStep(c, numbers).forward());
  errors.expect_none_is_larger();
  EXPECT_LT(relative_error(results.at("lse"), exact.at("lse")), 2e-6);
}

// The forward, and the backward of its exact results, against the definition in float64.
void expect_right_both_ways(const AttentionCase& c, Numbers numbers) {
  for (const bool backward : {false, true}) {
    const Numbers results =
        results_of_kernels(c.call(backward), c.tensors(backward), numbers, kAligned);
    const Numbers exact = results_of_definition(c.call(backward), c.tensors(backward), numbers);
    Errors errors;
    StepByStep steps(c, numbers);
    errors.add(results, exact, backward ? steps.backward() : steps.forward());
    errors.expect_none_is_larger();
    for (const char* name : {"y", "lse"})
      if (!backward) numbers[name] = exact.at(name);
  }
}

// Scores far below 0: a token behind the sequence's end, which is read as zeros, would have an
// infinite probability.
TEST(AttentionOnHost, KeysBehindTheEndHaveNoShare) {
  const AttentionCase c{1, 90, 1, 1, 64, 64, false, 0, 0, DType::bf16};
  Numbers numbers = c.numbers(5);
  for (double& x : numbers["q"]) x = x < 0 ? 4 : 3.5;
  for (double& x : numbers["k"]) x = x < 0 ? -4 : -3.5;
  expect_right_both_ways(c, std::move(numbers));
}

// A row's bits do not depend on the sequences around it.
TEST(AttentionOnHost, ASequenceByItselfGivesTheSameBits) {
  const AttentionCase two{2, 100, 2, 1, 64, 64, true, 0, 0, DType::bf16};
  AttentionCase one = two;
  one.sequences = 1;
  Numbers both, second;
  for (const CallTensor& t : two.tensors(false)) {
    both[t.name] = random_values(t.rows * t.cols, 5);
    second[t.name] = {both[t.name].begin() + t.rows / 2 * t.cols, both[t.name].end()};
  }
  const Numbers of_two = results_of_kernels(two.call(false), two.tensors(false), both, kAligned);
  const Numbers of_one = results_of_kernels(one.call(false), one.tensors(false), second, kAligned);
  for (const auto& [name, values] : of_one)
    EXPECT_TRUE(std::equal(values.rbegin(), values.rend(), of_two.at(name).rbegin())) << name;
}

// Hopper's CTAs compute one tile after another, and gradients in an order that depends on how many
// run together. How many there are changes no bit.
TEST(AttentionOnHost, AnyNumberOfCtasGivesTheSameBits) {
  const AttentionCase c{2, 300, 4, 2, 64, 64, true, 0, 0, DType::bf16};
  Numbers numbers = c.numbers(5);
  for (const bool backward : {false, true}) {
    std::vector<Numbers> results;
    for (const uint32_t ctas : {1U, 5U, 100U}) {
      results.push_back(results_of_kernels(c.call(backward), c.tensors(backward), numbers, kAligned,
                                           {.multiprocessors = ctas}));
      EXPECT_EQ(results.back(), results.front()) << ctas;
    }
    for (const auto& [name, values] : results.front()) numbers[name] = values;
  }
}

// Tokens between documents see nothing, and no token sees them.
TEST(AttentionOnHost, TokensBetweenDocuments) {
  for (const bool causal : {true, false}) {
    AttentionCase c{1, 300, 2, 1, 64, 64, causal, 0, 0, DType::bf16, {300}};
    Numbers numbers = c.numbers(5);
    std::vector<double>& spans = numbers["documents"];
    for (int64_t row = 0; row < c.tokens; ++row) {
      spans[2 * row] = row < 100 ? 0 : row < 150 ? 100 : 150;
      spans[2 * row + 1] = row < 150 ? 100 : 300;
    }
    expect_right_both_ways(c, std::move(numbers));
  }
}

// A document's bits do not depend on the documents around it, if it begins at a tile: gradients
// too.
TEST(AttentionOnHost, ADocumentByItselfGivesTheSameBits) {
  const AttentionCase packed{1, 300, 2, 1, 64, 64, true, 0, 0, DType::bf16, {128, 100, 72}};
  AttentionCase alone = packed;
  alone.tokens = 100;
  alone.documents.clear();
  Numbers all = packed.numbers(5), own;
  for (const auto& [name, values] : all) {
    const int64_t cols = static_cast<int64_t>(values.size()) / packed.tokens;
    own[name] = {values.begin() + 128 * cols, values.begin() + 228 * cols};
  }
  for (const bool backward : {false, true}) {
    const Numbers of_all =
        results_of_kernels(packed.call(backward), packed.tensors(backward), all, kAligned);
    const Numbers of_own =
        results_of_kernels(alone.call(backward), alone.tensors(backward), own, kAligned);
    for (const auto& [name, values] : of_own) {
      const auto cols = static_cast<int64_t>(values.size()) / alone.tokens;
      EXPECT_TRUE(std::equal(values.begin(), values.end(), of_all.at(name).begin() + 128 * cols))
          << name;
    }
    for (const char* name : {"y", "lse"}) {
      if (backward) break;
      all[name] = of_all.at(name);
      own[name] = of_own.at(name);
    }
  }
}

// NaN of a document's scores reaches no other document.
TEST(AttentionOnHost, NaNStaysInItsDocument) {
  const AttentionCase c{1, 260, 2, 1, 64, 64, true, 0, 0, DType::bf16, {70, 60, 100, 30}};
  Numbers numbers = c.numbers(5);
  numbers["k"][100 * 64] = std::nan("");
  const Numbers results = results_of_kernels(c.call(false), c.tensors(false), numbers, kAligned);
  for (int64_t row = 0; row < c.tokens; ++row)
    EXPECT_EQ(std::isnan(results.at("y")[row * 128]), row >= 100 && row < 130) << row;
}

// Spans that lie outside the sequence give wrong results, but nothing outside is read or written.
TEST(AttentionOnHost, WrongSpansDoNoHarm) {
  const AttentionCase c{1, 130, 1, 1, 64, 64, true, 0, 0, DType::bf16, {130}};
  for (const auto& [first, last] :
       {std::pair{-5.0, 1e9}, {1e9, -1.0}, {2147483647.0, 2147483647.0}}) {
    Numbers numbers = c.numbers(5);
    for (int row = 60; row < 130; ++row) {
      numbers["documents"][2 * row] = first;
      numbers["documents"][2 * row + 1] = last;
    }
    for (const bool backward : {false, true}) {
      const Numbers results =
          results_of_kernels(c.call(backward), c.tensors(backward), numbers, kAligned);
      for (const auto& [name, values] : results) numbers[name] = values;
    }
  }
}

// Scores of infinity and NaN reach the rows that see them, and no others.
TEST(AttentionOnHost, NaNStaysInTheRowsThatSeeIt) {
  const AttentionCase c{1, 100, 1, 1, 64, 64, true, 0, 0, DType::bf16};
  Numbers numbers;
  for (const CallTensor& t : c.tensors(false)) numbers[t.name] = random_values(t.rows * t.cols, 5);
  numbers["k"][80 * 64] = std::nan("");
  const Numbers results = results_of_kernels(c.call(false), c.tensors(false), numbers, kAligned);
  for (int64_t row = 0; row < c.tokens; ++row)
    EXPECT_EQ(std::isnan(results.at("y")[row * 64]), row >= 80) << row;
}

TEST(Attention, OwnKernelsAreTheFastestOnHopper) {
  const auto are_fastest = [](int64_t dim, int64_t value_dim, DType type, const Target& target) {
    const AttentionCase c{1, 256, 4, 2, dim, value_dim, true, 0, 0, type};
    std::vector<TensorDecl> decls;
    for (const CallTensor& t : c.tensors(true)) decls.push_back(t.decl());
    OperationCall call = operation_call(c.call(true), decls, {});
    call.gpu_target = target.name;
    return own_attention_is_fastest(call);
  };
  EXPECT_TRUE(are_fastest(64, 64, DType::bf16, sm90()));
  EXPECT_TRUE(are_fastest(128, 128, DType::f16, sm90()));
  EXPECT_TRUE(are_fastest(96, 96, DType::bf16, sm90()));
  EXPECT_FALSE(are_fastest(80, 80, DType::bf16, sm90()));
  EXPECT_FALSE(are_fastest(192, 128, DType::bf16, sm90()));
  EXPECT_FALSE(are_fastest(64, 64, DType::f32, sm90()));
  EXPECT_FALSE(are_fastest(64, 64, DType::bf16, sm80()));
}

// Every size of a head in steps of 8 fits into the shared memory and the registers of every GPU.
TEST(Attention, TilesFit) {
  using namespace device::attention;
  for (uint32_t dim = 8; dim <= kMostHeadDim; dim += 8) {
    for (uint32_t value_dim = 8; value_dim <= kMostHeadDim; value_dim += 8) {
      for (const bool packed : {false, true}) {
        const HeadShape head{.dim = dim, .value_dim = value_dim, .packed = packed};
        EXPECT_LE(forward_bytes(head, forward_tiles(head)), kMostSharedBytes);
        EXPECT_LE(backward_queries_bytes(head, backward_queries_tiles(head)), kMostSharedBytes);
        EXPECT_LE(backward_keys_bytes(head, backward_keys_tiles(head)), kMostSharedBytes);
      }
    }
  }
}

// What setmaxnreg claims must have been released: a warpgroup waits for it without an end.
void expect_registers_fit(uint32_t consumers, uint32_t consumer_registers,
                          uint32_t producer_registers) {
  const uint32_t threads = (consumers + 1) * device::kWarpgroupSize;
  const uint32_t at_launch = (1u << 16) / threads / 8 * 8;
  EXPECT_LE(producer_registers + consumers * consumer_registers, (consumers + 1) * at_launch);
}

TEST(Attention, HopperTilesFit) {
  using namespace device::attention;
  int taken = 0;
  for (uint32_t dim = 8; dim <= kMostHeadDim + 8; dim += 8) {
    for (uint32_t value_dim = 8; value_dim <= kMostHeadDim + 8; value_dim += 8) {
      const HeadShape head{.dim = dim, .value_dim = value_dim, .packed = true};
      if (!sm90::takes(head)) continue;
      ++taken;
      const sm90::ForwardTiles tiles = sm90::hopper_tiles(head);
      EXPECT_LE(forward_layout(head, tiles).bytes, device::kSharedMemoryPerBlock)
          << dim << " and " << value_dim;
      expect_registers_fit(tiles.consumers, tiles.consumer_registers, tiles.producer_registers);
      if (!sm90::takes_backward(head)) continue;
      const sm90::BackwardTiles backward = sm90::backward_tiles(head);
      EXPECT_LE(backward_layout(head, backward).bytes, device::kSharedMemoryPerBlock)
          << dim << " and " << value_dim;
      expect_registers_fit(sm90::kBackwardConsumers, backward.consumer_registers,
                           backward.producer_registers);
    }
  }
  EXPECT_GT(taken, 0);
}

TEST(Attention, KernelsHaveNoDefect) {
  if (!find_nvrtc()) GTEST_SKIP() << "no NVRTC";
  std::map<const Target*, std::set<std::string>> texts;
  for (const auto& [dim, value_dim] :
       {std::pair{32, 32}, {64, 64}, {80, 80}, {96, 96}, {128, 128}, {192, 128}, {256, 256}}) {
    for (int option = 0; option < 6; ++option) {
      AttentionCase c{1, 256, 4, 2, dim, value_dim, true, 0, option % 2 * 50.0, DType::bf16};
      if (option == 2 || option == 3) c.documents = {256};
      c.sinks = option >= 4;
      if (dim == 80) c.type = DType::f16;
      for (const Target* target : {&sm90(), &sm80()})
        for (const bool backward : {false, true})
          for (const KernelLaunch& launch :
               launches_of(c.call(backward), c.tensors(backward), 0, {.target = target}))
            texts[target].insert(launch.source);
    }
  }
  for (const auto& [target, of_target] : texts)
    expect_no_defects(NvrtcCompiler(*target), of_target, known_clean_kernels());
}

}  // namespace
}  // namespace coda::gpu::of_calls
