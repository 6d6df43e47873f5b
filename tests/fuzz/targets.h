// SPDX-License-Identifier: Apache-2.0
// The fuzzing targets: everything that reads untrusted bytes. There is one target for each kind of
// file, and one for the messages of a process that joins a run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace coda::fuzz {

struct Target {
  virtual ~Target() = default;

  // Valid inputs and those of corpus/NAME.bin, from which other inputs are made.
  std::vector<std::string> seeds;
  std::vector<std::string> words;  // pieces that are inserted into inputs
  // Reads the bytes. A coda::Error is a correct answer and is caught. Any other exception, a crash
  // or an endless loop is a failure.
  std::function<void(const std::string& bytes)> read;
};

// config, tokenizer, safetensors, npz, program, graph, formula, hello.
std::span<const char* const> target_names();
// The Target owns what its reader needs (a folder, a listening thread). corpus/NAME.bin has inputs
// that libFuzzer found, each behind a line with its number of bytes; scripts/fuzz.sh writes it.
std::unique_ptr<Target> make_target(const std::string& name);

// One of `inputs`, with one to five random changes. The same `number` gives the same result.
std::string changed(const Target& target, std::span<const std::string> inputs, uint64_t number);

}  // namespace coda::fuzz
