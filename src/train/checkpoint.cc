// SPDX-License-Identifier: Apache-2.0
// Writes checkpoints in an order of writes, syncs and renames that always keeps the last complete
// one, and reads them.
#include "train/checkpoint.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <utility>

#include "base/atomic_file.h"
#include "base/file_error.h"
#include "coda/error.h"
#include "io/mapped_file.h"
#include "io/model_config.h"
#include "io/safetensors.h"
#include "train/run_state.h"

namespace coda {
namespace fs = std::filesystem;
namespace {

using io::ElementType;

constexpr const char* kConfig = "config.json";
constexpr const char* kModel = "model.safetensors";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr const char* kState = "run_state.json";
// Hugging Face's files besides the weights.
constexpr const char* kCopiedFiles[] = {"tokenizer.json",
                                        "tokenizer.model",
                                        "tokenizer_config.json",
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        "vocab.json",
                                        "merges.txt",
                                        "generation_config.json",
                                        "chat_template.json",
                                        "chat_template.jinja"};
constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kTemporary = ".tmp";

std::string folder_name(int64_t step) {
  const std::string digits = std::to_string(step);
  return std::string(kPrefix) + std::string(digits.size() < 6 ? 6 - digits.size() : 0, '0') +
         digits;
}

// The step in a name made by folder_name.
std::optional<int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
  if (error != std::errc() || rest != end || folder_name(step) != name) return std::nullopt;
  return step;
}

bool is_complete(const fs::path& checkpoint) {
  return std::ranges::all_of(std::array{kModel, kOptimizer, kState}, [&](const char* file) {
    std::error_code error;
    return fs::is_regular_file(checkpoint / file, error);
  });
}

// Steps of the complete checkpoints, ascending.
std::vector<int64_t> complete_steps(const fs::path& run_folder) {
  std::vector<int64_t> steps;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run_folder, error)) {
    const auto step = step_of(entry.path().filename().string());
    if (step && is_complete(entry.path())) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::vector<io::TensorToWrite> model_tensors(std::span<const CheckpointTensor> tensors) {
  std::vector<io::TensorToWrite> written;
  for (const CheckpointTensor& tensor : tensors) {
    if (tensor.bf16.empty()) {
      written.push_back(
          {tensor.name, ElementType::f32, tensor.shape, std::as_bytes(tensor.weights)});
    } else {
      written.push_back({tensor.name, ElementType::bf16, tensor.shape, std::as_bytes(tensor.bf16)});
    }
  }
  return written;
}

// Whether the optimizer's file has fp32 weights of this tensor.
bool has_master(const CheckpointTensor& tensor) {
  return !tensor.bf16.empty() && !tensor.weights.empty();
}

std::vector<io::TensorToWrite> optimizer_tensors(std::span<const CheckpointTensor> tensors) {
  std::vector<io::TensorToWrite> written;
  const auto add = [&](const std::string& kind, const CheckpointTensor& tensor,
                       std::span<float> values) {
    written.push_back(
        {kind + "." + tensor.name, ElementType::f32, tensor.shape, std::as_bytes(values)});
  };
  for (const CheckpointTensor& tensor : tensors) {
    for (const auto& [kind, values] : tensor.states) add(kind, tensor, values);
    if (has_master(tensor)) add("master", tensor, tensor.weights);
  }
  return written;
}

// Renames the finished folder. If there is an older checkpoint of the same step, both exchange
// names, so that one of them has the name at every moment.
void publish(const fs::path& temporary, const fs::path& checkpoint) {
  std::error_code ignored;
  const bool replaces = fs::exists(fs::symlink_status(checkpoint, ignored));
  const int result = replaces ? ::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD,
                                            checkpoint.c_str(), RENAME_EXCHANGE)
                              : ::rename(temporary.c_str(), checkpoint.c_str());
  if (result != 0) throw file_error("cannot replace", checkpoint, errno);
}

// Some file systems have no symbolic links; then there is no `latest`.
void point_latest_to(const fs::path& run_folder, const std::string& name) {
  const fs::path temporary = run_folder / "latest.tmp";
  if (::symlink(name.c_str(), temporary.c_str()) != 0) {
    if (errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS) return;
    throw file_error("cannot write", temporary, errno);
  }
  if (::rename(temporary.c_str(), (run_folder / "latest").c_str()) != 0) {
    throw file_error("cannot replace", run_folder / "latest", errno);
  }
}

// A checkpoint that cannot be removed now has been renamed, so the next save removes it.
void remove_all_but_newest(const fs::path& run_folder, int64_t saved, int keep) {
  std::vector<int64_t> steps = complete_steps(run_folder);
  std::erase(steps, saved);
  for (int64_t count = std::ssize(steps); count >= std::max(1, keep); --count) {
    const fs::path old = run_folder / folder_name(steps[steps.size() - static_cast<size_t>(count)]);
    fs::path doomed = old;
    doomed += kTemporary;
    std::error_code ignored;
    fs::rename(old, doomed, ignored);
    if (!ignored) fs::remove_all(doomed, ignored);
  }
}

// Identifies the folder that has this path now; nothing if there is none.
using FolderIdentity = std::pair<dev_t, ino_t>;
std::optional<FolderIdentity> identity_of(const fs::path& folder) {
  struct stat found = {};
  if (::stat(folder.c_str(), &found) != 0) return std::nullopt;
  return FolderIdentity(found.st_dev, found.st_ino);
}

// Writes a checkpoint under a temporary name and renames it once all files are on the disk. Then
// removes older checkpoints.
void write_checkpoint(const fs::path& run_folder, const std::optional<ModelConfig>& config,
                      std::span<const CheckpointTensor> tensors, const RunState& state,
                      const ModelFiles& files, int keep) {
  const std::string name = folder_name(state.step);
  const fs::path checkpoint = run_folder / name;
  fs::path temporary = checkpoint;
  temporary += kTemporary;
  try {
    remove_debris(run_folder);
    if (::mkdir(temporary.c_str(), 0777) != 0) throw file_error("cannot make", temporary, errno);
    const bool is_bf16 = std::ranges::any_of(
        tensors, [](const CheckpointTensor& tensor) { return !tensor.bf16.empty(); });
    if (config) {
      const DType stored = is_bf16 ? DType::bf16 : DType::f32;
      write_file_atomically(temporary / kConfig,
                            files.config.empty()
                                ? io::model_config_text(*config, stored)
                                : io::config_with_weights(files.config, *config, stored));
    }
    for (const auto& [file, bytes] : files.others) write_file_atomically(temporary / file, bytes);
    write_file_atomically(temporary / kState, run_state_text(state));
    io::write_safetensors(temporary / kModel, model_tensors(tensors));
    io::write_safetensors(temporary / kOptimizer, optimizer_tensors(tensors));
    publish(temporary, checkpoint);
    sync_folder(run_folder);
    point_latest_to(run_folder, name);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    throw;
  }
  std::error_code ignored;
  fs::remove_all(temporary, ignored);  // the replaced checkpoint, if any
  remove_all_but_newest(run_folder, state.step, keep);
  sync_folder(run_folder);
}

void read_into(const io::StoredTensors& stored, const std::string& name, ElementType type,
               const CheckpointTensor& tensor, std::span<std::byte> out) {
  io::read_exact(stored.at(name), type, tensor.shape, out);
}

void require_no_others(const io::StoredTensors& stored, size_t expected) {
  if (stored.tensors.size() == expected) return;
  throw Error(stored.source + ": " + std::to_string(stored.tensors.size()) +
              " tensors, but this model and --dtype have " + std::to_string(expected) +
              " (resume with the options of the run that saved it)");
}

}  // namespace

fs::path save_checkpoint(const fs::path& run_folder, const std::optional<ModelConfig>& config,
                         std::span<const CheckpointTensor> tensors, const RunState& state,
                         const ModelFiles& files, int keep) {
  make_folders(run_folder);
  const std::optional<FolderIdentity> begun_in = identity_of(run_folder);
  try {
    write_checkpoint(run_folder, config, tensors, state, files, keep);
  } catch (const Error&) {
    // Somebody renamed or removed the run's folder during the write. Write the whole checkpoint
    // into a new folder with the original name.
    if (identity_of(run_folder) == begun_in) throw;
    make_folders(run_folder);
    write_checkpoint(run_folder, config, tensors, state, files, keep);
  }
  return run_folder / folder_name(state.step);
}

void remove_debris(const fs::path& run_folder) {
  remove_temporaries(run_folder);
  std::vector<fs::path> debris;
  std::error_code error;
  for (fs::directory_iterator at(run_folder, error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (!name.ends_with(kTemporary)) continue;
    const std::string stem = name.substr(0, name.size() - kTemporary.size());
    if (stem == "latest" || step_of(stem)) debris.push_back(at->path());
  }
  for (const fs::path& path : debris) fs::remove_all(path, error);
}

std::optional<fs::path> newest_checkpoint(const fs::path& run_folder) {
  const std::vector<int64_t> steps = complete_steps(run_folder);
  if (steps.empty()) return std::nullopt;
  return run_folder / folder_name(steps.back());
}

fs::path find_model_folder(const fs::path& folder) {
  std::error_code error;
  if (fs::exists(folder / kConfig, error)) return folder;
  if (auto newest = newest_checkpoint(folder)) return *newest;
  if (!fs::exists(folder, error)) {
    throw file_error("cannot read", folder, error ? error.value() : ENOENT);
  }
  // A folder that cannot be read may contain either.
  [[maybe_unused]] const fs::directory_iterator entries(folder, error);
  if (error) throw file_error("cannot read the folder", folder, error.value());
  throw Error(printable(folder) +
              ": neither a model (it has no config.json) nor a run with a checkpoint (it has no "
              "step-... folder): give the folder of one of them");
}

ModelFiles model_files_of(const fs::path& folder) {
  constexpr uintmax_t kLargest = uintmax_t{256} << 20;
  const auto read = [&](const char* name) -> std::string {
    const fs::path file = folder / name;
    std::error_code error;
    if (!fs::exists(file, error)) return "";
    const uintmax_t bytes = fs::file_size(file, error);
    if (error) throw file_error("cannot read", file, error.value());
    require(bytes <= kLargest, printable(file) + ": " + std::to_string(bytes) +
                                   " bytes, too large for such a file (move it elsewhere)");
    return io::read_file(file);
  };
  ModelFiles files;
  files.config = read(kConfig);
  for (const char* name : kCopiedFiles)
    if (std::string bytes = read(name); !bytes.empty()) files.others.emplace(name, bytes);
  return files;
}

RunState load_run_state(const fs::path& checkpoint) {
  const fs::path file = checkpoint / kState;
  RunState state = parse_run_state(io::read_file(file), printable(file));
  const std::optional<int64_t> step = step_of(checkpoint.filename().string());
  if (step && *step != state.step) {
    throw Error(printable(file) + ": 'step' is " + std::to_string(state.step) +
                ", but the folder is that of step " + std::to_string(*step) +
                " (one of the two was changed: remove this checkpoint's folder to continue from "
                "the one before it)");
  }
  return state;
}

void load_tensors(const fs::path& checkpoint, std::span<const CheckpointTensor> tensors) {
  const io::StoredTensors model = io::open_safetensors(checkpoint / kModel);
  const io::StoredTensors optimizer = io::open_safetensors(checkpoint / kOptimizer);
  size_t beside = 0;  // number of tensors in optimizer.safetensors
  for (const CheckpointTensor& tensor : tensors) {
    const auto as_bytes = [](auto values) { return std::as_writable_bytes(values); };
    if (tensor.bf16.empty()) {
      read_into(model, tensor.name, ElementType::f32, tensor, as_bytes(tensor.weights));
    } else {
      read_into(model, tensor.name, ElementType::bf16, tensor, as_bytes(tensor.bf16));
    }
    if (has_master(tensor)) {
      ++beside;
      read_into(optimizer, "master." + tensor.name, ElementType::f32, tensor,
                as_bytes(tensor.weights));
    }
    for (const auto& [kind, values] : tensor.states)
      read_into(optimizer, kind + "." + tensor.name, ElementType::f32, tensor, as_bytes(values));
    beside += tensor.states.size();
  }
  require_no_others(model, tensors.size());
  require_no_others(optimizer, beside);
}

}  // namespace coda
