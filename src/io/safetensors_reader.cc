// SPDX-License-Identifier: Apache-2.0
// The reader. Everything a header claims is checked against the file before a tensor is handed out:
// each tensor's bytes lie inside the data, fit its type and shape, and all of them together cover
// the data once.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/file_error.h"
#include "coda/error.h"
#include "io/json_text.h"
#include "io/mapped_file.h"
#include "io/safetensors.h"
#include "io/safetensors_header.h"

namespace coda::io {
namespace {

using nlohmann::json;

constexpr std::string_view kFetchAgain =
    " (the file is corrupted or truncated: fetch or write it again)";

[[noreturn]] void fail(const std::string& source, const std::string& problem) {
  throw Error(source + ": " + problem + std::string(kFetchAgain));
}

std::string text(uint64_t number) { return std::to_string(number); }

// A number of the header that must be a whole one in [0, 2^63).
int64_t whole_number(const json& value, const std::string& source, const std::string& what) {
  const bool is_whole = value.is_number_unsigned() && value.get<uint64_t>() <= uint64_t{INT64_MAX};
  if (!is_whole) {
    fail(source, what + " has " + in_quotes(value.dump()) +
                     " where a whole number from 0 to 2^63 - 1 is needed");
  }
  return value.get<int64_t>();
}

struct Extent {
  int64_t begin = 0;
  int64_t end = 0;
  const StoredTensor* tensor = nullptr;
};

// One entry of the header; its bytes are set once the extent is known to be inside the data.
Extent read_entry(const json& entry, const std::string& name, StoredTensor& tensor) {
  const std::string& source = tensor.file;
  const std::string what = "tensor " + in_quotes(name);
  for (const char* key : {"dtype", "shape", "data_offsets"}) {
    if (!entry.is_object() || !entry.contains(key))
      fail(source, what + " has no " + in_quotes(key));
  }
  const json& type = entry.at("dtype");
  const auto known =
      type.is_string() ? element_type_by_name(type.get_ref<const std::string&>()) : std::nullopt;
  if (!known) {
    throw Error(source + ": " + what + " has the unknown type " + in_quotes(type.dump()) +
                " (convert the checkpoint to F32, BF16 or F16)");
  }
  const json& shape = entry.at("shape");
  if (!shape.is_array()) fail(source, what + " has a shape that is no list");
  const json& offsets = entry.at("data_offsets");
  if (!offsets.is_array() || offsets.size() != 2) {
    fail(source, what + " has data_offsets that are no pair");
  }
  tensor.name = name;
  tensor.type = *known;
  for (const json& size : shape) tensor.shape.push_back(whole_number(size, source, what));
  Extent extent{whole_number(offsets[0], source, what), whole_number(offsets[1], source, what),
                &tensor};
  if (extent.begin > extent.end) {
    fail(source, what + " ends at byte " + text(extent.end) + ", before its start at byte " +
                     text(extent.begin));
  }
  const std::optional<int64_t> bytes = bytes_of(tensor.type, tensor.shape);
  if (!bytes) {
    fail(source, what + " of type " + std::string(name_of(tensor.type)) + " and shape " +
                     shape_text(tensor.shape) + " has more than 2^63 - 1 bytes");
  }
  if (*bytes != extent.end - extent.begin) {
    fail(source, what + " of type " + std::string(name_of(tensor.type)) + " and shape " +
                     shape_text(tensor.shape) + " needs " + text(*bytes) +
                     " bytes, but its offsets [" + text(extent.begin) + ", " + text(extent.end) +
                     "] hold " + text(extent.end - extent.begin));
  }
  return extent;
}

// The extents must cover [0, size) without overlap and without holes.
void check_cover(std::vector<Extent> extents, int64_t size, const std::string& source) {
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
    return std::tie(a.begin, a.end, a.tensor->name) < std::tie(b.begin, b.end, b.tensor->name);
  });
  int64_t covered = 0;
  const StoredTensor* before = nullptr;
  for (const Extent& extent : extents) {
    const std::string what = "tensor " + in_quotes(extent.tensor->name);
    if (extent.end > size) {
      fail(source, what + " ends at byte " + text(extent.end) +
                       " of the data, but the file holds " + text(size) + " bytes of data");
    }
    if (extent.begin < covered) {
      fail(source, what + " starts at byte " + text(extent.begin) + " of the data, inside tensor " +
                       in_quotes(before->name) + ", which ends at byte " + text(covered));
    }
    if (extent.begin > covered) {
      fail(source, "bytes " + text(covered) + " to " + text(extent.begin) +
                       " of the data, before " + what + ", belong to no tensor");
    }
    covered = extent.end;
    before = extent.tensor;
  }
  if (covered != size) {
    fail(source, "the tensors end at byte " + text(covered) + " of the data, but the file holds " +
                     text(size) + " bytes of data");
  }
}

void read_metadata(const json& entry, StoredTensors& result) {
  if (!entry.is_object()) fail(result.source, in_quotes(kMetadataName) + " is no object");
  for (const auto& [key, value] : entry.items()) {
    if (!value.is_string()) {
      fail(result.source,
           in_quotes(kMetadataName) + " has a value that is no text for " + in_quotes(key));
    }
    result.metadata[key] = value.get<std::string>();
  }
}

// The header's text, after the length in front of it is checked against the file.
std::string_view header_text(std::span<const std::byte> bytes, const std::string& source) {
  require_not_empty(bytes.size(), source);
  if (bytes.size() < 8) {
    fail(source, "the file has " + text(bytes.size()) +
                     " bytes, too few for a safetensors file, which starts with 8 bytes of header "
                     "length");
  }
  uint64_t length = 0;
  for (size_t i = 0; i < 8; ++i) length |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
  if (length > kLargestHeader) {
    fail(source, "the header's length is given as " + text(length) +
                     " bytes, above the format's limit of " + text(kLargestHeader));
  }
  if (length > bytes.size() - 8) {
    fail(source, "the header's length is given as " + text(length) + " bytes, but only " +
                     text(bytes.size() - 8) + " bytes follow it");
  }
  const std::string_view header(reinterpret_cast<const char*>(bytes.data()) + 8, length);
  if (!header.starts_with('{')) fail(source, "the header does not start with '{'");
  return header;
}

}  // namespace

std::optional<int64_t> bytes_of(ElementType type, std::span<const int64_t> shape) {
  int64_t bytes = size_of(type);
  // A size of 0 makes the product 0, whatever the others are.
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
  }
  return bytes;
}

const StoredTensor* StoredTensors::find(std::string_view name) const {
  const auto found = tensors.find(name);
  return found == tensors.end() ? nullptr : &found->second;
}

const StoredTensor& StoredTensors::at(std::string_view name) const {
  if (const StoredTensor* tensor = find(name)) return *tensor;
  for (const auto& [other, tensor] : tensors) {
    if (!other.ends_with("." + std::string(name))) continue;
    const std::string prefix = in_quotes(other.substr(0, other.size() - name.size()));
    throw Error(source + ": tensor " + in_quotes(name) + " is missing, and there is " +
                in_quotes(other) + ": strip the prefix " + prefix +
                ", in Python by save_file({n.removeprefix(" + prefix +
                "): t for n, t in load_file(f).items()}, f) of safetensors.torch");
  }
  throw Error(source + ": tensor " + in_quotes(name) + " is missing among its " +
              text(tensors.size()) +
              " tensors (the file is not complete, or config.json asks for another model)");
}

StoredTensors parse_safetensors(std::span<const std::byte> bytes, const std::string& source) {
  const std::string_view header = header_text(bytes, source);
  const std::span<const std::byte> data = bytes.subspan(8 + header.size());
  const json entries = parse_json(header, source + ": header");
  StoredTensors result;
  result.source = source;
  std::vector<Extent> extents;
  for (const auto& [name, entry] : entries.items()) {
    if (name == kMetadataName) {
      read_metadata(entry, result);
      continue;
    }
    StoredTensor& tensor = result.tensors[name];
    tensor.file = source;
    extents.push_back(read_entry(entry, name, tensor));
  }
  check_cover(extents, static_cast<int64_t>(data.size()), source);
  for (const Extent& extent : extents) {
    StoredTensor& tensor = result.tensors.find(extent.tensor->name)->second;
    tensor.bytes = data.subspan(static_cast<size_t>(extent.begin),
                                static_cast<size_t>(extent.end - extent.begin));
  }
  return result;
}

StoredTensors open_safetensors(const std::filesystem::path& file) {
  auto mapped = std::make_shared<const MappedFile>(file);
  StoredTensors result = parse_safetensors(mapped->bytes(), printable(file));
  require_whole(mapped->bytes());
  result.files.push_back(std::move(mapped));
  return result;
}

}  // namespace coda::io
