// SPDX-License-Identifier: Apache-2.0
// Generates text with a cache of keys and values, by two plans of the same weights: one reads many
// tokens at once and stores their keys and values; the other reads one token after the cached ones
// and returns its logits. Both are derived from the model's graph (models/with_past.h).
#include <algorithm>
#include <array>
#include <map>

#include "coda/error.h"
#include "coda/model_runner.h"
#include "models/with_past.h"
#include "runtime/copy_matrix.h"
#include "train/gradient_session.h"
#include "train/sampling.h"

namespace coda {
namespace {

// Up to this many tokens are read one by one, because compiling a plan for them would take longer.
constexpr size_t kFewTokens = 8;

ModelRunnerOptions runner_options(DType storage, int64_t sequence) {
  return {.task = ModelTask::logits, .storage = storage, .sequence = sequence};
}

}  // namespace

class TextGenerator::Impl {
 public:
  Impl(const ModelConfig& config, DType storage, int64_t context, const TensorMap& weights,
       Backend& backend)
      : config_(config),
        storage_(storage),
        context_(context),
        weights_(weights),
        backend_(backend),
        copies_(backend, storage) {
    check_sizes(config, 1, context);
    make_step();
    step_->bind(weights_);
  }

  std::vector<float> next_logits(std::span<const int32_t> tokens) {
    check_prompt(tokens, step_->model().vocabulary);
    const size_t start = context_start(tokens.size(), static_cast<size_t>(context_));
    const auto seen = tokens.subspan(start);
    use_rope_of(std::ssize(seen));
    size_t known = 0;
    while (known < kept_.size() && known + 1 < seen.size() && kept_[known] == seen[known]) ++known;
    kept_.resize(known);
    if (seen.size() - known > kFewTokens + 1) read_at_once(seen.first(seen.size() - 1));
    while (kept_.size() < seen.size()) read(seen[kept_.size()]);
    return step_->logits(0);
  }

 private:
  // Copies rows in a backend's memory. If that is not host memory, a program copies; it is prepared
  // once for each size.
  class RowCopies {
   public:
    RowCopies(Backend& backend, DType type) : backend_(backend) {
      const std::string element = ":" + std::string(name_of(type));
      program_ = parse_program("program keep_rows {\n  store(kept" + element + ", tile(made[R, C]" +
                               element + "))\n}");
    }

    // Rows [to, to + rows) of one view become rows [0, rows) of the other.
    void copy(TensorView from, int64_t rows, TensorView into, int64_t to) {
      invariant(from.dtype == into.dtype && from.cols == into.cols && to + rows <= into.rows,
                "keys and values have the shape of what is kept");
      into.data = static_cast<std::byte*>(into.data) + to * into.row_stride * size_of(into.dtype);
      from.rows = into.rows = rows;
      if (backend_.is_on_host()) return copy_matrix(from, into);
      std::unique_ptr<Kernel>& kernel = kernels_[{rows, from.cols}];
      if (!kernel) kernel = backend_.prepare(program_, {{"R", rows}, {"C", from.cols}});
      const bool made_is_first = program_.tensors[0].name == "made";
      kernel->run(made_is_first ? std::array{from, into} : std::array{into, from});
    }

   private:
    Backend& backend_;
    Program program_;
    std::map<std::pair<int64_t, int64_t>, std::unique_ptr<Kernel>> kernels_;
  };

  std::unique_ptr<ModelGraph> plain_model() const {
    return build_model(config_,
                       {.storage = storage_, .positions = context_, .length = rope_length_});
  }

  void make_step() {
    const auto model = plain_model();
    ModelTaskGraph task = make_task(config_, runner_options(storage_, 1), backend_.rates());
    task.model = with_past(*model, storage_);
    task.options.sizes["P"] = context_;
    layers_ = keys_and_values(*task.model);
    task.request.outputs = layers_;
    task.request.outputs.push_back({"logits", task.model->logits});
    step_ = std::make_unique<ModelRunner>(std::move(task), runner_options(storage_, 1), backend_);
  }

  // Clears the cache if the RoPE angles change.
  void use_rope_of(int64_t length) {
    const int64_t of = rope_length_of(config_, length);
    if (of == rope_length_) return;
    rope_length_ = of;
    step_->set_tables(plain_model()->tables);
    reader_.reset();
    kept_.clear();
  }

  TensorView past(const NamedValue& layer) const {
    return step_->session().view("past_" + layer.name);
  }
  void set(const char* input, int32_t value) {
    if (has_tensor(step_->session().plan(), input))
      backend_.copy_in(dense_view(&value, DType::i32, 1, 1), step_->session().view(input));
  }

  // Reads one token after the cached ones.
  void read(int32_t id) {
    const auto place = static_cast<int32_t>(kept_.size());
    set("positions", place);
    set("length", place);
    step_->forward(std::span(&id, 1), {});
    for (const NamedValue& layer : layers_)
      copies_.copy(step_->session().view(layer.name), 1, past(layer), place);
    kept_.push_back(id);
  }

  // Reads all of `tokens` from the first on.
  void read_at_once(std::span<const int32_t> tokens) {
    const auto count = static_cast<int64_t>(tokens.size());
    if (!reader_ || reader_->options().sequence != count) {
      ModelRunnerOptions options = runner_options(storage_, count);
      options.rope_length = rope_length_;
      ModelTaskGraph task = make_task(config_, options, backend_.rates());
      task.request.outputs = keys_and_values(*task.model);
      reader_ = std::make_unique<ModelRunner>(std::move(task), options, backend_);
      reader_->bind(weights_);
    }
    reader_->forward(tokens, {});
    for (const NamedValue& layer : layers_)
      copies_.copy(reader_->session().view(layer.name), count, past(layer), 0);
    kept_.assign(tokens.begin(), tokens.end());
  }

  ModelConfig config_;
  DType storage_;
  int64_t context_;
  int64_t rope_length_ = 1;  // ModelOptions::length of the tokens read
  TensorMap weights_;
  Backend& backend_;
  RowCopies copies_;
  std::unique_ptr<ModelRunner> step_;    // reads one token
  std::unique_ptr<ModelRunner> reader_;  // reads many tokens
  std::vector<NamedValue> layers_;       // keys and values of each layer
  std::vector<int32_t> kept_;            // tokens in the cache
};

TextGenerator::TextGenerator(const ModelConfig& config, DType storage, int64_t context,
                             const TensorMap& weights, Backend& backend)
    : impl_(std::make_unique<Impl>(config, storage, context, weights, backend)) {}
TextGenerator::~TextGenerator() = default;

void TextGenerator::generate(std::vector<int32_t> prompt, int64_t count,
                             const SamplingOptions& options,
                             const std::function<bool(int32_t)>& on_token) {
  for (int64_t i = 0; i < count; ++i) {
    const int32_t id = pick_token(next_logits(prompt), options, static_cast<uint64_t>(i));
    if (!on_token(id)) return;
    prompt.push_back(id);
  }
}

std::vector<float> TextGenerator::next_logits(std::span<const int32_t> tokens) {
  return impl_->next_logits(tokens);
}

}  // namespace coda
