// SPDX-License-Identifier: Apache-2.0
// Text a token at a time, with keys and values kept. Two plans of the same weights: one reads many
// tokens at once and leaves their keys and values; one reads a token behind those that are kept,
// and has its logits. Both are derived from the model's graph (models/with_past.h).
#include <algorithm>
#include <cstring>

#include "coda/error.h"
#include "coda/model_runner.h"
#include "models/with_past.h"
#include "train/gradient_session.h"
#include "train/sampling.h"

namespace coda {
namespace {

// So few tokens are read one after another: a plan for them would take longer to make.
constexpr size_t kFewTokens = 8;

ModelRunnerOptions runner_options(DType storage, int64_t sequence) {
  return {.task = ModelTask::logits, .storage = storage, .sequence = sequence};
}

// Rows [to, to + rows) of one view are rows [0, rows) of the other.
void copy_rows(const TensorView& from, int64_t rows, const TensorView& into, int64_t to) {
  invariant(from.dtype == into.dtype && from.cols == into.cols && to + rows <= into.rows,
            "keys and values have the shape of what is kept");
  const int64_t size = size_of(from.dtype);
  for (int64_t i = 0; i < rows; ++i) {
    std::memcpy(static_cast<char*>(into.data) + (to + i) * into.row_stride * size,
                static_cast<const char*>(from.data) + i * from.row_stride * size,
                static_cast<size_t>(from.cols * size));
  }
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
        backend_(backend) {
    check_sizes(config, 1, context);
    if (backend.is_on_host()) {
      make_step();
    } else {
      step_ = std::make_unique<ModelRunner>(config, runner_options(storage, context), backend);
    }
    step_->bind(weights_);
  }

  ModelRunner& runner() { return *step_; }
  bool keeps_past() const { return !layers_.empty(); }

  std::vector<float> next_logits(std::span<const int32_t> tokens) {
    check_prompt(tokens, step_->model().vocabulary);
    const size_t start = context_start(tokens.size(), static_cast<size_t>(context_));
    const auto seen = tokens.subspan(start);
    size_t known = 0;
    while (known < kept_.size() && known + 1 < seen.size() && kept_[known] == seen[known]) ++known;
    kept_.resize(known);
    if (seen.size() - known > kFewTokens + 1) read_at_once(seen.first(seen.size() - 1));
    while (kept_.size() < seen.size()) read(seen[kept_.size()]);
    return step_->logits(0);
  }

 private:
  void make_step() {
    const auto model = build_model(config_, {.storage = storage_, .positions = context_});
    ModelTaskGraph task = make_task(config_, runner_options(storage_, 1), backend_.rates());
    task.model = with_past(*model, storage_);
    task.options.sizes["P"] = context_;
    layers_ = keys_and_values(*task.model);
    task.request.outputs = layers_;
    task.request.outputs.push_back({"logits", task.model->logits});
    step_ = std::make_unique<ModelRunner>(std::move(task), runner_options(storage_, 1), backend_);
  }

  TensorView past(const NamedValue& layer) const {
    return step_->session().view("past_" + layer.name);
  }
  void set(const char* input, int32_t value) {
    if (has_tensor(step_->session().plan(), input))
      *static_cast<int32_t*>(step_->session().view(input).data) = value;
  }

  // One token behind those that are kept.
  void read(int32_t id) {
    const auto place = static_cast<int32_t>(kept_.size());
    set("positions", place);
    set("length", place);
    step_->forward(std::span(&id, 1), {});
    for (const NamedValue& layer : layers_)
      copy_rows(step_->session().view(layer.name), 1, past(layer), place);
    kept_.push_back(id);
  }

  // All of `tokens`, from the first on.
  void read_at_once(std::span<const int32_t> tokens) {
    const auto count = static_cast<int64_t>(tokens.size());
    if (!reader_ || reader_->options().sequence != count) {
      ModelTaskGraph task = make_task(config_, runner_options(storage_, count), backend_.rates());
      task.request.outputs = keys_and_values(*task.model);
      reader_ =
          std::make_unique<ModelRunner>(std::move(task), runner_options(storage_, count), backend_);
      reader_->bind(weights_);
    }
    reader_->forward(tokens, {});
    for (const NamedValue& layer : layers_)
      copy_rows(reader_->session().view(layer.name), count, past(layer), 0);
    kept_.assign(tokens.begin(), tokens.end());
  }

  ModelConfig config_;
  DType storage_;
  int64_t context_;
  TensorMap weights_;
  Backend& backend_;
  std::unique_ptr<ModelRunner> step_;    // of one token; on a GPU of a whole context
  std::unique_ptr<ModelRunner> reader_;  // of many
  std::vector<NamedValue> layers_;       // keys and values of each; none on a GPU
  std::vector<int32_t> kept_;            // tokens whose keys and values are kept
};

TextGenerator::TextGenerator(const ModelConfig& config, DType storage, int64_t context,
                             const TensorMap& weights, Backend& backend)
    : impl_(std::make_unique<Impl>(config, storage, context, weights, backend)) {}
TextGenerator::~TextGenerator() = default;

void TextGenerator::generate(std::vector<int32_t> prompt, int64_t count,
                             const SamplingOptions& options,
                             const std::function<bool(int32_t)>& on_token) {
  if (!impl_->keeps_past())
    return coda::generate(impl_->runner(), std::move(prompt), count, options, on_token);
  for (int64_t i = 0; i < count; ++i) {
    const int32_t id = pick_token(next_logits(prompt), options, static_cast<uint64_t>(i));
    if (!on_token(id)) return;
    prompt.push_back(id);
  }
}

std::vector<float> TextGenerator::next_logits(std::span<const int32_t> tokens) {
  require(impl_->keeps_past(), "next_logits needs a backend on the host");
  return impl_->next_logits(tokens);
}

}  // namespace coda
