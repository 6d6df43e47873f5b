// SPDX-License-Identifier: Apache-2.0
// What a stranger's bytes reach: a target for each kind of file, and for what a process says when
// it joins a run.
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

  std::vector<std::string> seeds;  // good inputs, from which others are made
  std::vector<std::string> words;  // what is put into them
  // Reads the bytes. coda::Error is an answer and is caught; anything else that is thrown, a crash
  // and a run without an end are findings.
  std::function<void(const std::string& bytes)> read;
};

// config, tokenizer, safetensors, npz, program, graph, formula, hello.
std::span<const char* const> target_names();
// What it needs besides (a folder, a thread that listens) lives as long as it.
std::unique_ptr<Target> make_target(const std::string& name);

// A seed or an earlier input, changed in one to five places; the same for the same number.
std::string changed(const Target& target, std::span<const std::string> inputs, uint64_t number);

}  // namespace coda::fuzz
