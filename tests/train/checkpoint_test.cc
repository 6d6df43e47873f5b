// SPDX-License-Identifier: Apache-2.0
// Checkpoints come back to the bit, the newest complete one is found among debris, and a process
// killed at any moment of a save leaves the last good one.
#include "train/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <random>
#include <thread>

#include "base/atomic_file.h"
#include "io/error_message.h"
#include "io/failing_disk.h"
#include "io/mapped_file.h"
#include "io/model_config.h"
#include "io/safetensors.h"
#include "io/temp_folder.h"
#include "train/lost_writes.h"

namespace coda {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

ModelConfig small_config() {
  LlamaConfig config;
  config.layers = 1;
  config.hidden = 8;
  config.heads = 2;
  config.kv_heads = 1;
  config.head_dim = 4;
  config.mlp = 16;
  config.vocab = 32;
  return config;
}

// Arrays of a run whose content is a function of the step and of which save of it this is, with the
// hash of the content in the options.
class TrainingRun {
 public:
  // `is_bf16`: matrices have bf16 copies, the norm has not.
  explicit TrainingRun(bool is_bf16 = false, int64_t rows = 50) {
    add("model.embed_tokens.weight", {rows, 8}, is_bf16);
    add("model.norm.weight", {8}, false);
    add("model.layers.0.mlp.up_proj.weight", {16, 8}, is_bf16);
  }

  std::vector<CheckpointTensor> tensors() {
    std::vector<CheckpointTensor> views;
    for (Arrays& a : arrays_)
      views.push_back({a.name, a.shape, a.weights, {{"m", a.m}, {"v", a.v}}, a.bf16});
    return views;
  }

  // `save`: the first, second, ... save of that step; each has content of its own.
  void fill(int64_t step, int save = 0) {
    std::mt19937 random(static_cast<uint32_t>(2 * step + save));
    const auto fill_floats = [&](std::vector<float>& values) {
      for (float& value : values) value = static_cast<float>(random()) * 0x1p-31f - 1.0f;
    };
    for (Arrays& a : arrays_) {
      fill_floats(a.weights);
      fill_floats(a.m);
      fill_floats(a.v);
      for (uint16_t& bits : a.bf16) bits = static_cast<uint16_t>(random());
    }
    state.step = step;
    state.seed = UINT64_MAX;
    state.options = {{"content", std::to_string(hash())}, {"save", std::to_string(save)}};
    state.train_losses = {{step - 1, 0.1}, {step, 1.0 / 3}};
  }

  // FNV-1a over all bytes of all arrays.
  uint64_t hash() const {
    uint64_t value = 0xcbf29ce484222325u;
    const auto mix = [&](std::span<const std::byte> bytes) {
      for (const std::byte byte : bytes)
        value = (value ^ std::to_integer<uint64_t>(byte)) * 0x100000001b3u;
    };
    for (const Arrays& a : arrays_) {
      for (const auto* floats : {&a.weights, &a.m, &a.v}) mix(std::as_bytes(std::span(*floats)));
      mix(std::as_bytes(std::span(a.bf16)));
    }
    return value;
  }

  void save(const fs::path& folder, int64_t step, int keep = 2) {
    fill(step);
    save_checkpoint(folder, small_config(), tensors(), state, {}, keep);
  }

  // The step of the checkpoint, once all of it is found to be what that step saved.
  static int64_t verified_step(const fs::path& checkpoint, bool is_bf16 = false,
                               int64_t rows = 50) {
    TrainingRun loaded(is_bf16, rows);
    load_tensors(checkpoint, loaded.tensors());
    loaded.state = load_run_state(checkpoint);
    TrainingRun expected(is_bf16, rows);
    expected.fill(loaded.state.step, std::stoi(loaded.state.options.at("save")));
    EXPECT_EQ(loaded.hash(), expected.hash());
    EXPECT_EQ(loaded.state, expected.state);
    EXPECT_EQ(io::read_model_config(checkpoint), small_config());
    return loaded.state.step;
  }

  RunState state;

 private:
  struct Arrays {
    std::string name;
    std::vector<int64_t> shape;
    std::vector<float> weights, m, v;
    std::vector<uint16_t> bf16;
  };
  void add(const std::string& name, const std::vector<int64_t>& shape, bool is_bf16) {
    size_t count = 1;
    for (const int64_t size : shape) count *= static_cast<size_t>(size);
    arrays_.push_back({name, shape, std::vector<float>(count), std::vector<float>(count),
                       std::vector<float>(count), std::vector<uint16_t>(is_bf16 ? count : 0)});
  }

  std::vector<Arrays> arrays_;
};

TEST(Checkpoint, ComesBackToTheBit) {
  for (const bool is_bf16 : {false, true}) {
    const TempFolder folder;
    TrainingRun run(is_bf16);
    run.save(folder / "run", 120);
    EXPECT_EQ(newest_checkpoint(folder / "run"), folder / "run/step-000120");
    EXPECT_EQ(TrainingRun::verified_step(folder / "run/step-000120", is_bf16), 120);
  }
}

TEST(Checkpoint, IsAHuggingFaceFolder) {
  const TempFolder folder;
  TrainingRun run(true);
  run.save(folder.path(), 7);
  EXPECT_THAT(folder.entries(), ElementsAre("latest", "step-000007"));
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(folder / "step-000007")) {
    files.push_back(entry.path().filename().string());
  }
  EXPECT_THAT(files, testing::UnorderedElementsAre("config.json", "model.safetensors",
                                                   "optimizer.safetensors", "run_state.json"));
  EXPECT_THAT(io::read_file(folder / "latest/config.json"), HasSubstr("\"bfloat16\""));
  const io::StoredTensors model = io::open_model_weights(folder / "latest");
  EXPECT_EQ(model.tensors.size(), 3u);
  EXPECT_EQ(model.at("model.embed_tokens.weight").type, io::ElementType::bf16);
  EXPECT_EQ(model.at("model.norm.weight").type, io::ElementType::f32);
  EXPECT_EQ(model.metadata.at("format"), "pt");
}

TEST(Checkpoint, OnlyTheNewestAreKept) {
  const TempFolder folder;
  TrainingRun run;
  for (const int64_t step : {10, 20, 30, 1000000}) run.save(folder.path(), step);
  EXPECT_THAT(folder.entries(), ElementsAre("latest", "step-000030", "step-1000000"));
  EXPECT_EQ(newest_checkpoint(folder.path()), folder / "step-1000000");
  EXPECT_EQ(fs::read_symlink(folder / "latest"), "step-1000000");
  run.save(folder.path(), 40, 1);  // what was just saved stays, even if others are further
  EXPECT_THAT(folder.entries(), ElementsAre("latest", "step-000040"));
}

TEST(Checkpoint, AStepSavedAgainReplacesTheOldOne) {
  const TempFolder folder;
  TrainingRun run;
  run.save(folder.path(), 5);
  run.state.train_losses.clear();
  save_checkpoint(folder.path(), small_config(), run.tensors(), run.state);
  EXPECT_TRUE(load_run_state(folder / "step-000005").train_losses.empty());
  EXPECT_THAT(folder.entries(), ElementsAre("latest", "step-000005"));
}

TEST(Checkpoint, DebrisIsNeitherReadNorKept) {
  const TempFolder folder;
  EXPECT_EQ(newest_checkpoint(folder / "missing"), std::nullopt);
  EXPECT_EQ(newest_checkpoint(folder.path()), std::nullopt);
  TrainingRun run;
  run.save(folder.path(), 10);
  fs::copy(folder / "step-000010", folder / "step-000030.tmp");  // a crash before the rename
  fs::copy(folder / "step-000010", folder / "step-000020");      // someone removed a file
  fs::remove(folder / "step-000020/optimizer.safetensors");
  fs::copy(folder / "step-000010", folder / "step-99");  // names of others
  fs::copy(folder / "step-000010", folder / "step-000040-mine");
  fs::create_symlink("nowhere", folder / "latest.tmp");
  write_file_atomically(folder / "step-000050", "a file");
  EXPECT_EQ(newest_checkpoint(folder.path()), folder / "step-000010");
  run.save(folder.path(), 11);
  EXPECT_THAT(folder.entries(), ElementsAre("latest", "step-000010", "step-000011", "step-000020",
                                            "step-000040-mine", "step-000050", "step-99"));
}

TEST(Checkpoint, DebrisGoesBeforeARunToo) {
  const TempFolder folder;
  TrainingRun run;
  run.save(folder.path(), 10);
  fs::copy(folder / "step-000010", folder / "step-000030.tmp");
  fs::create_symlink("nowhere", folder / "latest.tmp");
  write_file_atomically(folder / ".coda-123-4.tmp", "half of a curve");
  remove_debris(folder.path());
  EXPECT_THAT(folder.entries(), ElementsAre("latest", "step-000010"));
}

// In a folder that somebody else has made, names of ours may be links to the user's files.
TEST(Checkpoint, NoLinkIsFollowed) {
  const TempFolder folder;
  const TempFolder other;
  write_file_atomically(other / "config.json", "mine");
  TrainingRun run;
  for (const char* name : {"step-000010", "step-000010.tmp", "latest", "latest.tmp"}) {
    fs::create_directory_symlink(other.path(), folder / name);
  }
  run.save(folder.path(), 10);
  EXPECT_EQ(TrainingRun::verified_step(folder / "step-000010"), 10);
  EXPECT_THAT(folder.entries(), ElementsAre("latest", "step-000010"));
  EXPECT_THAT(other.entries(), ElementsAre("config.json"));
  EXPECT_EQ(io::read_file(other / "config.json"), "mine");
}

TEST(Checkpoint, AStateOfAnotherStepThanItsFoldersIsRefused) {
  const TempFolder folder;
  TrainingRun run;
  run.save(folder.path(), 10);
  fs::rename(folder / "step-000010", folder / "step-000020");
  EXPECT_THAT(error_message([&] { load_run_state(folder / "step-000020"); }),
              AllOf(HasSubstr("'step' is 10"), HasSubstr("step 20")));
}

TEST(Checkpoint, AModelIsFoundInAnyOfItsFolders) {
  const TempFolder folder;
  TrainingRun run;
  run.save(folder / "run", 10);
  EXPECT_EQ(find_model_folder(folder / "run"), folder / "run/step-000010");
  EXPECT_EQ(find_model_folder(folder / "run/step-000010"), folder / "run/step-000010");
  EXPECT_EQ(find_model_folder(folder / "run/latest"), folder / "run/latest");
  EXPECT_THAT(error_message([&] { find_model_folder(folder.path()); }),
              HasSubstr("neither a model (it has no config.json) nor a run"));
  EXPECT_THAT(error_message([&] { find_model_folder(folder / "none"); }),
              HasSubstr("No such file"));
}

TEST(Checkpoint, AFullDiskKeepsTheLastOne) {
  const TempFolder folder;
  TrainingRun run;
  run.save(folder.path(), 10);
  TrainingRun large(false, 5000);
  for (const rlim_t limit : {rlim_t{100}, rlim_t{1000}, rlim_t{100000}, rlim_t{200000}}) {
    const FailingDisk full(limit);
    EXPECT_THAT(error_message([&] { large.save(folder.path(), 20); }),
                AllOf(HasSubstr("cannot write"), HasSubstr("free some space")))
        << limit << " bytes";
  }
  EXPECT_THAT(folder.entries(), ElementsAre("latest", "step-000010"));
  EXPECT_EQ(TrainingRun::verified_step(folder / "latest"), 10);
  EXPECT_THAT(error_message([&] { run.save(folder / "step-000010/config.json", 20); }),
              AllOf(HasSubstr("cannot"), HasSubstr("config.json")));
}

TEST(Checkpoint, RefusesAnotherModelOrType) {
  const TempFolder folder;
  TrainingRun run;
  run.save(folder.path(), 10);
  const fs::path checkpoint = folder / "step-000010";
  const auto load_message = [&](TrainingRun& into) {
    return error_message([&] { load_tensors(checkpoint, into.tensors()); });
  };
  TrainingRun bf16(true);
  EXPECT_THAT(load_message(bf16),
              HasSubstr("tensor 'model.embed_tokens.weight' has type F32, but BF16 is needed"));
  TrainingRun wider(false, 51);
  EXPECT_THAT(load_message(wider), HasSubstr("has shape [50, 8], but the model needs [51, 8]"));
  EXPECT_THAT(error_message([&] {
                std::vector<CheckpointTensor> fewer = run.tensors();
                fewer.pop_back();
                load_tensors(checkpoint, fewer);
              }),
              HasSubstr("3 tensors, but this model and --dtype have 2"));
  EXPECT_THAT(error_message([&] {
                std::vector<CheckpointTensor> of_one_state = run.tensors();
                for (CheckpointTensor& tensor : of_one_state) tensor.states.resize(1);
                load_tensors(checkpoint, of_one_state);
              }),
              HasSubstr("6 tensors, but this model and --dtype have 3"));
  EXPECT_THAT(error_message([&] {
                std::vector<CheckpointTensor> renamed = run.tensors();
                renamed[0].name = "other";
                load_tensors(checkpoint, renamed);
              }),
              HasSubstr("tensor 'other' is missing"));
  const std::string optimizer = io::read_file(checkpoint / "optimizer.safetensors");
  write_file_atomically(checkpoint / "optimizer.safetensors",
                        optimizer.substr(0, optimizer.size() - 1));
  EXPECT_THAT(load_message(run), AllOf(HasSubstr("optimizer.safetensors"), HasSubstr("truncated")));
}

// Saves step after step, every second one twice, and reports each save that returned.
[[noreturn]] void save_until_killed(const fs::path& folder, int64_t step, int64_t rows, int out) {
  try {
    for (TrainingRun run(true, rows);; ++step) {
      for (int again = 0; again <= step % 2; ++again) {
        run.fill(step, again);
        save_checkpoint(folder, small_config(), run.tensors(), run.state);
        if (::write(out, &step, sizeof step) != sizeof step) ::_exit(1);
      }
    }
  } catch (...) {
    ::_exit(2);
  }
}

// A child saves step after step and is killed at a random moment; then a
// loader must find a complete checkpoint, whose content is its step's, and none older than the last
// save that returned.
TEST(Checkpoint, SurvivesSigkillAtAnyMoment) {
  constexpr int kKills = 30;
  constexpr int64_t kRows = 3000;
  constexpr uint64_t kSeed = 99;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937_64 random(kSeed);
  const TempFolder folder;
  TrainingRun first(true, kRows);
  const auto start = std::chrono::steady_clock::now();
  first.save(folder.path(), 1);
  // However fast the disk is, kills fall into a save or between two.
  const auto one_save = std::chrono::duration_cast<std::chrono::microseconds>(
      std::chrono::steady_clock::now() - start);
  int64_t last = 1;      // found by the loader
  int64_t returned = 1;  // the last save that returned, of any child
  int kills_with_debris = 0;
  for (int kill_count = 0; kill_count < kKills; ++kill_count) {
    int channel[2];
    ASSERT_EQ(::pipe(channel), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      save_until_killed(folder.path(), last + 1, kRows, channel[1]);
    }
    ::close(channel[1]);
    // After none to three saves that returned, somewhere within the next.
    for (uint64_t saves = random() % 4; saves > 0; --saves) {
      ASSERT_EQ(::read(channel[0], &returned, sizeof returned), ssize_t{sizeof returned});
    }
    std::this_thread::sleep_for(one_save * (random() % 1000) / 500.0);
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child failed on its own: status " << status;
    while (::read(channel[0], &returned, sizeof returned) == sizeof returned) {
    }
    ::close(channel[0]);

    const std::optional<fs::path> newest = newest_checkpoint(folder.path());
    ASSERT_TRUE(newest) << "kill " << kill_count;
    const int64_t found = TrainingRun::verified_step(*newest, true, kRows);
    ASSERT_FALSE(HasFailure()) << "kill " << kill_count;
    EXPECT_GE(found, std::max(last, returned));
    EXPECT_LE(found, std::max(last, returned) + 1);
    // The link leads to a complete one too; saves that were killed need not have moved it.
    EXPECT_GE(TrainingRun::verified_step(folder / "latest", true, kRows), returned);
    for (const std::string& name : folder.entries()) {
      if (name.ends_with(".tmp")) {
        ++kills_with_debris;
        break;
      }
    }
    last = found;
  }
  EXPECT_GT(kills_with_debris, 0) << "the kills hit no save";
  TrainingRun run(true, kRows);
  run.save(folder.path(), last + 1);
  EXPECT_EQ(folder.entries().size(), 3u);  // latest and two checkpoints: no debris
}

// Whether everything of the checkpoint is what its step saved.
bool is_whole(const fs::path& checkpoint) {
  try {
    TrainingRun loaded;
    load_tensors(checkpoint, loaded.tensors());
    loaded.state = load_run_state(checkpoint);
    TrainingRun expected;
    expected.fill(loaded.state.step, std::stoi(loaded.state.options.at("save")));
    return loaded.hash() == expected.hash() && loaded.state == expected.state &&
           io::read_model_config(checkpoint) == small_config();
  } catch (const std::exception&) {
    return false;
  }
}

// Saves steps 1 to 3, the last one twice, and after every call to the file system looks at what a
// crash may leave there. Counts the states that are wrong: the newest checkpoint is older than the
// last save that returned, or is not whole. Stops looking at the first of them.
struct LostWritesCount {
  int states = 0;
  int wrong = 0;
};
LostWritesCount crash_everywhere(LostWritesOptions options) {
  const TempFolder folder;
  const TempFolder left;
  LostWritesCount count;
  int64_t returned = 0;
  const LostWrites* disk = nullptr;
  const auto look = [&] {
    if (count.wrong > 0) return;
    for (const Crash crash : {Crash::drops_all, Crash::keeps_names, Crash::keeps_some_names}) {
      const fs::path state = left / std::to_string(count.states++);
      disk->leave_at(state, crash, static_cast<uint64_t>(count.states));
      const std::optional<fs::path> newest = newest_checkpoint(state / "runs/run");
      const bool is_right =
          newest ? is_whole(*newest) && load_run_state(*newest).step >= returned : returned == 0;
      count.wrong += is_right ? 0 : 1;
      fs::remove_all(state);
    }
  };
  const LostWrites lost(folder.path(), look, options);
  disk = &lost;
  TrainingRun run;
  for (const int64_t step : {1, 2, 3, 3}) {
    run.fill(step, step == returned ? 1 : 0);
    save_checkpoint(folder / "runs/run", small_config(), run.tensors(), run.state);
    returned = step;
    look();
  }
  return count;
}

// The power fails after any call, and what was not synced is lost, content, names or both.
TEST(Checkpoint, ACrashThatLosesWhatWasNotSyncedLeavesTheLastOneWhole) {
  const LostWritesCount count = crash_everywhere({});
  EXPECT_GT(count.states, 200);
  EXPECT_EQ(count.wrong, 0);
}

TEST(Checkpoint, ThatTestNoticesASyncThatIsMissing) {
  EXPECT_GT(crash_everywhere({.syncs_files = false}).wrong, 0);
  EXPECT_GT(crash_everywhere({.syncs_folders = false}).wrong, 0);
}

}  // namespace
}  // namespace coda
