// SPDX-License-Identifier: Apache-2.0
#include "io/npy.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/stored_element.h"
#include "coda/error.h"
#include "coda/messages.h"

namespace coda::io {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

struct Header {
  std::string type;  // "<f4"
  bool columns_first = false;
  std::vector<int64_t> shape;
};

// The text behind 'KEY': in the dictionary.
std::string_view behind(std::string_view dictionary, const std::string& key,
                        const std::string& source) {
  const size_t at = dictionary.find("'" + key + "'");
  const size_t colon = at == std::string_view::npos ? at : dictionary.find(':', at);
  require(colon != std::string_view::npos, source + ": the header has no '" + key + "'");
  const size_t start = dictionary.find_first_not_of(' ', colon + 1);
  return start == std::string_view::npos ? "" : dictionary.substr(start);
}

Header header_of(std::string_view dictionary, const std::string& source) {
  Header header;
  const std::string_view type = behind(dictionary, "descr", source);
  const size_t quote = type.starts_with('\'') ? type.find('\'', 1) : std::string_view::npos;
  require(quote != std::string_view::npos,
          source + ": the elements are records; arrays of numbers are read");
  header.type = type.substr(1, quote - 1);
  header.columns_first = behind(dictionary, "fortran_order", source).starts_with("True");
  std::string_view shape = behind(dictionary, "shape", source);
  const size_t end = shape.find(')');
  require(shape.starts_with('(') && end != std::string_view::npos,
          source + ": the header has no shape");
  shape = shape.substr(1, end - 1);
  while (!shape.empty()) {
    if (shape.front() == ' ' || shape.front() == ',') {
      shape.remove_prefix(1);
      continue;
    }
    int64_t size = 0;
    const auto [stop, error] = std::from_chars(shape.data(), shape.data() + shape.size(), size);
    require(error == std::errc() && size >= 0, source + ": the header's shape cannot be read");
    header.shape.push_back(size);
    shape.remove_prefix(static_cast<size_t>(stop - shape.data()));
  }
  return header;
}

template <typename T>
double element(const std::byte* data) {
  T value;
  std::memcpy(&value, data, sizeof value);
  const auto number = static_cast<double>(value);
  if constexpr (sizeof(T) == 8 && !std::is_floating_point_v<T>)
    require(std::abs(number) <= 0x1p53, "a whole number is larger than 2^53");
  return number;
}
double half(const std::byte* data) { return read_element(DType::f16, data, 0); }

struct NpyType {
  std::string_view name;  // without the order of bytes
  size_t size;
  double (*element)(const std::byte*);
};
constexpr NpyType kTypes[] = {
    {"f4", 4, element<float>},    {"f8", 8, element<double>},   {"f2", 2, half},
    {"i4", 4, element<int32_t>},  {"i8", 8, element<int64_t>},  {"i2", 2, element<int16_t>},
    {"i1", 1, element<int8_t>},   {"u1", 1, element<uint8_t>},  {"u2", 2, element<uint16_t>},
    {"u4", 4, element<uint32_t>}, {"u8", 8, element<uint64_t>}, {"b1", 1, element<uint8_t>},
};

// From an order in which the first dimension varies fastest.
Array rows_first(const Array& array) {
  Array result = array;
  const int64_t count = std::ssize(array.values);
  std::vector<int64_t> at(array.shape.size(), 0);
  for (int64_t i = 0; i < count; ++i) {
    int64_t place = 0;
    for (size_t axis = array.shape.size(); axis-- > 0;)
      place = place * array.shape[axis] + at[axis];
    result.values[static_cast<size_t>(i)] = array.values[static_cast<size_t>(place)];
    for (size_t axis = array.shape.size(); axis-- > 0;) {
      if (++at[axis] < array.shape[axis]) break;
      at[axis] = 0;
    }
  }
  return result;
}

}  // namespace

Array parse_npy(std::span<const std::byte> bytes, const std::string& source) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  require(text.starts_with(kMagic) && text.size() > 12, source + ": this is no array of NumPy's");
  const auto byte_at = [&](size_t i) { return static_cast<size_t>(bytes[i]); };
  const bool is_first_version = byte_at(6) == 1;
  const size_t start = is_first_version ? 10 : 12;
  size_t length = byte_at(8) | byte_at(9) << 8;
  if (!is_first_version) length |= byte_at(10) << 16 | byte_at(11) << 24;
  require(length <= text.size() - start, source + ": the header is cut off");
  const Header header = header_of(text.substr(start, length), source);
  const std::string name = header.type.substr(header.type.empty() ? 0 : 1);
  const auto* type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                  [&](const NpyType& t) { return t.name == name; });
  require(type != std::end(kTypes) && header.type.front() != '>',
          source + ": elements of the type " + in_quotes(header.type) +
              " are not read (convert with .astype(numpy.float32))");
  Array array{header.shape, {}};
  const std::span<const std::byte> data = bytes.subspan(start + length);
  uint64_t count = std::ranges::count(header.shape, 0) == 0 ? 1 : 0;
  for (const int64_t size : header.shape) {
    // No more elements than bytes, so that the product stays small; 0 of them is checked below.
    require(count == 0 || count <= data.size() / static_cast<uint64_t>(size),
            source + ": there are fewer elements than the shape " + shape_text(array) + " has");
    count *= static_cast<uint64_t>(size);
  }
  require(count * type->size == data.size(), source + ": there are " + std::to_string(data.size()) +
                                                 " bytes of elements, not those of " +
                                                 shape_text(array));
  array.values.resize(count);
  for (size_t i = 0; i < count; ++i) array.values[i] = type->element(&data[i * type->size]);
  return header.columns_first ? rows_first(array) : array;
}

std::vector<std::byte> npy_of(const Array& array, DType dtype) {
  const bool is_known = dtype == DType::f32 || dtype == DType::f64 || dtype == DType::f16 ||
                        dtype == DType::i32 || dtype == DType::u8;
  const DType stored = is_known ? dtype : DType::f32;
  const char* type = stored == DType::f64   ? "<f8"
                     : stored == DType::f16 ? "<f2"
                     : stored == DType::i32 ? "<i4"
                     : stored == DType::u8  ? "|u1"
                                            : "<f4";
  std::string shape;
  for (const int64_t size : array.shape) shape += std::to_string(size) + ", ";
  std::string header =
      "{'descr': '" + std::string(type) + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  constexpr size_t kStart = 10;
  constexpr size_t kAlignment = 64;
  header.append(kAlignment - 1 - (kStart + header.size()) % kAlignment, ' ');
  header += '\n';
  std::string text(kMagic);
  text += {1, 0, static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  text += header;
  std::vector<std::byte> bytes(text.size() +
                               array.values.size() * static_cast<size_t>(size_of(stored)));
  std::memcpy(bytes.data(), text.data(), text.size());
  for (size_t i = 0; i < array.values.size(); ++i)
    write_element(stored, bytes.data() + text.size(), static_cast<int64_t>(i),
                  rounded_to(dtype, array.values[i]));
  return bytes;
}

}  // namespace coda::io
