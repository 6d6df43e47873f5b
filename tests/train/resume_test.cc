// SPDX-License-Identifier: Apache-2.0
// A checkpoint has the whole state of a trainer: 2k steps give the same bits as k steps, the files
// of a checkpoint, and k steps of another trainer. Between two steps a trainer holds the weights
// (fp32 and bf16 copies made of them, or bf16 alone), the optimizer's states, the number of steps
// done (which decides the rate, the bias correction and the data) and the scales of 8-bit operands.
// The scale of the loss is a constant, and models with dropout are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>

#include "coda/checkpoint.h"
#include "coda/run.h"
#include "collective/threads.h"
#include "cpu/cpu_backend.h"
#include "io/mapped_file.h"
#include "io/safetensors.h"
#include "io/temp_folder.h"
#include "runtime/far_backend.h"
#include "train/tiny_model.h"

namespace coda {
namespace {

namespace fs = std::filesystem;

constexpr int kSteps = 2;  // before the stop, and after it
constexpr const char* kTensorFiles[] = {"model.safetensors", "optimizer.safetensors"};

struct Kind {
  std::string name;
  std::function<void(ModelTrainSettings&)> set;
  int processes = 0;    // 0: one whose state is the host's
  bool is_far = false;  // the backend has memory of its own
};

ModelTrainSettings settings_of(const Kind& kind) {
  ModelTrainSettings settings = tiny_settings();
  std::get<LlamaConfig>(settings.model).layers = 1;
  settings.clip = 0.5;  // below the norm of the first steps
  kind.set(settings);
  return settings;
}

const Tokens& text() {
  static const Tokens tokens = counting_text(500);
  return tokens;
}

// Gives the trainer another state, as if it had trained something else before.
void spoil(ModelTrainer& trainer) {
  for (WeightTensor& w : trainer.weights)
    for (float& value : w.values) value = 0.01F - value;
  trainer.restored();
  trainer.step();
}

// The losses and norms of kSteps steps, from the checkpoint `from` (empty: from the first step) to
// one in the folder `run`, which may also be `then`: of kSteps steps more.
std::vector<double> trained(const Kind& kind, const fs::path& from, const fs::path& run,
                            const fs::path& then = {}) {
  std::vector<double> numbers;
  const auto train = [&](ThreadCommunicator& communicator) {
    FarBackend far;
    const auto host = cpu::make_cpu_backend({.threads = 1});
    ModelTrainSettings settings = settings_of(kind);
    if (kind.processes > 0) settings.communicator = &communicator;
    ModelTrainer trainer(settings, text(), kind.is_far ? static_cast<Backend&>(far) : *host);
    if (!from.empty()) {
      spoil(trainer);
      restore(from, trainer);
    }
    for (const fs::path& folder : {run, then}) {
      if (folder.empty()) continue;
      for (int i = 0; i < kSteps; ++i) {
        const StepReport report = trainer.step();
        if (communicator.rank() == 0 && (then.empty() || folder == then))
          numbers.insert(numbers.end(), {report.loss, report.norm, report.rate});
      }
      trainer.fetch();
      if (communicator.rank() > 0) continue;
      if (kind.is_far) {
        save_checkpoint(folder, trainer);  // of a graph that is no known model
      } else {
        save_checkpoint(folder, settings.model, trainer, {});
      }
    }
  };
  in_threads(std::max(kind.processes, 1), train);
  return numbers;
}

std::string bytes_of(const fs::path& file) { return io::read_file(file); }

std::vector<std::string> differing_files(const fs::path& a, const fs::path& b) {
  std::vector<std::string> differing;
  for (const fs::directory_entry& entry : fs::directory_iterator(a)) {
    const fs::path name = entry.path().filename();
    if (bytes_of(entry.path()) != bytes_of(b / name)) differing.push_back(name);
  }
  return differing;
}

void in_eight_bits(ModelTrainSettings& s, EightBits recipe) {
  s.storage = DType::bf16;
  s.eight_bits = recipe;
}

void all_in_bf16(ModelTrainSettings& s) {
  s.storage = DType::bf16;
  s.optimizer = make_optimizer("adamw", {}, DType::bf16);
  s.optimizer.weights = DType::bf16;
}

std::vector<Kind> kinds() {
  using S = ModelTrainSettings;
  std::vector<Kind> all{
      {"fp32", [](S&) {}},
      {"bf16, accumulated", [](S& s) { s.storage = DType::bf16, s.accumulate = 2; }},
      {"bf16, moments in bf16, far",
       [](S& s) {
         s.storage = DType::bf16;
         s.optimizer = make_optimizer("adamw", {}, DType::bf16);
       },
       0, true},
      {"bf16 weights and moments", [](S& s) { all_in_bf16(s); }},
      {"bf16 weights and moments, far", [](S& s) { all_in_bf16(s); }, 0, true},
      {"bf16 weights and moments, two processes", [](S& s) { all_in_bf16(s); }, 2},
      {"fp8, bf16 weights and moments, far",
       [](S& s) {
         all_in_bf16(s);
         in_eight_bits(s, EightBits::fp8);
       },
       0, true},
      {"fp8", [](S& s) { in_eight_bits(s, EightBits::fp8); }},
      {"fp8, accumulated, rows of logits, layers recomputed",
       [](S& s) {
         in_eight_bits(s, EightBits::fp8);
         s.accumulate = 2;
         s.loss_rows = 64;
         std::get<LlamaConfig>(s.model).layers = 6;  // fewer are not recomputed
         s.recomputed_layers = kAllLayers;
       }},
      {"fp8, copies of wide weights, far",
       [](S& s) {
         in_eight_bits(s, EightBits::fp8);
         s.model = tiny_model_of_wide_rows();
         std::get<LlamaConfig>(s.model).layers = 1;
       },
       0, true},
      {"fp8-kept", [](S& s) { in_eight_bits(s, EightBits::fp8_kept); }},
      {"fp32, two processes", [](S&) {}, 2},
      {"fp8, moments in bf16, two processes",
       [](S& s) {
         in_eight_bits(s, EightBits::fp8);
         s.optimizer = make_optimizer("adamw", {}, DType::bf16);
       },
       2},
      {"fp8-kept, lion, two processes",
       [](S& s) {
         in_eight_bits(s, EightBits::fp8_kept);
         s.optimizer = make_optimizer("lion");
       },
       2},
  };
  for (const OptimizerKind& optimizer : optimizer_kinds())
    for (const DType states : {DType::f32, DType::bf16})
      all.push_back({"bf16, " + optimizer.name + ", states in " + std::string(name_of(states)),
                     [name = optimizer.name, states](S& s) {
                       s.storage = DType::bf16;
                       s.optimizer = make_optimizer(name, {}, states);
                       s.schedule.peak *= optimizer_kind(name).rate;
                     }});
  return all;
}

TEST(ResumedTrainer, GivesTheBitsOfOneThatDidNotStopForEveryKindOfState) {
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(kind.name);
    const TempFolder folder;
    const std::vector<double> whole = trained(kind, {}, folder / "half", folder / "whole");
    const fs::path stop = newest_checkpoint(folder / "half").value();
    EXPECT_EQ(trained(kind, stop, folder / "resumed"), whole);
    EXPECT_THAT(differing_files(newest_checkpoint(folder / "whole").value(),
                                newest_checkpoint(folder / "resumed").value()),
                testing::IsEmpty());
  }
}

// Doubles every element of the fp32 tensors that are `chosen`.
void double_values(const fs::path& file, const std::function<bool(const std::string&)>& chosen) {
  std::vector<io::TensorToWrite> written;
  std::vector<std::vector<float>> values;  // of chosen tensors
  const io::StoredTensors stored = io::open_safetensors(file);
  for (const auto& [name, tensor] : stored.tensors) {
    written.push_back({name, tensor.type, tensor.shape, tensor.bytes});
    if (tensor.type != io::ElementType::f32 || !chosen(name)) continue;
    std::vector<float>& doubled = values.emplace_back(static_cast<size_t>(tensor.count()));
    io::read_exact(tensor, io::ElementType::f32, tensor.shape,
                   std::as_writable_bytes(std::span(doubled)));
    for (float& value : doubled) value *= 2;
    written.back().bytes = std::as_bytes(std::span(doubled));
  }
  fs::path other = file;
  other += ".other";
  io::write_safetensors(other, written);
  fs::rename(other, file);
}

// One part of a checkpoint, and how a copy of the checkpoint gets another value for it.
struct StatePart {
  std::string name;
  std::function<void(const fs::path& checkpoint)> change;
};

// The parts are read from the files, so that a part that is added later is one of them.
std::vector<StatePart> parts_of(const fs::path& checkpoint) {
  using nlohmann::json;
  std::vector<StatePart> parts;
  const auto add = [&](const std::string& name, std::function<void(json&)> edit) {
    parts.push_back({name, [edit](const fs::path& copy) {
                       json state = json::parse(bytes_of(copy / "run_state.json"));
                       edit(state);
                       std::ofstream(copy / "run_state.json") << state.dump();
                     }});
  };
  const json state = json::parse(bytes_of(checkpoint / "run_state.json"));
  for (const auto& [key, value] : state.items()) {
    if (key == "step") {
      add(key, [](json& s) { s["step"] = s["step"].get<int>() + 1; });
    } else if (key == "eight_bit_scales") {
      for (const int part : {0, 1, 2}) {
        if (value.empty()) continue;
        add(std::vector{"largest magnitudes", "scales", "inverses"}[static_cast<size_t>(part)],
            [part](json& s) {
              json& list = s["eight_bit_scales"];
              const size_t count = list.size() / 3;
              for (size_t i = 0; i < count; ++i) {
                json& number = list[static_cast<size_t>(part) * count + i];
                number = 4 * number.get<double>();
              }
            });
      }
    } else {
      // What the command keeps there (tests/tools/resume_test.cc), and the name that is compared.
      EXPECT_THAT(key, testing::AnyOf("format", "seed", "options", "optimizer", "train_losses",
                                      "held_out_losses"));
    }
  }
  std::set<std::pair<std::string, std::string>> kinds;  // file, first word of its tensors
  const auto kind_of = [](const std::string& file, const std::string& tensor) {
    return file == kTensorFiles[0] ? std::string() : tensor.substr(0, tensor.find('.'));
  };
  for (const std::string file : kTensorFiles) {
    for (const auto& [name, tensor] : io::open_safetensors(checkpoint / file).tensors)
      if (tensor.type == io::ElementType::f32) kinds.emplace(file, kind_of(file, name));
  }
  for (const auto& [file, kind] : kinds) {
    parts.push_back({file + " " + kind, [=](const fs::path& copy) {
                       double_values(copy / file, [&](const std::string& tensor) {
                         return kind_of(file, tensor) == kind;
                       });
                     }});
  }
  return parts;
}

// So the test above fails if one part of the state is not saved or not restored.
TEST(ResumedTrainer, EveryPartOfItsCheckpointMatters) {
  const auto names_of = [](const std::vector<StatePart>& parts) {
    std::vector<std::string> names;
    for (const StatePart& part : parts) names.push_back(part.name);
    return names;
  };
  const std::vector<std::pair<std::string, std::vector<std::string>>> wanted{
      {"fp32",
       {"step", "model.safetensors ", "optimizer.safetensors m", "optimizer.safetensors v"}},
      {"fp8",
       {"step", "largest magnitudes", "scales", "inverses", "model.safetensors ",  // of norms
        "optimizer.safetensors m", "optimizer.safetensors master", "optimizer.safetensors v"}}};
  for (const auto& [name, parts] : wanted) {
    const std::vector<Kind> all = kinds();
    const Kind& kind = *std::ranges::find(all, name, &Kind::name);
    const TempFolder folder;
    const std::vector<double> whole = trained(kind, {}, folder / "half", folder / "whole");
    const fs::path stop = newest_checkpoint(folder / "half").value();
    EXPECT_THAT(names_of(parts_of(stop)), testing::UnorderedElementsAreArray(parts)) << name;
    for (const StatePart& part : parts_of(stop)) {
      SCOPED_TRACE(name + ", " + part.name);
      fs::remove_all(folder / "changed");
      fs::copy(stop, folder / "changed");  // its name says no step
      part.change(folder / "changed");
      EXPECT_NE(trained(kind, folder / "changed", folder / "resumed"), whole);
    }
  }
}

}  // namespace
}  // namespace coda
