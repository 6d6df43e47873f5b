// SPDX-License-Identifier: Apache-2.0
#include "measure/measure_on_gpu.h"

#include <algorithm>
#include <cmath>
#include <list>

#include "coda/error.h"
#include "gpu/gpu_backend.h"
#include "gpu/jit/parallel_for.h"
#include "gpu/lower.h"
#include "measure/one_by_one.h"
#include "measure/plan_run.h"
#include "measure/program_run.h"
#include "measure/random_fill.h"

namespace coda::measure {
namespace {

constexpr double kL2Bytes = 60e6;  // and some more
constexpr unsigned kMostSets = 48;

std::vector<Candidate*> all_of(std::vector<Candidate>& candidates) {
  std::vector<Candidate*> result;
  for (Candidate& candidate : candidates) result.push_back(&candidate);
  return result;
}

Candidate& fastest(std::vector<Candidate>& candidates) {
  return *std::min_element(candidates.begin(), candidates.end(),
                           [](const Candidate& a, const Candidate& b) {
                             return a.sustained.median_ms < b.sustained.median_ms;
                           });
}

// When a set's turn comes again, the L2 cache has seen four times what it holds.
unsigned sets_for(double bytes) {
  return std::clamp(static_cast<unsigned>(4 * kL2Bytes / bytes) + 1, bytes > 2e9 ? 2U : 3U,
                    kMostSets);
}

// All kernels that will be timed, compiled at once.
void compile(gpu::GpuState& state, const Program& program, const DimValues& sizes,
             const std::vector<std::optional<gpu::GemmConfig>>& choices,
             gpu::LowerOptions options) {
  gpu::parallel_for(choices.size(), 0, [&](size_t i) {
    gpu::LowerOptions own = options;
    own.choice = choices[i];
    for (const gpu::KernelLaunch& launch : gpu::lower(program, sizes, own)) {
      state.kernels->compile(program.name, launch.source);
    }
  });
}

// What MeasureOptions::beside asks for.
class Beside {
 public:
  Beside(Gpu& gpu, const Program& program, const DimValues& sizes, unsigned sets, double bytes)
      : plan_(one_by_one(program)), bytes_(static_cast<size_t>(bytes / 2) + 1) {
    const gpu::GpuState& state = *gpu.state();
    if (plan_) {
      backend_ = gpu::make_gpu_backend();
      backend_->use_stream(Stream::of(state.stream));
      try {
        const auto fill = [&](const TensorView& view, uint64_t seed, float size, uint32_t limit) {
          fill_random(*gpu.state(), view, seed, size, limit);
        };
        run_.emplace(*plan_, std::vector<ParameterCopy>(), *backend_, sizes, fill);
        candidates_.push_back({kOneByOne, [this](unsigned) { run_->run(); }, 1});
      } catch (const Error&) {
        // No kernels take one of the operations alone.
      }
    }
    for (unsigned i = 0; i < 2 * sets; ++i)
      memory_.emplace_back(state.context, bytes_, state.stream, "a copy", gpu::Allocation::plain);
    candidates_.push_back({kCopy,
                           [this, sets, stream = state.stream](unsigned set) {
                             const size_t pair = 2 * (set % sets);
                             gpu::check_driver(gpu::driver().memcpy_dtod_async(
                                                   memory_[pair].address(),
                                                   memory_[pair + 1].address(), bytes_, stream),
                                               "copying");
                           },
                           sets});
  }
  Beside(const Beside&) = delete;  // the candidates refer to it
  Beside& operator=(const Beside&) = delete;

  std::vector<Candidate>& candidates() { return candidates_; }

 private:
  std::optional<Plan> plan_;
  size_t bytes_;
  std::unique_ptr<Backend> backend_;
  std::optional<PlanRun> run_;
  std::vector<gpu::DeviceMemory> memory_;
  std::vector<Candidate> candidates_;
};

}  // namespace

void time_on_gpu(Timer& timer, const std::vector<Candidate*>& candidates,
                 const MeasureOptions& options) {
  const GpuTiming& timing = options.gpu;
  const double seconds =
      timing.heat_seconds + static_cast<double>(candidates.size()) *
                                (timing.seconds * timing.repetitions + 0.05 * timing.cool_rounds);
  options.says("timing for some " + std::to_string(std::lround(seconds)) + " s");
  if (timing.seconds > 0)
    timer.sustained(candidates, timing.seconds, timing.repetitions, timing.heat_seconds);
  if (timing.cool_rounds > 0) timer.cool(candidates, timing.cool_rounds);
  if (timing.interleaved_rounds > 0) timer.interleaved(candidates, timing.interleaved_rounds, 10.0);
}

Measured measure_program_on_gpu(const Program& program, const DimValues& sizes,
                                const MeasureOptions& options) {
  Gpu gpu;
  Measured result{.device = gpu.text(), .moved_bytes = moved_bytes(program, sizes)};
  const unsigned sets = sets_for(result.moved_bytes);
  Timer& timer = gpu.timer();
  const auto screen = [&](std::vector<Candidate>& group) -> Candidate& {
    timer.sustained(all_of(group), kScreenSeconds, 1, 0.1);
    return fastest(group);
  };

  std::vector<Candidate*> last;
  std::vector<Candidate> peers;
  std::optional<ProductShape> product;
  std::optional<ProductPeer> peer;
  for (const ProductShape& shape : products_of(program, sizes)) {
    if (!product || shape.flops() > product->flops()) product = shape;
  }
  if (product) {
    result.product = product->text();
    result.flops = product->flops();
    options.says("cuBLAS, " + result.product);
    peer.emplace(*gpu.state(), *product, sets, options.gpu.fast_accumulation);
    for (const auto& launch : peer->algorithms())
      peers.push_back({"cuBLAS heuristic " + std::to_string(peers.size()), launch, sets});
    last.push_back(&screen(peers));
    if (last.front() != &peers.front()) last.push_back(&peers.front());
  }

  const ProgramTensors tensors(*gpu.state(), program, sizes, sets);
  gpu::LowerOptions lowering = gpu.lowering();
  lowering.fast_accumulation = options.gpu.fast_accumulation;
  std::vector<std::optional<gpu::GemmConfig>> choices{std::nullopt};
  if (options.gpu.tuned > 0 && product) {
    for (const gpu::GemmConfig& choice : gpu::legal_choices(program, sizes, lowering)) {
      if (choices.size() <= options.gpu.tuned) choices.emplace_back(choice);
    }
  }
  options.says("compiling " + program.name);
  compile(*gpu.state(), program, sizes, choices, lowering);
  std::vector<std::unique_ptr<gpu::LaunchedKernel>> kernels;
  std::vector<Candidate> ours;
  for (const auto& choice : choices) {
    lowering.choice = choice;
    kernels.push_back(prepare(gpu.state(), program, sizes, lowering));
    ours.push_back({choice ? gpu::text(*choice) : "chosen",
                    [kernel = kernels.back().get(), &tensors](unsigned set) {
                      kernel->run(tensors.views(set));
                    },
                    sets});
  }
  std::vector<Candidate*> timed{&ours.front()};
  if (options.gpu.times_all) {
    timed = all_of(ours);
  } else if (options.gpu.tuned > 0) {
    Candidate& winner = screen(ours);
    result.screened.assign(ours.begin(), ours.end());
    if (&winner != &ours.front()) timed.push_back(&winner);
  }
  last.insert(last.end(), timed.begin(), timed.end());
  std::optional<Beside> beside;
  if (options.compare) {
    beside.emplace(gpu, program, sizes, sets, result.moved_bytes);
    for (Candidate& candidate : beside->candidates()) last.push_back(&candidate);
  }
  time_on_gpu(timer, last, options);
  for (const Candidate* candidate : last) result.candidates.push_back(*candidate);
  return result;
}

}  // namespace coda::measure
