// SPDX-License-Identifier: Apache-2.0
// What a model is trained on: one long sequence of token ids, from texts (a token is a byte) or
// from a file of ids that a tokenizer made elsewhere. Ids stay as they are stored (1, 2 or 4 bytes;
// files are mapped), so data may be large.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "coda/api.h"

namespace CODA_API coda {

struct Tokens {
  std::string source;                 // for messages
  std::shared_ptr<const void> owner;  // of the bytes
  std::span<const std::byte> bytes;   // little-endian
  int width = 1;                      // bytes of an id: 1, 2 or 4

  int64_t size() const { return static_cast<int64_t>(bytes.size()) / width; }
  int32_t operator[](int64_t index) const;
  Tokens slice(int64_t begin, int64_t end) const;  // ids [begin, end), sharing the bytes
};

// The bytes of a file, or of all texts of a folder that are not ignored by a
// .gitignore, with a byte of 0 between two. Throws Error if there is no such path, if it cannot be
// read, or if nothing is found.
Tokens load_text(const std::filesystem::path& path);

// A file of ids, each an unsigned little-endian number of `width` (2 or 4) bytes. Throws Error for
// an id that is not below `vocab`, naming it and where it is, and for an empty or cut file.
Tokens load_token_ids(const std::filesystem::path& file, int width, int64_t vocab);

// Throws Error, naming the first one and its place, if an id is not below `vocab`.
void check_vocabulary(const Tokens& tokens, int64_t vocab);

// A number, in hexadecimal, that any change of the data changes.
std::string fingerprint(const Tokens& tokens);

struct TokenSplit {
  Tokens train;
  Tokens held_out;
};

// The last `held_out` (a share, in [0, 1)) of the tokens is held out. Throws Error unless each part
// (an empty held-out part apart) is as long as one sequence and the token after it.
TokenSplit split_tokens(const Tokens& tokens, double held_out, int64_t sequence);

// Rows [first_row, first_row + rows) of a training step's batch: inputs and targets [rows,
// sequence], where targets are the inputs' next tokens and rows = inputs.size() / sequence. A row's
// place is a function of (seed, step, row) only: a resumed run sees the same data, and so does one
// that splits a step's rows differently over its passes. Throws Error unless both are as many whole
// rows and there are at least sequence + 1 tokens.
void sample_batch(const Tokens& tokens, uint64_t seed, int64_t step, int64_t first_row,
                  int64_t sequence, std::span<int32_t> inputs, std::span<int32_t> targets);

}  // namespace CODA_API coda
