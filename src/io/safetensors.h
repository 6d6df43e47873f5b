// SPDX-License-Identifier: Apache-2.0
// Tensors in safetensors files, the format of Hugging Face checkpoints: 8 bytes of header length, a
// JSON header (name -> type, shape, offsets), the data. Reading maps the file and checks everything
// the header says before any byte of data is used; writing gives the same bytes as the official
// library. Values are little-endian, row-major.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coda/dtype.h"

namespace coda::io {

class MappedFile;

// Types of stored elements, in the format's own order, which decides where a written tensor lies.
// All may be present in a file; the floating ones can be read as numbers.
enum class ElementType : uint8_t {
  boolean,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  f64,
  i64,
  u64,
};
std::string_view name_of(ElementType type);  // as in a file: "BF16"
int64_t size_of(ElementType type);           // bytes
ElementType element_type_of(DType type);

// A tensor of an open file.
struct StoredTensor {
  std::string name;
  std::string file;  // for messages
  ElementType type = ElementType::f32;
  std::vector<int64_t> shape;  // empty: a scalar
  std::span<const std::byte> bytes;

  int64_t count() const;  // elements
};

// The tensors of one file, or of all shards of a model. Copies share the mapping; `bytes` live as
// long as one of them.
struct StoredTensors {
  std::string source;  // the file or folder, for messages
  std::vector<std::shared_ptr<const MappedFile>> files;
  std::map<std::string, StoredTensor, std::less<>> tensors;
  std::map<std::string, std::string> metadata;

  const StoredTensor* find(std::string_view name) const;  // null if there is none
  const StoredTensor& at(std::string_view name) const;    // throws Error if there is none
};

StoredTensors open_safetensors(const std::filesystem::path& file);

// A model's weights in a Hugging Face folder: model.safetensors, or else the shards that
// model.safetensors.index.json lists.
//
// Names that a wrapper of the model has left in all of them (torch.compile's _orig_mod., module. of
// data parallel, FSDP's, PEFT's base_model.model.) are taken without.
StoredTensors open_model_weights(const std::filesystem::path& folder);

// Whether the folder's weights have a head and an embedding, and the two differ. false without
// weights.
bool has_head_of_its_own(const std::filesystem::path& folder);

// The tensors of a file's bytes, which must outlive them. `source` is what messages call the file.
StoredTensors parse_safetensors(std::span<const std::byte> bytes, const std::string& source);

// Throws Error if the shape is not `shape`.
void require_shape(const StoredTensor& tensor, std::span<const int64_t> shape);

// The values as fp32, from any of F32, BF16, F16 and F64 (rounded to nearest even). Throws Error if
// the type is another or the shape is not `shape`; out.size() is the number of elements.
void read_floats(const StoredTensor& tensor, std::span<const int64_t> shape, std::span<float> out);

// The stored bits. Throws Error if type or shape differ.
void read_exact(const StoredTensor& tensor, ElementType type, std::span<const int64_t> shape,
                std::span<std::byte> out);

struct TensorToWrite {
  std::string name;
  ElementType type = ElementType::f32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};

// Writes one file atomically (see AtomicFile), with metadata {"format": "pt"}. Throws Error for
// names that appear twice, and InternalError where the bytes do not match the shape.
void write_safetensors(const std::filesystem::path& file, std::span<const TensorToWrite> tensors);

// "[2, 3]".
std::string shape_text(std::span<const int64_t> shape);

}  // namespace coda::io
