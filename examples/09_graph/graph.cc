// SPDX-License-Identifier: Apache-2.0
// A graph has a text of its own, in the language of programs: what C++ builds is what is read, node
// by node, and it is compiled and run from either.
#include "ladder.h"

namespace {

coda::NamedGraph built() {
  coda::NamedGraph block;
  block.name = "block";
  coda::Graph& g = block.graph;
  const coda::Value x = g.input("x", {"M", 64});
  const coda::Value h = coda::rms_norm(x, g.parameter("norm", {1, 64}), 1e-6);
  const coda::Value q = coda::linear(h, g.parameter("wq", {64, 64}));
  const coda::Value k = coda::linear(h, g.parameter("wk", {64, 64}));
  const coda::Value v = coda::linear(h, g.parameter("wv", {64, 64}));
  const coda::Value position = g.table("position", {"M", 1}, coda::DType::i32);
  const coda::Value cos = g.table("cos", {"S", 16});
  const coda::Value sin = g.table("sin", {"S", 16});
  const coda::RopeTables angles{cos, sin, position};
  const coda::Value o =
      coda::attention(coda::rope(q, angles, 2, 32), coda::rope(k, angles, 2, 32), v,
                      {.heads = 2, .kv_heads = 2, .head_dim = 32, .sequence = "M"});
  const coda::Value x1 = x + coda::linear(o, g.parameter("wo", {64, 64}));
  const coda::Value gate = coda::linear(x1, g.parameter("gate", {"I", 64}));
  const coda::Value up = coda::linear(x1, g.parameter("up", {"I", 64}));
  const coda::Value y = x1 + coda::linear(coda::swiglu(gate, up), g.parameter("down", {64, "I"}));
  block.outputs = {{"y", y}};
  return block;
}

void run(const std::vector<std::string>& texts) {
  const coda::NamedGraph block = built();
  const coda::NamedGraph read = coda::read_graph(texts.at(0));
  std::printf("%s\n", coda::text(read).c_str());

  // The same numbers from both, on the CPU.
  const coda::DimValues sizes{{"M", 48}, {"S", 48}, {"I", 96}};
  std::mt19937 random(1);
  std::normal_distribution<double> normal(0, 0.2);
  coda::Arrays inputs;
  for (int id = 0; id < read.graph.size(); ++id) {
    const coda::Node& n = read.graph.node(id);
    if (n.op != coda::Op::input) continue;
    coda::Array& array = inputs[n.name];
    array.shape = {n.shape.rows.evaluate(sizes), n.shape.cols.evaluate(sizes)};
    array.values.resize(static_cast<size_t>(array.shape[0] * array.shape[1]));
    for (size_t i = 0; i < array.values.size(); ++i)
      array.values[i] = n.name == "position" ? static_cast<double>(i) : normal(random);
  }
  const auto backend = coda::make_backend("cpu");
  const coda::Array ours = coda::run_graph(block, sizes, inputs, *backend).results[0].array;
  const coda::Array theirs = coda::run_graph(read, sizes, inputs, *backend).results[0].array;
  coda::require(ours.values == theirs.values, texts[0] + " is another graph than C++ builds");

  // And the derived backward is that of finite differences.
  const coda::BackwardReport backward = coda::check_backward(read, sizes);
  coda::require(backward.left_out.empty() && backward.is_right(), coda::text(backward));
  std::printf("%s", coda::text(backward).c_str());
}

}  // namespace

int main(int count, char** arguments) { return ladder::main(count, arguments, run); }
