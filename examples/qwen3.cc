// SPDX-License-Identifier: Apache-2.0
// A decoder as Qwen3 has it, described, trained on a text (a token a byte) and saved: heads of q
// and k with norms of their own, fewer heads of keys and values, RoPE, SwiGLU.
//
//     example_qwen3 TEXT FOLDER [STEPS [WEIGHTS [untied]]]
//
// FOLDER takes the checkpoint, from which the next call goes on. WEIGHTS to start from are those of
// a Qwen3ForCausalLM of these sizes, its head tied to the embeddings or not.
#include <coda/coda.h>

#include <cmath>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

namespace {

using coda::DType;
using coda::Value;

constexpr int64_t kLayers = 2, kHidden = 64, kHeads = 4, kKvHeads = 2, kHeadDim = 32, kMlp = 160;
constexpr int64_t kVocab = 256, kLength = 64, kSequences = 8;  // of a batch
constexpr double kEps = 1e-6, kTheta = 10000;

struct Decoder : coda::ModelGraph {
  explicit Decoder(bool tied) {
    ids = graph.table("ids", {"M", 1}, DType::i32);
    targets = graph.table("targets", {"M", 1}, DType::i32);
    positions = graph.table("positions", {"M", 1}, DType::i32);
    const Value embeddings = weight("model.embed_tokens", kVocab, kHidden);
    const coda::RopeTables angles = {table("cos", std::cos), table("sin", std::sin), positions};
    Value x = embedding(embeddings, ids);
    for (int i = 0; i < kLayers; ++i)
      x = layer("model.layers." + std::to_string(i) + ".", x, angles);
    const Value head = tied ? embeddings : weight("lm_head", kVocab, kHidden);
    logits = linear(norm("model.norm", x), head);
    loss = cross_entropy(logits, targets).mean;
  }

  // Matrices begin as normal(0, 0.02) and decay, the vectors of norms begin as 1.
  Value weight(const std::string& name, int64_t rows, int64_t cols) {
    coda::ModelParameter made{name + ".weight", {rows, cols}, {}, true, 0, 0.02};
    if (rows == 1) made = {made.name, {cols}, {}, false, 1, 0};
    made.value = graph.parameter(made.name, {rows, cols});
    parameters.push_back(made);
    return made.value;
  }
  // Of the angle of each place and pair of columns.
  Value table(const std::string& name, double (*function)(double)) {
    constexpr int64_t kPairs = kHeadDim / 2;
    tables.push_back({name, kLength, kPairs, {}});
    for (int64_t i = 0; i < kLength * kPairs; ++i) {
      const double angle = double(i / kPairs) * std::pow(kTheta, -double(i % kPairs) / kPairs);
      tables.back().values.push_back(float(function(angle)));
    }
    return graph.table(name, {kLength, kPairs});
  }
  Value norm(const std::string& of, Value x) { return rms_norm(x, weight(of, 1, kHidden), kEps); }
  // A norm of each head of x by itself; the heads share its weight.
  Value head_norm(const std::string& name, Value x, int64_t heads) {
    const Value r = rsqrt(group_sum(x * x, kHeadDim) / double(kHeadDim) + kEps);
    return x * group_repeat(r, kHeadDim) * repeat_columns(weight(name, 1, kHeadDim), heads);
  }
  Value layer(const std::string& name, Value x, const coda::RopeTables& angles) {
    const std::string attn = name + "self_attn.", mlp = name + "mlp.";
    const Value h = norm(name + "input_layernorm", x);
    const Value q = linear(h, weight(attn + "q_proj", kHeads * kHeadDim, kHidden));
    const Value k = linear(h, weight(attn + "k_proj", kKvHeads * kHeadDim, kHidden));
    const Value v = linear(h, weight(attn + "v_proj", kKvHeads * kHeadDim, kHidden));
    const Value y =
        attention(rope(head_norm(attn + "q_norm", q, kHeads), angles, kHeads, kHeadDim),
                  rope(head_norm(attn + "k_norm", k, kKvHeads), angles, kKvHeads, kHeadDim), v,
                  {.heads = kHeads, .kv_heads = kKvHeads, .head_dim = kHeadDim, .sequence = "T"});
    x = x + linear(y, weight(attn + "o_proj", kHidden, kHeads * kHeadDim));
    const Value g = norm(name + "post_attention_layernorm", x);
    const Value gate = linear(g, weight(mlp + "gate_proj", kMlp, kHidden));
    const Value up = linear(g, weight(mlp + "up_proj", kMlp, kHidden));
    return x + linear(swiglu(gate, up), weight(mlp + "down_proj", kHidden, kMlp));
  }
};

void run(const std::vector<std::string>& words) {
  coda::require(words.size() >= 2, "give a text, and a folder for the checkpoint");
  const coda::Tokens text = coda::load_text(words[0]);
  const int64_t steps = words.size() > 2 ? std::stoll(words[2]) : 300;
  const Decoder net(words.size() < 5 || words[4] != "untied");
  coda::Weights weights = initial_weights(net, 1);
  if (words.size() > 3) coda::load_weights(words[3], weights);
  const auto backend = coda::make_backend("cpu");
  coda::TrainOptions options;
  options.sizes = {{"M", kSequences * kLength}, {"T", kLength}};
  options.schedule = {.peak = 4e-3, .warmup_steps = steps / 10, .total_steps = steps};
  coda::Trainer trainer(net.graph, net.loss, weights, *backend, options);
  trainer.bind(constants_of(net, kSequences, kLength));
  coda::load_checkpoint(words[1], trainer);
  std::vector<int32_t> ids(kSequences * kLength), targets(ids.size());
  const auto column = [](std::vector<int32_t>& values) {
    return coda::Tensor(coda::dense_view(values.data(), DType::i32, std::ssize(values), 1));
  };
  while (trainer.step_count < steps) {
    coda::sample_batch(text, 1, trainer.step_count, 0, kLength, ids, targets);
    const auto report = trainer.step({{"ids", column(ids)}, {"targets", column(targets)}});
    if (trainer.step_count % 50 == 0 || trainer.step_count == steps)
      std::printf("step %d: loss %.6f\n", int(trainer.step_count), report.loss);
  }
  coda::save_checkpoint(words[1], trainer);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "qwen3: %s\n", error.what());
    return 1;
  }
}
