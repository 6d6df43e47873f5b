// SPDX-License-Identifier: Apache-2.0
// The element types of the format, and conversions of stored values to fp32.
#include <array>
#include <cstring>

#include "base/file_error.h"
#include "coda/error.h"
#include "coda/float16.h"
#include "io/mapped_file.h"
#include "io/safetensors.h"
#include "io/safetensors_header.h"

namespace coda::io {
namespace {

struct ElementRow {
  std::string_view name;
  int64_t size;
};
constexpr std::array<ElementRow, 15> kElements = {{
    {"BOOL", 1},
    {"U8", 1},
    {"I8", 1},
    {"F8_E5M2", 1},
    {"F8_E4M3", 1},
    {"I16", 2},
    {"U16", 2},
    {"F16", 2},
    {"BF16", 2},
    {"I32", 4},
    {"U32", 4},
    {"F32", 4},
    {"F64", 8},
    {"I64", 8},
    {"U64", 8},
}};
static_assert(kElements.size() == static_cast<size_t>(ElementType::u64) + 1);

// Data may lie unaligned in a file: every element is copied out.
template <typename Stored, typename Convert>
void convert(std::span<const std::byte> bytes, std::span<float> out, Convert to_float) {
  for (size_t i = 0; i < out.size(); ++i) {
    Stored stored;
    std::memcpy(&stored, bytes.data() + i * sizeof stored, sizeof stored);
    out[i] = to_float(stored);
  }
}

}  // namespace

void require_shape(const StoredTensor& tensor, std::span<const int64_t> shape) {
  if (std::equal(shape.begin(), shape.end(), tensor.shape.begin(), tensor.shape.end())) return;
  throw Error(tensor.file + ": tensor " + in_quotes(tensor.name) + " has shape " +
              shape_text(tensor.shape) + ", but the model needs " + shape_text(shape) +
              " (config.json and the weights do not belong together)");
}

std::string_view name_of(ElementType type) { return kElements[static_cast<size_t>(type)].name; }
int64_t size_of(ElementType type) { return kElements[static_cast<size_t>(type)].size; }

std::optional<ElementType> element_type_by_name(std::string_view name) {
  for (size_t i = 0; i < kElements.size(); ++i) {
    if (kElements[i].name == name) return static_cast<ElementType>(i);
  }
  return std::nullopt;
}

ElementType element_type_of(DType type) {
  switch (type) {
    case DType::f32: return ElementType::f32;
    case DType::bf16: return ElementType::bf16;
    case DType::f16: return ElementType::f16;
    case DType::f64: return ElementType::f64;
    case DType::i32: return ElementType::i32;
    case DType::e4m3: return ElementType::f8_e4m3;
    case DType::e5m2: return ElementType::f8_e5m2;
    case DType::u8: return ElementType::u8;
  }
  throw InternalError("safetensors: a type that has no name in the format");
}

int64_t StoredTensor::count() const { return static_cast<int64_t>(bytes.size()) / size_of(type); }

std::string shape_text(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + "]";
}

void read_floats(const StoredTensor& tensor, std::span<const int64_t> shape, std::span<float> out) {
  require_shape(tensor, shape);
  invariant(static_cast<int64_t>(out.size()) == tensor.count(),
            "read_floats: the output does not have the tensor's size");
  switch (tensor.type) {
    case ElementType::f32:
      if (!out.empty()) std::memcpy(out.data(), tensor.bytes.data(), tensor.bytes.size());
      break;
    case ElementType::bf16: convert<uint16_t>(tensor.bytes, out, float_from_bf16); break;
    case ElementType::f16: convert<uint16_t>(tensor.bytes, out, float_from_f16); break;
    case ElementType::f64:
      convert<double>(tensor.bytes, out, [](double x) { return static_cast<float>(x); });
      break;
    default:
      throw Error(tensor.file + ": tensor " + in_quotes(tensor.name) + " has type " +
                  std::string(name_of(tensor.type)) +
                  ", but F32, BF16, F16 or F64 is needed (convert the checkpoint to one of them)");
  }
  require_whole(tensor.bytes);
}

void read_exact(const StoredTensor& tensor, ElementType type, std::span<const int64_t> shape,
                std::span<std::byte> out) {
  require_shape(tensor, shape);
  if (tensor.type != type) {
    throw Error(tensor.file + ": tensor " + in_quotes(tensor.name) + " has type " +
                std::string(name_of(tensor.type)) + ", but " + std::string(name_of(type)) +
                " is needed (the file was not written for this use)");
  }
  invariant(out.size() == tensor.bytes.size(),
            "read_exact: the output does not have the tensor's size");
  if (!out.empty()) std::memcpy(out.data(), tensor.bytes.data(), out.size());
  require_whole(tensor.bytes);
}

}  // namespace coda::io
