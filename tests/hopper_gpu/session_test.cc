// SPDX-License-Identifier: Apache-2.0
// Whole blocks and models on the GPU through a session, with the public device tensors: forward and
// backward give the same bits at every run, with poisoned outputs and memory, and from a CUDA graph
// that captured a run. (That they are right: plan_check_test.cc.)
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>

#include "coda/device.h"
#include "cpu/program_run.h"
#include "hopper/context.h"
#include "hopper/dynamic_library.h"
#include "hopper/hopper_backend.h"
#include "plan/plain_graph.h"
#include "runtime/session.h"

namespace coda {
namespace {

struct Case {
  const char* name;
  std::function<void(Block&, const LlamaSizes&)> build;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"llama_block", [](Block& b, const LlamaSizes& s) { llama_block(b, s); }},
      {"llama_model", [](Block& b, const LlamaSizes& s) { llama_model(b, 2, true, s); }},
      {"gpt2_model", [](Block& b, const LlamaSizes& s) { gpt2_model(b, 2, s); }},
  };
  return all;
}

// Nothing is a multiple of a tile; rows start at multiples of 16 bytes but for the logits'.
constexpr int64_t kTokens = 70;
LlamaSizes sizes_of_model() {
  return {.hidden = 192,
          .heads = 3,
          .kv_heads = 1,
          .head_dim = 64,
          .mlp = 200,
          .vocab = 131,
          .sequence = 35};
}

// Unit activations, weights scaled by their depth, norms near 1, rotation tables; numbers that the
// storage type has.
Values inputs_of(const Block& b, const DimValues& sizes, uint64_t seed) {
  Values inputs = random_inputs(b.graph, sizes, seed, 16);  // GPT-2 has 16 positions here
  for (int id = 0; id < b.graph.size(); ++id) {
    const Node& n = b.graph.node(id);
    if (n.op != Op::input || n.dtype == DType::i32) continue;
    const bool is_parameter = n.kind == InputKind::parameter;
    const double depth = std::sqrt(static_cast<double>(n.shape.cols.evaluate(sizes)));
    std::vector<double>& data = inputs[n.name];
    for (size_t i = 0; i < data.size(); ++i) {
      double& x = data[i];
      if (is_parameter) x = n.shape.is_vector() ? 1 + 0.1 * x : x / depth;
      if (n.name == "cos") x = std::cos(0.37 * static_cast<double>(i));
      if (n.name == "sin") x = std::sin(0.37 * static_cast<double>(i));
      if (n.name == "scale") x = 1;
      uint16_t narrow = 0;
      testing::write_element(DType::bf16, &narrow, 0, x);
      x = testing::read_element(DType::bf16, &narrow, 0);
    }
  }
  return inputs;
}

// The caller's tensors of a plan, on the device; outputs also on the host.
class BoundTensors {
 public:
  BoundTensors(Session& session, const Values& inputs, const Stream& stream) : stream_(stream) {
    for (const PlanTensor& t : session.plan().tensors) {
      const bool is_callers = t.role == TensorRole::input || t.role == TensorRole::parameter ||
                              t.role == TensorRole::output;
      if (!is_callers || !t.view_of.empty()) continue;
      const PhysicalShape shape = physical_shape(t.decl, session.sizes());
      std::vector<std::byte>& bytes = bytes_[t.decl.name];
      bytes.resize(static_cast<size_t>(shape.rows * shape.cols * size_of(t.decl.dtype)));
      const auto given = inputs.find(t.decl.name);
      for (int64_t i = 0; i < shape.rows * shape.cols; ++i) {
        testing::write_element(t.decl.dtype, bytes.data(), i,
                               given == inputs.end() ? NAN : given->second[i]);
      }
      const TensorView view = dense_view(bytes.data(), t.decl.dtype, shape.rows, shape.cols);
      if (t.role == TensorRole::output) outputs_[t.decl.name] = view;
      DeviceTensor& on_device = on_device_[t.decl.name];
      on_device = DeviceTensor(view.dtype, view.rows, view.cols, stream);
      on_device.upload(view, stream);
      session.bind(t.decl.name, on_device.view());
    }
  }

  void poison_outputs() {
    for (const auto& [name, view] : outputs_) on_device_.at(name).fill_bytes(0xff, stream_);
  }

  // Outputs and gradients by name.
  Values outputs() {
    Values values;
    for (const auto& [name, view] : outputs_) {
      on_device_.at(name).download(view, stream_);
      for (int64_t i = 0; i < view.size(); ++i)
        values[name].push_back(testing::read_element(view.dtype, view.data, i));
    }
    return values;
  }

 private:
  const Stream& stream_;
  std::map<std::string, std::vector<std::byte>> bytes_;
  std::map<std::string, TensorView> outputs_;  // on the host
  std::map<std::string, DeviceTensor> on_device_;
};

Plan plan_of(const Case& c, Block& b, const DimValues& sizes) {
  b.storage = DType::bf16;
  c.build(b, sizes_of_model());
  CompileOptions options;
  options.sizes = sizes;
  options.storage = DType::bf16;
  options.rates = h200_rates();
  return compile(b.graph, b.request, options).plan;
}

class SessionOnGpu : public ::testing::TestWithParam<size_t> {
 protected:
  void SetUp() override {
    const std::string why = why_no_gpu();
    if (!why.empty()) GTEST_SKIP() << "skipped, no GPU: " << why;
  }
};

// The driver's calls for CUDA graphs, which the library leaves to its caller.
struct GraphApi {
  int (*begin)(void*, int);
  int (*end)(void*, void**);
  int (*instantiate)(void**, void*, unsigned long long);
  int (*launch)(void*, void*);

  GraphApi() {
    const hopper::DynamicLibrary library(hopper::driver_library());
    library.load(begin, "cuStreamBeginCapture_v2");
    library.load(end, "cuStreamEndCapture");
    library.load(instantiate, "cuGraphInstantiateWithFlags");
    library.load(launch, "cuGraphLaunch");
  }
};

TEST_P(SessionOnGpu, EveryRunAndACapturedOneGiveTheSameBits) {
  const DimValues sizes{{"M", kTokens}};
  Block b;
  const Plan plan = plan_of(cases()[GetParam()], b, sizes);
  const Stream stream = Stream::make();
  const auto gpu = hopper::make_hopper_backend();
  gpu->use_stream(stream);
  Session session(plan, *gpu, sizes, {.timing = false, .poison = true});
  BoundTensors tensors(session, inputs_of(b, sizes, 7), stream);
  const auto run = [&] {
    session.forward();
    session.backward();
  };
  const auto expect_same = [&](const Values& first, const char* what) {
    for (const auto& [name, values] : tensors.outputs())
      EXPECT_EQ(values, first.at(name)) << name << " of " << what;
  };
  run();
  const Values first = tensors.outputs();
  for (const auto& [name, values] : first) {
    for (const double x : values) ASSERT_TRUE(std::isfinite(x)) << name;
  }
  for (int i = 0; i < 3; ++i) {
    tensors.poison_outputs();
    run();
    expect_same(first, "a further run");
  }
  const hopper::Context context;
  const hopper::Context::Scope scope(context);
  const GraphApi api;
  void* graph = nullptr;
  void* executable = nullptr;
  hopper::check_driver(api.begin(stream.handle(), 0), "capturing");
  run();
  hopper::check_driver(api.end(stream.handle(), &graph), "capturing");
  hopper::check_driver(api.instantiate(&executable, graph, 0), "making a graph");
  for (int i = 0; i < 3; ++i) {
    tensors.poison_outputs();
    hopper::check_driver(api.launch(executable, stream.handle()), "running a graph");
    expect_same(first, "a captured run");
  }
}

INSTANTIATE_TEST_SUITE_P(Models, SessionOnGpu, ::testing::Range(size_t{0}, cases().size()),
                         [](const auto& info) { return cases()[info.param].name; });

}  // namespace
}  // namespace coda
