// SPDX-License-Identifier: Apache-2.0
// Attention against its definition in float64: error no larger than computing it op by op in the
// same storage type; the same bits for any number of threads; rows that see only earlier rows;
// strides; bad calls.
#include "cpu/opaque.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <tuple>
#include <utility>

#include "coda/error.h"
#include "coda/float16.h"
#include "hwy/targets.h"
#include "operations/document_spans.h"
#include "runtime/operation_call.h"
#include "runtime/owned_tensor.h"

namespace coda {
namespace {

struct AttentionCase {
  int64_t sequences = 1, tokens = 1, heads = 1, kv_heads = 1, head_dim = 8;
  bool causal = true;
  DType dtype = DType::f32;
  int64_t value_dim = 0;  // 0: head_dim
  int64_t window = 0;
  double soft_cap = 0;
  // Lengths of documents, which follow each other in each sequence, in each from the next on;
  // tokens behind them see nothing. Empty: no documents.
  std::vector<int64_t> documents = {};
  bool sinks = false;

  int64_t value() const { return value_dim == 0 ? head_dim : value_dim; }
  // The span of a row's document in its sequence.
  std::pair<int64_t, int64_t> document(int64_t row) const {
    return documents.empty() ? std::pair<int64_t, int64_t>(0, tokens)
                             : document_of(row, documents, tokens);
  }
  // The first token of its sequence that a row sees, and one past the last.
  int64_t first_seen(int64_t row) const {
    return std::max(document(row).first, window == 0 ? 0 : row % tokens - window + 1);
  }
  int64_t last_seen(int64_t row) const {
    return std::min(document(row).second, causal ? row % tokens + 1 : tokens);
  }
  int64_t rows() const { return sequences * tokens; }
  double scale() const { return 1 / std::sqrt(static_cast<double>(head_dim)); }
  OpaqueCall call(const std::string& function) const {
    OpaqueCall call;
    call.function = function;
    call.attributes = {
        {"heads", heads},        {"kv_heads", kv_heads}, {"head_dim", head_dim},
        {"scale", scale()},      {"causal", causal},     {"value_dim", value_dim},
        {"window", window},      {"soft_cap", soft_cap}, {"documents", documents.empty() ? 0 : 1},
        {"sinks", sinks ? 1 : 0}};
    call.sizes = {{"sequence", Dim(tokens)}};
    if (function == "attention") {
      call.inputs = {"q", "k", "v"};
      call.outputs = {"y", "lse"};
    } else {
      call.inputs = {"q", "k", "v", "y", "lse", "dy"};
      call.outputs = {"dq", "dk", "dv"};
    }
    if (!documents.empty()) call.inputs.push_back("documents");
    if (!sinks) return call;
    call.inputs.push_back("sinks");
    if (function == "attention_backward") call.outputs.push_back("dsinks");
    return call;
  }
  std::vector<const char*> results() const {
    std::vector<const char*> names{"y", "lse", "dq", "dk", "dv"};
    if (sinks) names.push_back("dsinks");
    return names;
  }
  std::string text() const {
    return std::to_string(sequences) + " x " + std::to_string(tokens) + " tokens, heads " +
           std::to_string(heads) + "/" + std::to_string(kv_heads) + " x " +
           std::to_string(head_dim) + (causal ? " causal " : " full ") +
           std::string(name_of(dtype)) + ", values " + std::to_string(value()) + ", window " +
           std::to_string(window) + ", cap " + std::to_string(soft_cap) + ", documents " +
           testing::PrintToString(documents) + (sinks ? ", sinks" : "");
  }
};

using NamedTensors = std::map<std::string, OwnedTensor>;

NamedTensors make_tensors(const AttentionCase& c, DType dtype, uint64_t seed, int64_t gap = 0) {
  NamedTensors t;
  const auto add = [&](std::initializer_list<const char*> names, int64_t cols) {
    for (const char* name : names) t.emplace(name, OwnedTensor(dtype, c.rows(), cols, gap));
  };
  add({"q", "dq"}, c.heads * c.head_dim);
  add({"k", "dk"}, c.kv_heads * c.head_dim);
  add({"v", "dv"}, c.kv_heads * c.value());
  add({"y", "dy"}, c.heads * c.value());
  t.emplace("lse", OwnedTensor(dtype == DType::f64 ? dtype : DType::f32, c.rows(), c.heads, gap));
  for (const char* name : {"q", "k", "v", "dy"}) t.at(name).randomise(seed++);
  for (const char* name : {"sinks", "dsinks"})
    t.emplace(name, OwnedTensor(dtype == DType::f64 ? dtype : DType::f32, 1, c.heads, gap));
  t.at("sinks").randomise(seed, 2);
  std::vector<double> spans;
  for (int64_t row = 0; row < c.rows(); ++row) {
    const auto [first, last] = c.document(row);
    spans.insert(spans.end(), {static_cast<double>(first), static_cast<double>(last)});
  }
  t.emplace("documents", OwnedTensor(DType::i32, c.rows(), 2, gap)).first->second.set(spans);
  return t;
}

using Prepare =
    std::function<std::unique_ptr<Kernel>(const OpaqueCall&, std::span<const TensorDecl>)>;

void run(const OpaqueCall& call, NamedTensors& t, const Prepare& prepare) {
  std::vector<TensorDecl> decls;
  std::vector<TensorView> views;
  for (const auto* names : {&call.inputs, &call.outputs}) {
    for (const std::string& name : *names) {
      decls.push_back(t.at(name).decl(name));
      views.push_back(t.at(name).view());
    }
  }
  prepare(call, decls)->run(views);
}

void run_cpu(const AttentionCase& c, NamedTensors& t, int threads = 1) {
  for (const char* function : {"attention", "attention_backward"})
    run(c.call(function), t, [&](const OpaqueCall& call, std::span<const TensorDecl> decls) {
      return cpu::prepare_opaque(call, decls, {}, threads);
    });
}

// From the same, already rounded inputs, in float64.
NamedTensors run_reference(const AttentionCase& c, NamedTensors& inputs) {
  NamedTensors t = make_tensors(c, DType::f64, 0);
  for (const char* name : {"q", "k", "v", "dy", "documents", "sinks"})
    t.at(name).set(inputs.at(name).values());
  for (const char* function : {"attention", "attention_backward"})
    run(c.call(function), t, [&](const OpaqueCall& call, std::span<const TensorDecl> decls) {
      return prepare_reference_call(call, decls, {});
    });
  return t;
}

// As a framework without a fused attention computes it: sums in fp32, the result of every op
// stored.
void run_op_by_op(const AttentionCase& c, NamedTensors& t) {
  auto stored = [&](float x) {
    return c.dtype == DType::bf16  ? float_from_bf16(bf16_from_float(x))
           : c.dtype == DType::f16 ? float_from_f16(f16_from_float(x))
                                   : x;
  };
  const std::vector<double> q = t.at("q").values(), k = t.at("k").values(), v = t.at("v").values(),
                            dy = t.at("dy").values(), sinks = t.at("sinks").values();
  std::vector<float> y(dy.size()), dq(q.size()), dk(k.size()), dv(v.size()), dsinks(c.heads);
  std::vector<double> lse(static_cast<size_t>(c.rows() * c.heads));
  const float cap = static_cast<float>(c.soft_cap);
  for (int64_t row = 0; row < c.rows(); ++row) {
    for (int64_t head = 0; head < c.heads; ++head) {
      const int64_t start = row / c.tokens * c.tokens;
      const int64_t first = start + c.first_seen(row), seen = start + c.last_seen(row) - first;
      const float sink = c.sinks ? static_cast<float>(sinks[head]) : -HUGE_VALF;
      if (seen <= 0) {
        lse[row * c.heads + head] = sink;
        continue;
      }
      const int64_t kv_head = head / (c.heads / c.kv_heads);
      // Where key and value j of what is seen start.
      const auto key = [&](int64_t j) { return ((first + j) * c.kv_heads + kv_head) * c.head_dim; };
      const auto value = [&](int64_t j) {
        return ((first + j) * c.kv_heads + kv_head) * c.value();
      };
      const int64_t at = (row * c.heads + head) * c.head_dim;
      const int64_t out = (row * c.heads + head) * c.value();
      std::vector<float> p(seen), dp(seen), t_of(seen);
      float top = sink, sum = 0, mean = 0;
      for (int64_t j = 0; j < seen; ++j) {
        float s = 0;
        for (int64_t d = 0; d < c.head_dim; ++d)
          s += static_cast<float>(q[at + d]) * static_cast<float>(k[key(j) + d]);
        p[j] = stored(stored(s) * static_cast<float>(c.scale()));
        if (cap != 0) {
          t_of[j] = stored(std::tanh(stored(p[j] / cap)));
          p[j] = stored(cap * t_of[j]);
        }
        top = std::max(top, p[j]);
      }
      for (float& x : p) sum += x = std::exp(x - top);
      sum += std::exp(sink - top);
      for (float& x : p) x = stored(x / sum);
      const float p_sink = stored(std::exp(sink - top) / sum);
      lse[row * c.heads + head] = top + std::log(sum);
      for (int64_t j = 0; j < seen; ++j) {
        for (int64_t d = 0; d < c.value(); ++d) {
          y[out + d] += p[j] * static_cast<float>(v[value(j) + d]);
          dv[value(j) + d] += p[j] * static_cast<float>(dy[out + d]);
          dp[j] += static_cast<float>(dy[out + d]) * static_cast<float>(v[value(j) + d]);
        }
        dp[j] = stored(dp[j]);
        mean += p[j] * dp[j];
      }
      dsinks[head] += stored(p_sink * (0 - mean));
      for (int64_t j = 0; j < seen; ++j) {
        float ds = stored(p[j] * (dp[j] - mean));
        if (cap != 0) ds = stored(ds * (1 - t_of[j] * t_of[j]));
        ds = stored(ds * static_cast<float>(c.scale()));
        for (int64_t d = 0; d < c.head_dim; ++d) {
          dq[at + d] += ds * static_cast<float>(k[key(j) + d]);
          dk[key(j) + d] += ds * static_cast<float>(q[at + d]);
        }
      }
    }
  }
  auto set = [&](const char* name, const std::vector<float>& x) {
    t.at(name).set(std::vector<double>(x.begin(), x.end()));
  };
  set("y", y), set("dq", dq), set("dk", dk), set("dv", dv), set("dsinks", dsinks);
  t.at("lse").set(lse);
}

const char* const kResults[] = {"y", "lse", "dq", "dk", "dv"};

// relative_error() of numbers among which there may be equal infinities.
double error_of(std::vector<double> found, std::vector<double> wanted) {
  for (size_t i = 0; i < wanted.size(); ++i)
    if (std::isinf(wanted[i]) && found[i] == wanted[i]) found[i] = wanted[i] = 0;
  return relative_error(found, wanted);
}

// Root mean square over seeds of each result's error, against that of op by op.
void expect_accurate(const AttentionCase& c, int seeds) {
  SCOPED_TRACE(c.text());
  std::map<std::string, double> ours, theirs;
  for (int seed = 0; seed < seeds; ++seed) {
    NamedTensors t = make_tensors(c, c.dtype, 100 * seed),
                 op_by_op = make_tensors(c, c.dtype, 100 * seed);
    run_cpu(c, t);
    run_op_by_op(c, op_by_op);
    NamedTensors truth = run_reference(c, t);
    for (const char* name : c.results()) {
      const std::vector<double> expected = truth.at(name).values();
      ours[name] += std::pow(error_of(t.at(name).values(), expected), 2);
      theirs[name] += std::pow(error_of(op_by_op.at(name).values(), expected), 2);
    }
  }
  // Between forward and backward stand y and lse, which op by op would not round: one unit of fp32.
  const double rounding = c.dtype == DType::f32 ? 0x1p-23 : 0;
  for (const char* name : c.results()) {
    const double error = std::sqrt(ours[name] / seeds), other = std::sqrt(theirs[name] / seeds);
    // One token: dq and dk are 0 but for rounding, on both sides.
    const bool sees_one = c.tokens == 1 || c.window == 1;
    const bool is_zero = sees_one && (name == std::string("dq") || name == std::string("dk"));
    if (is_zero)
      EXPECT_LT(error, c.dtype == DType::bf16 ? 0.1 : c.dtype == DType::f16 ? 0.02 : 1e-5) << name;
    else
      EXPECT_LE(error, other + rounding) << name;
  }
}

TEST(Attention, ErrorIsAtMostThatOfOpByOpInTheSameStorage) {
  const struct {
    int64_t heads, kv_heads, head_dim;
  } heads[] = {{1, 1, 64},  {4, 2, 8},  {3, 1, 80}, {8, 1, 16},
               {2, 2, 128}, {3, 3, 20}, {6, 2, 96}, {2, 1, 33}};
  size_t turn = 0;
  for (DType dtype : {DType::f32, DType::bf16})
    for (bool causal : {true, false})
      for (int64_t tokens : {1, 7, 63, 65, 96, 300}) {
        const auto& h = heads[turn++ * 5 % (tokens == 300 ? 2 : 8)];
        const int64_t sequences = tokens == 300 ? 1 : 3;
        expect_accurate({sequences, tokens, h.heads, h.kv_heads, h.head_dim, causal, dtype},
                        tokens < 10 ? 8 : 2);
      }
}

TEST(Attention, IsAsAccurateWithWindowsCapsAndValueWidths) {
  const int64_t windows[] = {1, 7, 64, 96, 97, 130, 1000};
  const int64_t value_dims[] = {0, 24, 128, 17};
  const double caps[] = {0, 50, 0.9};
  const DType dtypes[] = {DType::f32, DType::bf16, DType::f16};
  int turn = 0;
  for (int64_t head_dim : {16, 64, 128})
    for (int64_t tokens : {5, 96, 230, 301})
      for (bool windowed : {true, false}) {
        AttentionCase c{tokens < 100 ? 3 : 1, tokens, 2, 2 - turn % 2, head_dim};
        c.dtype = dtypes[turn % 3];
        c.value_dim = value_dims[turn % 4];
        c.soft_cap = caps[turn / 2 % 3];
        c.window = windowed ? windows[turn / 2 % 7] : 0;
        c.causal = windowed || turn % 4 != 1;
        expect_accurate(c, tokens < 10 ? 8 : 2);
        ++turn;
      }
  for (int64_t window : windows) {  // each of them over several blocks, in fp32
    AttentionCase c{1, 301, 2, 1, 16};
    c.window = window;
    expect_accurate(c, 2);
  }
}

TEST(Attention, IsAsAccurateWithDocuments) {
  const DType dtypes[] = {DType::f32, DType::bf16, DType::f16};
  // One document, bounds at and around blocks, documents of none and of one token, tokens behind.
  const std::vector<int64_t> documents[] = {
      {230}, {96, 0, 95, 39}, {1, 20, 1, 75, 97, 36}, {100, 30}, {0, 192}};
  int turn = 0;
  for (const auto& lengths : documents)
    for (bool causal : {true, false})
      for (int64_t window : {0, 40}) {
        if (window != 0 && !causal) continue;
        AttentionCase c{2, 230, 2, 2 - turn % 2, 16, causal, dtypes[turn % 3]};
        c.window = window;
        c.soft_cap = turn % 4 == 1 ? 0.9 : 0;
        c.documents = lengths;
        expect_accurate(c, 2);
        ++turn;
      }
}

TEST(Attention, IsAsAccurateWithSinks) {
  const DType dtypes[] = {DType::f32, DType::bf16, DType::f16};
  const std::vector<int64_t> documents[] = {{}, {20, 1, 109, 100}, {100, 30}};
  int turn = 0;
  for (int64_t tokens : {1, 5, 96, 230})
    for (DType dtype : dtypes)
      for (const auto& lengths : documents) {
        AttentionCase c{2, tokens, 4, 2, 16, turn % 3 != 1, dtype};
        c.window = c.causal && turn % 2 == 0 ? 40 : 0;
        c.soft_cap = turn % 4 == 1 ? 0.9 : 0;
        if (tokens == 230) c.documents = lengths;
        c.sinks = true;
        expect_accurate(c, tokens < 10 ? 16 : 4);
        ++turn;
      }
}

// A sink of minus infinity has no share: results have the same bits. One of 1000 has all.
TEST(Attention, SinksWithoutAndWithTheWholeShare) {
  AttentionCase c{2, 130, 2, 1, 24};
  c.window = 40;
  NamedTensors plain = make_tensors(c, DType::f32, 9);
  run_cpu(c, plain);
  c.sinks = true;
  NamedTensors none = make_tensors(c, DType::f32, 9), all = make_tensors(c, DType::f32, 9);
  none.at("sinks").set(-HUGE_VAL);
  run_cpu(c, none);
  for (const char* name : kResults)
    EXPECT_EQ(none.at(name).bytes(), plain.at(name).bytes()) << name;
  EXPECT_EQ(none.at("dsinks").values(), (std::vector<double>{0, 0}));
  all.at("sinks").set(1000);
  run_cpu(c, all);
  for (const char* name : {"y", "dq", "dk", "dv", "dsinks"})
    for (const double x : all.at(name).values()) ASSERT_EQ(x, 0) << name;
  for (const double x : all.at("lse").values()) ASSERT_EQ(x, 1000);
}

// The last three tokens attend to the cached keys and values of the first eight. The cache has room
// for one more token, which must not be read.
TEST(Attention, TokensBehindCachedOnesGiveTheRowsOfTheWhole) {
  for (AttentionCase c : {AttentionCase{.heads = 4, .kv_heads = 2},
                          AttentionCase{.heads = 2, .dtype = DType::bf16, .sinks = true},
                          AttentionCase{.heads = 4,
                                        .kv_heads = 2,
                                        .value_dim = 24,
                                        .window = 4,
                                        .soft_cap = 5,
                                        .sinks = true}}) {
    c.tokens = 11;
    const int64_t past = 8, newest = c.tokens - past;
    NamedTensors whole = make_tensors(c, c.dtype, 1);
    run_cpu(c, whole);
    OpaqueCall call = c.call("attention");
    call.function = "attention_with_past";
    call.attributes.erase("documents");
    call.sizes.clear();
    call.inputs = {"q", "k", "v", "past_keys", "past_values", "length"};
    if (c.sinks) call.inputs.push_back("sinks");
    call.outputs = {"y"};
    NamedTensors t;
    const auto add = [&](const char* name, const char* of, int64_t first, int64_t rows) {
      const std::vector<double> all = whole.at(of).values();
      const int64_t cols = std::ssize(all) / c.tokens;
      OwnedTensor& tensor = t.emplace(name, OwnedTensor(c.dtype, rows, cols, 3)).first->second;
      tensor.set(std::span(all).subspan(first * cols, rows * cols));
    };
    for (const char* name : {"q", "k", "v", "y"}) add(name, name, past, newest);
    const std::vector<double> wanted = t.at("y").values();
    t.at("y").set(NAN);
    add("past_keys", "k", 0, past + 1);
    add("past_values", "v", 0, past + 1);
    t.emplace("length", OwnedTensor(DType::i32, 1, 1)).first->second.set(past);
    t.emplace("sinks", whole.at("sinks"));
    run(call, t, [&](const OpaqueCall& made, std::span<const TensorDecl> decls) {
      return cpu::prepare_opaque(made, decls, {}, 2);
    });
    EXPECT_LT(relative_error(t.at("y").values(), wanted), c.dtype == DType::f32 ? 1e-6 : 4e-3)
        << c.text();
  }
}

// Bits of a document do not depend on the documents around it, if it begins at a block.
TEST(Attention, ADocumentByItselfGivesTheSameBits) {
  AttentionCase packed{1, 300, 2, 1, 24};
  packed.documents = {96, 150, 54};
  const AttentionCase alone{1, 150, 2, 1, 24};
  NamedTensors t = make_tensors(packed, DType::f32, 9), u = make_tensors(alone, DType::f32, 0);
  const auto rows_of_document = [&](const char* name) {
    const std::vector<double> all = t.at(name).values();
    const int64_t cols = std::ssize(all) / packed.tokens;
    return std::vector<double>(all.begin() + 96 * cols, all.begin() + 246 * cols);
  };
  for (const char* name : {"q", "k", "v", "dy"}) u.at(name).set(rows_of_document(name));
  run_cpu(packed, t);
  run_cpu(alone, u);
  for (const char* name : kResults) EXPECT_EQ(u.at(name).values(), rows_of_document(name)) << name;
}

// Two bits-for-bit properties: a window as long as the sequence hides nothing, and what a window
// hides does not matter.
TEST(Attention, AWindowHidesWhatLiesBeforeItAndNothingElse) {
  const AttentionCase whole{2, 230, 2, 1, 24};
  NamedTensors t = make_tensors(whole, DType::f32, 9);
  run_cpu(whole, t);
  for (int64_t window : {230, 231, 5000}) {
    AttentionCase c = whole;
    c.window = window;
    NamedTensors u = make_tensors(c, DType::f32, 9);
    run_cpu(c, u);
    for (const char* name : kResults) EXPECT_EQ(t.at(name).values(), u.at(name).values()) << name;
  }
  AttentionCase c{1, 230, 2, 1, 24};
  c.window = 40;
  NamedTensors one = make_tensors(c, DType::f32, 9), other = make_tensors(c, DType::f32, 9);
  for (const char* name : {"k", "v"}) {
    std::vector<double> values = other.at(name).values();
    std::fill_n(values.begin(), 100 * 24, 3.0);  // tokens 0 to 99
    other.at(name).set(values);
  }
  run_cpu(c, one);
  run_cpu(c, other);
  const std::vector<double> y = one.at("y").values(), changed = other.at("y").values();
  const auto seen_from = 139 * 48;  // token 139 sees 100 to 139
  EXPECT_TRUE(std::equal(y.begin() + seen_from, y.end(), changed.begin() + seen_from));
  EXPECT_FALSE(std::equal(y.begin() + 138 * 48, y.begin() + seen_from, changed.begin() + 138 * 48));
}

TEST(Attention, IsAsAccurateOnEveryInstructionSet) {
  const int64_t supported = hwy::SupportedTargets();
  for (int64_t target : {HWY_AVX3, HWY_AVX2, HWY_SCALAR}) {
    if (target != HWY_SCALAR && (supported & target) == 0) continue;
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().DeInit();
    for (DType dtype : {DType::f32, DType::bf16})
      for (auto [head_dim, causal] :
           {std::pair<int64_t, bool>{64, true}, {40, true}, {72, false}, {9, true}})
        expect_accurate({2, 110, 2, 1, head_dim, causal, dtype}, 2);
    for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      expect_accurate({3, 17, 4, 2, 28, true, dtype}, 4);
      expect_accurate({2, 210, 2, 1, 28, true, dtype, 44, 101, 5}, 2);
    }
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
}

TEST(Attention, SameBitsForAnyNumberOfThreads) {
  for (const AttentionCase& c :
       {AttentionCase{1, 300, 3, 1, 64}, AttentionCase{1, 700, 2, 2, 24, false},
        AttentionCase{3, 200, 4, 2, 40}, AttentionCase{2, 290, 2, 1, 16, true, DType::bf16},
        AttentionCase{1, 500, 2, 1, 24, true, DType::f16, 40, 130, 20},
        AttentionCase{1, 500, 2, 1, 24, false, DType::f32, 40, 0, 0, {130, 1, 200, 99}},
        AttentionCase{3, 500, 2, 1, 24, true, DType::f32, 40, 130, 0, {}, true}}) {
    SCOPED_TRACE(c.text());
    NamedTensors one = make_tensors(c, c.dtype, 5);
    run_cpu(c, one, 1);
    for (int threads : {2, 3, 8}) {
      NamedTensors many = make_tensors(c, c.dtype, 5);
      run_cpu(c, many, threads);
      for (const char* name : c.results())
        EXPECT_EQ(one.at(name).bytes(), many.at(name).bytes()) << name << " " << threads;
    }
  }
}

// Rows 0..n-1 of `whole` in a tensor of their own.
std::vector<double> first_rows(OwnedTensor& whole, int64_t rows) {
  std::vector<double> values = whole.values();
  values.resize(values.size() / static_cast<size_t>(whole.view().rows) * static_cast<size_t>(rows));
  return values;
}

TEST(Attention, ACausalRowDependsOnNoLaterRow) {
  const AttentionCase whole{1, 300, 4, 2, 40};
  NamedTensors t = make_tensors(whole, DType::f32, 11);
  run_cpu(whole, t);
  for (int64_t rows : {1, 5, 64, 95, 96, 97, 200}) {
    const AttentionCase part{1, rows, 4, 2, 40};
    NamedTensors u = make_tensors(part, DType::f32, 0);
    for (const char* name : {"q", "k", "v", "dy"}) u.at(name).set(first_rows(t.at(name), rows));
    run_cpu(part, u);
    EXPECT_EQ(u.at("y").values(), first_rows(t.at("y"), rows)) << rows;
    EXPECT_EQ(u.at("lse").values(), first_rows(t.at("lse"), rows)) << rows;

    NamedTensors poisoned = make_tensors(whole, DType::f32, 11);  // NaN from row `rows` on
    for (const char* name : {"q", "k", "v"}) {
      std::vector<double> values = poisoned.at(name).values();
      std::fill(values.begin() + static_cast<int64_t>(first_rows(poisoned.at(name), rows).size()),
                values.end(), NAN);
      poisoned.at(name).set(values);
    }
    run_cpu(whole, poisoned);
    EXPECT_EQ(first_rows(poisoned.at("y"), rows), first_rows(t.at("y"), rows)) << rows;
    EXPECT_TRUE(std::isnan(poisoned.at("y").values().back()));
  }
}

TEST(Attention, SequencesDoNotSeeOneAnother) {
  const AttentionCase both{2, 130, 2, 1, 32, false}, single{1, 130, 2, 1, 32, false};
  NamedTensors t = make_tensors(both, DType::f32, 3), u = make_tensors(single, DType::f32, 0);
  for (const char* name : {"q", "k", "v", "dy"}) u.at(name).set(first_rows(t.at(name), 130));
  run_cpu(both, t);
  run_cpu(single, u);
  for (const char* name : kResults)
    EXPECT_EQ(u.at(name).values(), first_rows(t.at(name), 130)) << name;
}

TEST(Attention, RowsMayLieApartAndGapsAreNotTouched) {
  for (DType dtype : {DType::f32, DType::bf16}) {
    const AttentionCase c{2, 70, 3, 1, 24, true, dtype};
    NamedTensors dense = make_tensors(c, dtype, 7), apart = make_tensors(c, dtype, 7, 13);
    run_cpu(c, dense);
    run_cpu(c, apart);
    for (const char* name : kResults) {
      EXPECT_EQ(dense.at(name).values(), apart.at(name).values()) << name;
      const TensorView view = apart.at(name).view();
      const int64_t unit = size_of(view.dtype);
      for (int64_t row = 0; row < view.rows; ++row)
        for (int64_t i = view.cols * unit; i < view.row_stride * unit; ++i)
          ASSERT_EQ(apart.at(name).bytes()[row * view.row_stride * unit + i], std::byte{0x55})
              << name;
    }
  }
}

// Scores from -30000 to 30000: the largest decides, nothing overflows.
TEST(Attention, LargeScoresGiveFiniteResults) {
  const AttentionCase c{1, 200, 2, 1, 16};
  NamedTensors t = make_tensors(c, DType::f32, 21);
  t.at("q").randomise(1, 100);
  t.at("k").randomise(2, 100);
  run_cpu(c, t);
  NamedTensors truth = run_reference(c, t);
  for (const char* name : {"dq", "dk"})
    for (double value : t.at(name).values()) ASSERT_TRUE(std::isfinite(value)) << name;
  EXPECT_LT(relative_error(t.at("y").values(), truth.at("y").values()), 1e-3);
  EXPECT_LT(relative_error(t.at("lse").values(), truth.at("lse").values()), 1e-6);
}

TEST(Attention, WrongSpansOfDocumentsAreRefused) {
  AttentionCase c{2, 8, 2, 1, 16};
  c.documents = {3, 5};
  for (const auto& [row, first, last] :
       {std::tuple{9, 1, 3}, {4, 2, 8}, {2, 0, 2}, {15, 3, 9}, {3, 5, 4}}) {
    NamedTensors t = make_tensors(c, DType::f32, 0);
    std::vector<double> spans = t.at("documents").values();
    spans[2 * row] = first, spans[2 * row + 1] = last;
    t.at("documents").set(spans);
    EXPECT_THROW(run_cpu(c, t), Error) << row;
    EXPECT_THROW(run_reference(c, t), Error) << row;
  }
}

TEST(Attention, BadCallsAreRefusedWithTheReason) {
  const AttentionCase good{2, 8, 4, 2, 16};
  auto message =
      [&](const std::function<void(OpaqueCall&, std::vector<TensorDecl>&)>& spoil) -> std::string {
    OpaqueCall call = good.call("attention");
    NamedTensors t = make_tensors(good, DType::f32, 0);
    std::vector<TensorDecl> decls;
    for (const char* name : {"q", "k", "v", "y", "lse"}) decls.push_back(t.at(name).decl(name));
    spoil(call, decls);
    try {
      cpu::prepare_opaque(call, decls, {}, 1);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  using testing::HasSubstr;
  EXPECT_EQ(message([](auto&, auto&) {}), "accepted");
  EXPECT_THAT(message([](auto& c, auto&) { c.function = "attend"; }),
              HasSubstr("\"attend\" is registered; the nearest known name is \"attention\""));
  EXPECT_THAT(message([](auto& c, auto&) { c.attributes.erase("scale"); }),
              HasSubstr("attribute \"scale\" is missing"));
  EXPECT_THAT(message([](auto& c, auto&) { c.attributes["windw"] = 3; }),
              HasSubstr("attribute \"windw\" is not known; the nearest known name is \"window\""));
  EXPECT_THAT(
      message([](auto& c, auto&) { c.attributes["window"] = 3, c.attributes["causal"] = 0; }),
      HasSubstr("needs causal attention"));
  EXPECT_THAT(message([](auto& c, auto&) { c.attributes["heads"] = 2.5; }),
              HasSubstr("\"heads\" must be a whole number from 1"));
  EXPECT_THAT(message([](auto& c, auto&) { c.attributes["kv_heads"] = 3; }),
              HasSubstr("4 heads are no multiple of 3 key-value heads"));
  EXPECT_THAT(message([](auto& c, auto&) { c.sizes["sequence"] = Dim(5); }),
              HasSubstr("16 rows are no whole number of sequences of 5"));
  EXPECT_THAT(message([](auto& c, auto&) { c.sizes.clear(); }),
              HasSubstr("size \"sequence\" is missing"));
  EXPECT_THAT(message([](auto&, auto& d) { d[1].shape.cols = 64; }),
              HasSubstr("k must be [16, 32], not [16, 64]"));
  EXPECT_THAT(message([](auto&, auto& d) { d[4].dtype = DType::bf16; }),
              HasSubstr("'lse' is bf16; it must be f32"));
  EXPECT_THAT(message([](auto&, auto& d) { d[2].dtype = DType::i32; }),
              HasSubstr("'v' is i32; it must be f32 or bf16 or f16"));
  EXPECT_THAT(message([](auto& c, auto&) { c.attributes["documents"] = 2; }),
              HasSubstr("attribute \"documents\" must be 1 if the operand is given, or 0"));
  EXPECT_THAT(message([](auto& c, auto&) { c.attributes["documents"] = 1; }),
              HasSubstr("it has 3 inputs, not 4"));
  const auto with = [&](const char* operand, Shape shape, DType type) {
    return message([=](auto& c, auto& d) {
      c.attributes[operand] = 1;
      c.inputs.push_back(operand);
      d.insert(d.begin() + 3, {operand, shape, type});
    });
  };
  EXPECT_EQ(with("documents", {16, 2}, DType::i32), "accepted");
  EXPECT_THAT(with("documents", {16, 2}, DType::f32),
              HasSubstr("'documents' is f32; it must be i32"));
  EXPECT_THAT(with("documents", {16, 1}, DType::i32),
              HasSubstr("documents must be [16, 2], not [16, 1]"));
  EXPECT_EQ(with("sinks", {1, 4}, DType::f32), "accepted");
  EXPECT_THAT(with("sinks", {1, 4}, DType::bf16), HasSubstr("'sinks' is bf16; it must be f32"));
  EXPECT_THAT(with("sinks", {1, 2}, DType::f32), HasSubstr("sinks must be [1, 4], not [1, 2]"));
  EXPECT_THAT(message([](auto& c, auto& d) { c.inputs.pop_back(), d.pop_back(); }),
              HasSubstr("it has 2 inputs, not 3"));
}

}  // namespace
}  // namespace coda
