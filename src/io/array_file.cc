// SPDX-License-Identifier: Apache-2.0
#include "coda/array_file.h"

#include <cmath>
#include <cstring>

#include "base/atomic_file.h"
#include "base/stored_element.h"
#include "coda/error.h"
#include "coda/messages.h"
#include "io/mapped_file.h"
#include "io/npy.h"
#include "io/safetensors.h"
#include "io/zip_archive.h"

namespace coda {
namespace {

using io::ElementType;

bool is_npz(const std::filesystem::path& file) { return file.extension() == ".npz"; }

template <typename T>
double whole(const std::byte* data) {
  T value;
  std::memcpy(&value, data, sizeof value);
  return static_cast<double>(value);
}

// An element of a type that programs do not have.
double other_element(ElementType type, const std::byte* data) {
  switch (type) {
    case ElementType::boolean:
    case ElementType::u8: return whole<uint8_t>(data);
    case ElementType::i8: return whole<int8_t>(data);
    case ElementType::i16: return whole<int16_t>(data);
    case ElementType::u16: return whole<uint16_t>(data);
    case ElementType::u32: return whole<uint32_t>(data);
    case ElementType::i64: return whole<int64_t>(data);
    case ElementType::u64: return whole<uint64_t>(data);
    default: throw InternalError("a type of safetensors files has no numbers");
  }
}

Array array_of(const io::StoredTensor& tensor) {
  Array array{tensor.shape, std::vector<double>(static_cast<size_t>(tensor.count()))};
  const int64_t size = io::size_of(tensor.type);
  std::vector<std::byte> element(8);
  for (size_t i = 0; i < array.values.size(); ++i) {
    std::memcpy(element.data(), &tensor.bytes[i * static_cast<size_t>(size)],
                static_cast<size_t>(size));
    bool is_ours = false;
    for (const DType type : kDTypes) {
      if (io::element_type_of(type) != tensor.type) continue;
      array.values[i] = read_element(type, element.data(), 0);
      is_ours = true;
    }
    if (!is_ours) array.values[i] = other_element(tensor.type, element.data());
    require(tensor.type != ElementType::i64 || std::abs(array.values[i]) <= 0x1p53,
            tensor.file + ": tensor " + in_quotes(tensor.name) + " has a number larger than 2^53");
  }
  io::require_whole(tensor.bytes);
  return array;
}

}  // namespace

void require_array_file(const std::filesystem::path& file) {
  require(is_npz(file) || file.extension() == ".safetensors",
          printable(file) + ": arrays are in files .npz or .safetensors");
}

Arrays read_arrays(const std::filesystem::path& file,
                   const std::function<bool(const std::string&)>& is_wanted) {
  require_array_file(file);
  Arrays arrays;
  if (!is_npz(file)) {
    const io::StoredTensors stored = io::open_safetensors(file);
    for (const auto& [name, tensor] : stored.tensors)
      if (!is_wanted || is_wanted(name)) arrays[name] = array_of(tensor);
    return arrays;
  }
  const io::MappedFile mapped(file);
  const std::string source = printable(file);
  constexpr std::string_view kEnd = ".npy";
  const auto is_wanted_member = [&](const std::string& member) {
    return member.ends_with(kEnd) &&
           (!is_wanted || is_wanted(member.substr(0, member.size() - kEnd.size())));
  };
  for (const auto& [member, bytes] : io::read_zip(mapped.bytes(), source, is_wanted_member)) {
    const std::string name = member.substr(0, member.size() - kEnd.size());
    arrays[name] = io::parse_npy(bytes, source + ": array " + in_quotes(name));
  }
  io::require_whole(mapped.bytes());
  return arrays;
}

void write_arrays(const std::filesystem::path& file, std::span<const ArrayToWrite> arrays) {
  require_array_file(file);
  if (file.has_parent_path()) make_folders(file.parent_path());
  if (is_npz(file)) {
    std::vector<std::pair<std::string, std::vector<std::byte>>> members;
    for (const ArrayToWrite& one : arrays)
      members.emplace_back(one.name + ".npy", io::npy_of(one.array, one.dtype));
    const std::vector<std::byte> archive = io::zip_of(members, printable(file));
    AtomicFile out(file);
    out.write(archive);
    out.commit();
    return;
  }
  std::vector<std::vector<std::byte>> bytes;
  std::vector<io::TensorToWrite> tensors;
  for (const ArrayToWrite& one : arrays) {
    auto& data =
        bytes.emplace_back(one.array.values.size() * static_cast<size_t>(size_of(one.dtype)));
    for (size_t i = 0; i < one.array.values.size(); ++i)
      write_element(one.dtype, data.data(), static_cast<int64_t>(i), one.array.values[i]);
  }
  for (size_t i = 0; i < arrays.size(); ++i)
    tensors.push_back(
        {arrays[i].name, io::element_type_of(arrays[i].dtype), arrays[i].array.shape, bytes[i]});
  io::write_safetensors(file, tensors);
}

}  // namespace coda
