// SPDX-License-Identifier: Apache-2.0
// Training data: one long sequence of token ids, from text files (one token per byte) or from a
// file of ids that a tokenizer wrote. Ids keep their stored width (1, 2 or 4 bytes) and files are
// memory-mapped, so data may be large.
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
  std::shared_ptr<const void> owner;  // owns the bytes
  std::span<const std::byte> bytes;   // little-endian
  int width = 1;                      // bytes per id: 1, 2 or 4

  int64_t size() const { return static_cast<int64_t>(bytes.size()) / width; }
  int32_t operator[](int64_t index) const;
  Tokens slice(int64_t begin, int64_t end) const;  // ids [begin, end), sharing the bytes
};

// The bytes of a file, or of all text files of a folder that no .gitignore excludes, separated by a
// 0 byte. Throws Error if the path does not exist, cannot be read, or has no text, and for a file
// that has a byte of 0 or begins as an archive, an image or a checkpoint does.
Tokens load_text(const std::filesystem::path& path);

// Reads a file of unsigned little-endian ids of `width` (2 or 4) bytes. Throws Error for an empty
// or truncated file, and for an id that is not below `vocab`, with its position.
Tokens load_token_ids(const std::filesystem::path& file, int width, int64_t vocab);

// Throws Error naming the first id that is not below `vocab`, with its position.
void check_vocabulary(const Tokens& tokens, int64_t vocab);

// A hexadecimal hash of the data.
std::string fingerprint(const Tokens& tokens);

struct TokenSplit {
  Tokens train;
  Tokens held_out;
};

// Holds out the last `held_out` (a share in [0, 1)) of the tokens. Throws Error unless each part is
// longer than one sequence; an empty held-out part is allowed.
TokenSplit split_tokens(const Tokens& tokens, double held_out, int64_t sequence);

// Samples rows [first_row, first_row + rows) of a training step's batch: inputs and targets [rows,
// sequence], where the targets are the next tokens and rows = inputs.size() / sequence. The
// position of a row depends only on (seed, step, row). So a resumed run sees the same data, and so
// does a run with other microbatches. Throws Error unless both spans hold the same number of whole
// rows and there are at least sequence + 1 tokens.
void sample_batch(const Tokens& tokens, uint64_t seed, int64_t step, int64_t first_row,
                  int64_t sequence, std::span<int32_t> inputs, std::span<int32_t> targets);

}  // namespace CODA_API coda
