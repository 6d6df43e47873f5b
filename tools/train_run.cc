// SPDX-License-Identifier: Apache-2.0
// The loop over steps, with evaluations, checkpoints (written by a thread), profiles and the final
// report.
#include "train_run.h"

#include <fmt/format.h>

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <future>
#include <numbers>

#include "coda/backend.h"
#include "coda/device.h"
#include "coda/error.h"
#include "coda/messages.h"
#include "coda/model_runner.h"
#include "coda/models.h"
#include "coda/row_blocks.h"
#include "model_flags.h"
#include "progress.h"
#include "report.h"
#include "stop_request.h"

namespace coda::tools {
namespace {

namespace fs = std::filesystem;
constexpr int kInterrupted = 130;
constexpr int64_t kQuickTokens = 16384;  // of the held-out text, for the marks on the curve
constexpr int64_t kStepsBeforeProfile = 4;
constexpr int64_t kWorthTheContext = 2;  // the final windows overlap by half

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

class Run {
 public:
  explicit Run(RunPlan plan)
      : plan_(std::move(plan)),
        backend_(plan_.backend),
        free_at_start_(backend_->free_bytes()),
        trainer_(std::move(plan_.step), plan_.data.train, *backend_),
        progress_(first_step(), plan_.settings.schedule.total_steps,
                  plan_.settings.tokens_of_step(), most_tokens(), [this] { return memory(); }) {}

  int run() {
    {
      const StopRequest stop;  // exists before the first checkpoint
      start();
      if (!train(stop)) return kInterrupted;
    }
    if (is_first()) finish();
    return 0;
  }

 private:
  // Tokens per second if all GPUs did GEMMs at their peak all the time; 0 on CPUs and on GPUs
  // whose peak is not known.
  double most_tokens() const {
    if (backend_->is_on_host()) return 0;
    return world() * peak_flops(describe_gpu()) /
           training_flops_of_token(plan_.settings.model, plan_.settings.sequence);
  }

  // Memory that the run uses: the GPU's, or the host's.
  int64_t memory() const {
    return backend_->is_on_host() ? resident_bytes() : free_at_start_ - backend_->free_bytes();
  }

  static bool is_due(int64_t step, int64_t every) { return every > 0 && step % every == 0; }
  int64_t first_step() const { return plan_.state.step; }
  int world() const { return plan_.communicator == nullptr ? 1 : plan_.communicator->world(); }
  bool is_first() const { return plan_.communicator == nullptr || plan_.communicator->rank() == 0; }
  bool has_held_out() const { return plan_.data.held_out.size() > 1; }

  // Runs all steps and saves their last checkpoint; false if asked to stop. After that, the process
  // may be killed at any moment.
  bool train(const StopRequest& stop) {
    const int64_t steps = plan_.settings.schedule.total_steps;
    while (steps_done() < steps) {
      step(stop);
      const int64_t done = steps_done();
      if (done == steps) break;
      if (trainer_.started_steps() > 0) continue;  // nothing is due meanwhile
      if (is_due(done, plan_.eval_every)) {
        say_dropped();
        evaluate_quickly();
      }
      if (is_to_stop(stop)) break;
      if (is_due(done, plan_.save_every)) save();
    }
    say_dropped();
    if (!is_to_stop(stop)) evaluate_quickly();
    save();
    finish_saving();
    if (!is_to_stop(stop)) return true;
    say_stopped();
    return false;
  }

  // Several processes stop at the same step: a request to one reaches all in a step's report.
  bool is_to_stop(const StopRequest& stop) const {
    return world() == 1 ? stop.is_made() : all_stop_;
  }

  // Restores a checkpoint, or saves the first one.
  void start() {
    const ModelTrainSettings& s = plan_.settings;
    if (is_first()) {
      claim_folder();
      remove_debris(plan_.out);
    }
    if (plan_.communicator != nullptr)
      plan_.communicator->set_remedy("continue from the newest checkpoint in " +
                                     printable(plan_.out));
    fmt::print("{}: {} parameters, {}\n", description_of(s.model),
               count_text(static_cast<double>(trainer_.model().parameter_count())),
               s.storage == DType::bf16 ? "bf16 with fp32 master weights" : "fp32");
    fmt::print("learning rate up to {}, {} steps\n", s.schedule.peak, s.schedule.total_steps);
    fmt::print("{}: {} tokens to train on, {} held out; {} a step ({} sequences of {})\n",
               plan_.data.train.source, plan_.data.train.size(), plan_.data.held_out.size(),
               s.tokens_of_step(), s.batch * s.accumulate, s.sequence);
    if (!backend_->is_on_host() && is_first()) fmt::print("on {}\n", describe_gpu());
    if (world() > 1) {
      fmt::print("{} processes, {} sequences of a microbatch each\n", world(), s.own_batch());
      fmt::print("{}\n", trainer_.exchange_text());
    }
    const Session& session = trainer_.session();
    if (!session.plan().loops.empty()) {
      fmt::print("logits in {}\n", row_blocks_text(session.plan(), 0, session.sizes()));
    }
    if (s.eight_bits != EightBits::none || s.recomputed_layers != 0)
      for (const std::string& note : session.plan().notes) fmt::print("{}\n", note);
    if (plan_.resumed) {
      restore(*plan_.resumed, trainer_);
      fmt::print("going on from {}\n", printable(*plan_.resumed));
      if (first_step() == s.schedule.total_steps)
        fmt::print(
            "the run had finished: all of its {} steps are done; to train on, add --steps "
            "with a larger number\n",
            first_step());
      return;
    }
    if (!plan_.init.empty()) {
      load_weights(plan_.init, trainer_.weights);
      trainer_.restored();
    }
    save();
  }

  // Prints how many choices of sparse experts were dropped in the last microbatch of this process.
  void say_dropped() {
    const ModelTrainSettings& s = plan_.settings;
    if (s.expert_capacity == 0 || !is_first() || trainer_.step_count == first_step()) return;
    const int64_t choices = expert_choices_of(s.model) * s.own_batch() * s.sequence;
    const int64_t dropped = trainer_.dropped();
    progress_.note(fmt::format("step {}: experts had no room for {} of {} choices ({:.2f} %)",
                               trainer_.step_count, dropped, choices,
                               100 * static_cast<double>(dropped) / static_cast<double>(choices)));
  }

  // Called when the new run has a checkpoint. Its step is 0, so other checkpoints belong to the old
  // run.
  void remove_the_run_before() const {
    for (auto old = newest_checkpoint(plan_.out); old && *old != checkpoint_;
         old = newest_checkpoint(plan_.out)) {
      fs::remove_all(*old);
    }
  }

  // Adds to an error of a running training where to resume it.
  void naming_the_last_checkpoint(const auto& action) {
    try {
      action();
    } catch (const Error& error) {
      if (saving_.valid()) saving_.wait();
      const auto last = newest_checkpoint(plan_.out);
      throw Error(std::string(error.what()) + "; the last good checkpoint is " +
                  (last ? printable(*last) : "none"));
    }
  }

  int64_t steps_done() const { return trainer_.step_count - trainer_.started_steps(); }

  // On a GPU, the next step is started before this one's report arrives, unless something is due
  // between them.
  void step(const StopRequest& stop) {
    if (saving_.valid() && saving_.wait_for(std::chrono::seconds(0)) == std::future_status::ready)
      finish_saving();
    naming_the_last_checkpoint([&] {
      trainer_.asks_to_stop = stop.is_made();
      if (trainer_.started_steps() == 0 && trainer_.step_count + 1 == profiled_step())
        return profile_step();
      if (trainer_.started_steps() == 0) trainer_.start_step();
      const int64_t started = trainer_.step_count;
      const bool is_last = started == plan_.settings.schedule.total_steps;
      if (!is_to_stop(stop) && !backend_->is_on_host() && !is_last &&
          started + 1 != profiled_step() && !is_due(started, plan_.eval_every) &&
          !is_due(started, plan_.save_every)) {
        trainer_.start_step();
      }
      take(trainer_.finish_step());
    });
  }

  void take(const StepReport& report) {
    all_stop_ |= report.asks_to_stop;
    plan_.state.train_losses.push_back({steps_done(), report.loss});
    progress_.step(steps_done(), report.loss);
  }

  // The first step after memory, caches and clocks have settled, or the last step; -1: none.
  int64_t profiled_step() const {
    if (plan_.profile.empty()) return -1;
    return std::min(first_step() + kStepsBeforeProfile + 1, plan_.settings.schedule.total_steps);
  }

  void profile_step() {
    const auto start = std::chrono::steady_clock::now();
    const Trainer::Profiled profiled = trainer_.profile();
    if (is_first()) {
      write_chrome_trace(plan_.profile, profiled.events,
                         fmt::format("coda train, step {}", steps_done()));
    }
    progress_.exclude(seconds_since(start));
    take(profiled.report);
    if (is_first())
      progress_.note(fmt::format("step {}: what it did when is in {}", steps_done(),
                                 printable(plan_.profile)));
  }

  // A thread writes the checkpoint while training continues, if steps do not change what it writes.
  // All processes fetch.
  void save() {
    const auto start = std::chrono::steady_clock::now();
    finish_saving();
    plan_.state.step = trainer_.step_count;
    naming_the_last_checkpoint([this] {
      const auto write =
          checkpoint_writer(plan_.out, plan_.settings.model, trainer_, plan_.state, plan_.files);
      trainer_.require_sound_loss();
      if (is_first()) claim_folder();
      if (is_first()) saving_ = std::async(std::launch::async, write);
    });
    if (!trainer_.fetches_copies()) finish_saving();
    progress_.exclude(seconds_since(start));
  }

  // Waits for the checkpoint that is being written.
  void finish_saving() {
    if (!saving_.valid()) return;
    naming_the_last_checkpoint([this] {
      checkpoint_ = saving_.get();
      claim_folder();  // it may have been renamed during the write
      if (plan_.overwrite) remove_the_run_before();
      if (plan_.communicator != nullptr)
        plan_.communicator->set_remedy("the last good checkpoint is " + printable(checkpoint_));
    });
  }

  // Creates the run's folder if there is none. If the folder was removed or renamed during the run,
  // also locks the new folder and prints a notice.
  void claim_folder() {
    struct stat now = {};
    const bool is_there = ::stat(plan_.out.c_str(), &now) == 0;
    const bool is_same = is_there && folder_.st_ino == now.st_ino && folder_.st_dev == now.st_dev;
    if (is_same) return;
    if (folder_.st_ino != 0) {
      lock_of_new_folder_.emplace(plan_.out);
      progress_.note(fmt::format(
          "{}: the run's folder was removed or renamed; it is made anew, and has checkpoints from "
          "step {} on",
          printable(plan_.out), plan_.state.step));
    }
    std::error_code ignored;  // the next save reports the error
    fs::create_directories(plan_.out, ignored);
    ::stat(plan_.out.c_str(), &folder_);
  }

  // Prints to the output, or to stderr if the output is lost.
  void say_stopped() {
    if (!is_first()) return;
    const std::string text =
        fmt::format("stopped after step {}, saved {}; continue with: {}", trainer_.step_count,
                    printable(checkpoint_), plan_.go_on_with);
    progress_.note(text);
    if (is_output_lost()) fmt::print(stderr, "coda: {}\n", text);
  }

  ModelRunner& evaluator() {
    if (!evaluator_) {
      evaluator_ =
          std::make_unique<ModelRunner>(plan_.settings.model,
                                        ModelRunnerOptions{.task = ModelTask::losses,
                                                           .storage = plan_.settings.storage,
                                                           .batch = plan_.settings.own_batch(),
                                                           .sequence = plan_.settings.sequence},
                                        *backend_);
      evaluator_->bind(trainer_.parameters());
    }
    return *evaluator_;
  }

  Evaluation evaluate(const Tokens& tokens, int64_t stride) {
    return coda::evaluate(evaluator(), tokens, stride);
  }

  void evaluate_quickly() {
    if (!has_held_out()) return;
    trainer_.gather_weights();  // by all processes
    if (!is_first()) return;
    auto& marks = plan_.state.held_out_losses;
    if (!marks.empty() && marks.back().step == trainer_.step_count) return;
    const auto start = std::chrono::steady_clock::now();
    const Tokens& held_out = plan_.data.held_out;
    const double loss = evaluate(held_out.slice(0, std::min(held_out.size(), kQuickTokens)),
                                 plan_.settings.sequence)
                            .loss();
    progress_.exclude(seconds_since(start));
    if (std::isfinite(loss)) marks.push_back({trainer_.step_count, loss});
    const std::string part =
        held_out.size() > kQuickTokens ? fmt::format(" of its first {} tokens", kQuickTokens) : "";
    progress_.note(fmt::format("step {}: held-out loss {:.4f}{}", trainer_.step_count, loss, part));
  }

  void finish() {
    progress_.note("");
    LossCurve curve;
    curve.title = fmt::format("{} parameters on {}",
                              count_text(static_cast<double>(trainer_.model().parameter_count())),
                              plan_.data.train.source);
    curve.train = plan_.state.train_losses;
    curve.held_out = plan_.state.held_out_losses;
    fmt::print("{}\n", terminal_plot(curve));
    naming_the_last_checkpoint([&] { write_svg_plot(plan_.out / "loss_curve.svg", curve); });
    print_sample();
    print_held_out();
    if (plan_.report) {
      print_fusion(plan_.settings, trainer_.parameters(), plan_.data.train, *backend_);
    }
    fmt::print("\ncheckpoint  {}\nloss curve  {}\n", printable(checkpoint_),
               printable(plan_.out / "loss_curve.svg"));
  }

  void print_sample() {
    if (plan_.sample_tokens == 0 || !plan_.is_text || !plan_.text.has_text()) return;
    TextGenerator generator(plan_.settings.model, plan_.settings.storage, plan_.settings.sequence,
                            trainer_.parameters(), *backend_);
    fmt::print("a sample of its text:\n----\n{}", plan_.prompt);
    const std::vector<int32_t> prompt = plan_.text.prompt(plan_.prompt);
    plan_.text.print(prompt, true, [&](const auto& on_token) {
      generator.generate(prompt, plan_.sample_tokens, {.seed = plan_.settings.seed}, on_token);
    });
    fmt::print("\n----\n\n");
  }

  void print_held_out() {
    if (!has_held_out()) return;
    const int64_t stride = std::max<int64_t>(1, plan_.settings.sequence / kWorthTheContext);
    const Evaluation result = evaluate(plan_.data.held_out, stride);
    // The first token, which is not predicted, counts as 8 bits.
    const double bits =
        (result.total_loss / std::numbers::ln2 + 8) / static_cast<double>(result.predicted + 1);
    const bool is_bytes = plan_.is_text && plan_.text.is_bytes();
    if (is_bytes && plan_.report) {
      print_compression(plan_.data, bits);
    } else {
      fmt::print(
          "held-out loss {:.4f} of all its tokens, in windows that overlap by half; perplexity "
          "{:.3f}{}\n",
          result.loss(), std::exp(result.loss()),
          is_bytes ? fmt::format(", {:.3f} bits a byte", bits) : "");
    }
  }

  RunPlan plan_;
  std::shared_ptr<Backend> backend_;
  int64_t free_at_start_;
  ModelTrainer trainer_;
  std::unique_ptr<ModelRunner> evaluator_;
  Progress progress_;
  fs::path checkpoint_;
  struct stat folder_ = {};  // plan_.out when the last checkpoint was written
  std::optional<RunLock> lock_of_new_folder_;
  std::future<fs::path> saving_;  // the checkpoint being written
  bool all_stop_ = false;         // one of several processes is asked to stop
};

}  // namespace

int run_training(RunPlan plan) { return Run(std::move(plan)).run(); }

}  // namespace coda::tools
