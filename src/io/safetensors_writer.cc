// SPDX-License-Identifier: Apache-2.0
// The writer: tensors in the official library's order (wider types first, then by name), so that
// the data of each type is aligned and the bytes are the same as that library's.
#include <algorithm>
#include <array>
#include <bit>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/atomic_file.h"
#include "base/file_error.h"
#include "coda/error.h"
#include "io/safetensors.h"
#include "io/safetensors_header.h"

namespace coda::io {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

std::string escaped(std::string_view text) { return nlohmann::json(text).dump(); }

std::string header_of(std::span<const TensorToWrite* const> tensors) {
  std::string header = "{" + escaped(kMetadataName) + R"(:{"format":"pt"})";
  uint64_t offset = 0;
  for (const TensorToWrite* tensor : tensors) {
    header += "," + escaped(tensor->name) + R"(:{"dtype":")" + std::string(name_of(tensor->type)) +
              R"(","shape":[)";
    for (size_t i = 0; i < tensor->shape.size(); ++i) {
      header += (i == 0 ? "" : ",") + std::to_string(tensor->shape[i]);
    }
    const uint64_t end = offset + tensor->bytes.size();
    header += R"(],"data_offsets":[)" + std::to_string(offset) + "," + std::to_string(end) + "]}";
    offset = end;
  }
  header += "}";
  header.append((8 - header.size() % 8) % 8, ' ');
  return header;
}

}  // namespace

void write_safetensors(const std::filesystem::path& file, std::span<const TensorToWrite> tensors) {
  std::vector<const TensorToWrite*> order(tensors.size());
  std::transform(tensors.begin(), tensors.end(), order.begin(),
                 [](const TensorToWrite& tensor) { return &tensor; });
  std::sort(order.begin(), order.end(), [](const TensorToWrite* a, const TensorToWrite* b) {
    return a->type != b->type ? a->type > b->type : a->name < b->name;
  });
  std::vector<std::string_view> names;
  for (const TensorToWrite* tensor : order) {
    const bool sizes_are_good =
        std::all_of(tensor->shape.begin(), tensor->shape.end(), [](int64_t n) { return n >= 0; });
    invariant(sizes_are_good && bytes_of(tensor->type, tensor->shape) ==
                                    static_cast<int64_t>(tensor->bytes.size()),
              "write_safetensors: a tensor's bytes do not match its shape");
    require(tensor->name != kMetadataName, printable(file) + ": a tensor cannot be named " +
                                               in_quotes(kMetadataName) + " (choose another name)");
    names.push_back(tensor->name);
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) {
    throw Error(printable(file) + ": two tensors are named " + in_quotes(*twice) + " (rename one)");
  }

  const std::string header = header_of(order);
  require(header.size() <= kLargestHeader,
          printable(file) + ": the header would take " + std::to_string(header.size()) +
              " bytes, more than the format's limit of " + std::to_string(kLargestHeader) +
              " (write fewer tensors to a file)");
  std::array<std::byte, 8> length;
  for (size_t i = 0; i < length.size(); ++i) {
    length[i] = static_cast<std::byte>(static_cast<uint64_t>(header.size()) >> (8 * i));
  }
  AtomicFile out(file);
  out.write(length);
  out.write(header);
  for (const TensorToWrite* tensor : order) out.write(tensor->bytes);
  out.commit();
}

}  // namespace coda::io
