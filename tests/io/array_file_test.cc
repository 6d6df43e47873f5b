// SPDX-License-Identifier: Apache-2.0
// Files of arrays: what NumPy writes is read, what is written comes back, and damage is an Error.
#include "coda/array_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "base/stored_element.h"
#include "coda/error.h"
#include "io/npy.h"
#include "io/temp_folder.h"
#include "io/zip_archive.h"

namespace coda {
namespace array_files {
namespace {

using testing::HasSubstr;

// numpy.savez_compressed(x=[[1.5, 2], [3, 4], [5, -6]] as float32, ids=[2, 0] as int64), NumPy 2.2.
const char* const kCompressed =
    "504b03042d000000080000002100181fb412ffffffffffffffff05001400782e6e7079010010009800000000000000"
    "5900"
    "0000000000009bec17ea1b10c9c850c650ad9e925a9c5ca46ea5a06e9366a2aea3a09e965f54529498179f5f94920a"
    "1277"
    "4bcc294e058a17672416a402f91ac63a0a469a3a0ab50a64032e068603f60c0c0c0e4004c40d40bc00880f1c000050"
    "4b03"
    "042d000000080000002100834ff182ffffffffffffffff070014006964732e6e707901001000900000000000000048"
    "0000"
    "00000000009bec17ea1b10c9c850c650ad9e925a9c5ca46ea5a06e9369a1aea3a09e965f54529498179f5f94920a12"
    "774b"
    "cc294e058a17672416a402f91a463a9a3a0ab50a14002e2606540000504b01022d032d0000000800000021"
    "00181fb4125900000098000000050000000000000000000000800100000000782e6e7079504b01022d032d00000008"
    "0000"
    "002100834ff18248000000900000000700000000000000000000008001900000006964732e6e7079504b0506000000"
    "0002"
    "00020068000000110100000000";

std::vector<std::byte> bytes_of(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

std::filesystem::path write(const TempFolder& folder, const std::string& name,
                            const std::vector<std::byte>& bytes) {
  const std::filesystem::path file = folder.path() / name;
  std::ofstream(file, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
  return file;
}

std::string message_of(const std::filesystem::path& file) {
  try {
    read_arrays(file);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(ArrayFile, ReadsWhatNumPyCompresses) {
  const TempFolder folder;
  const Arrays arrays = read_arrays(write(folder, "x.npz", bytes_of(kCompressed)));
  EXPECT_EQ(arrays, (Arrays{{"x", {{3, 2}, {1.5, 2, 3, 4, 5, -6}}}, {"ids", {{2}, {2, 0}}}}));
}

TEST(ArrayFile, WhatIsNotWantedIsNotUnpacked) {
  const TempFolder folder;
  const auto file = write(folder, "x.npz", bytes_of(kCompressed));
  const auto none = [](const std::string&) { return false; };
  EXPECT_TRUE(read_arrays(file, none).empty());
  const std::string name = read_arrays(file).begin()->first;
  const Arrays one = read_arrays(file, [&](const std::string& asked) { return asked == name; });
  EXPECT_EQ(one.size(), 1u);
}

TEST(ArrayFile, WhatIsWrittenComesBackRoundedToItsType) {
  const TempFolder folder;
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  for (const std::string name : {"a.npz", "a.safetensors"}) {
    std::vector<ArrayToWrite> written;
    Arrays expected;
    for (const DType type :
         {DType::f32, DType::f64, DType::f16, DType::bf16, DType::e4m3, DType::e5m2, DType::i32}) {
      for (const std::vector<int64_t>& shape :
           std::vector<std::vector<int64_t>>{{}, {5}, {3, 4}, {2, 1, 3}}) {
        Array array{shape, {}};
        int64_t count = 1;
        for (const int64_t size : shape) count *= size;
        for (int64_t i = 0; i < count; ++i)
          array.values.push_back(type == DType::i32 ? std::floor(9 * normal(random))
                                                    : normal(random));
        const std::string own = std::string(name_of(type)) + "." + std::to_string(shape.size());
        written.push_back({own, type, array});
        for (double& x : array.values) x = rounded_to(type, x);
        expected[own] = array;
      }
    }
    write_arrays(folder.path() / "new" / name, written);
    EXPECT_EQ(read_arrays(folder.path() / "new" / name), expected);
  }
}

// Header and elements as numpy.save writes them.
std::vector<std::byte> npy(const std::string& type, const std::string& order,
                           const std::string& shape, size_t bytes) {
  std::string header =
      "{'descr': '" + type + "', 'fortran_order': " + order + ", 'shape': (" + shape + "), }\n";
  std::string text =
      std::string("\x93NUMPY\x01") + '\0' + static_cast<char>(header.size()) + '\0' + header;
  for (size_t i = 0; i < bytes; ++i) text += static_cast<char>(i);
  const auto all = std::as_bytes(std::span(text));
  return {all.begin(), all.end()};
}

TEST(ArrayFile, ColumnsMayComeFirst) {
  const Array array = io::parse_npy(npy("|u1", "True", "2, 3", 6), "x");
  EXPECT_EQ(array, (Array{{2, 3}, {0, 2, 4, 1, 3, 5}}));
}

TEST(ArrayFile, AnArrayMayBeEmpty) {
  for (const auto& [text, shape] : {std::pair<const char*, std::vector<int64_t>>("2, 0", {2, 0}),
                                    {"0, 3", {0, 3}},
                                    {"4611686018427387904, 4, 0", {4611686018427387904, 4, 0}}})
    EXPECT_EQ(io::parse_npy(npy("<f4", "False", text, 0), "x"), (Array{shape, {}})) << text;
}

TEST(ArrayFile, RefusesWhatItDoesNotReadAndSaysWhatToDo) {
  const auto refusal = [](const std::vector<std::byte>& bytes) {
    try {
      io::parse_npy(bytes, "x");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(refusal(npy("|V2", "False", "3,", 6)), HasSubstr("convert with .astype"));
  EXPECT_THAT(refusal(npy(">f4", "False", "3,", 12)), HasSubstr("'>f4'"));
  EXPECT_THAT(refusal(npy("<f4", "False", "4,", 12)), HasSubstr("not those of [4]"));
  EXPECT_THAT(refusal(npy("<f4", "False", "4611686018427387904, 4", 12)),
              HasSubstr("fewer elements"));
  const TempFolder folder;
  EXPECT_THAT(message_of(folder.path() / "x.csv"), HasSubstr(".npz or .safetensors"));
  EXPECT_THAT(message_of(folder.path() / "none.npz"), HasSubstr("none.npz"));
  EXPECT_THAT(message_of(write(folder, "text.npz", npy("<f4", "False", "3,", 12))),
              HasSubstr("no zip archive"));
}

// Of a file with any byte changed, or cut off anywhere, an array is what it was or is refused.
TEST(ArrayFile, DamageIsRefused) {
  const std::vector<std::byte> whole = bytes_of(kCompressed);
  std::vector<Array> arrays;
  for (const auto& [name, bytes] : io::read_zip(whole, "x"))
    arrays.push_back(io::parse_npy(bytes, name));
  int refused = 0;
  std::mt19937 random(9);
  for (size_t i = 0; i < whole.size(); ++i) {
    for (const bool cut : {false, true}) {
      std::vector<std::byte> damaged = whole;
      if (cut) {
        damaged.resize(i);
      } else {
        damaged[i] ^= static_cast<std::byte>(1 + random() % 255);
      }
      try {
        for (const auto& [name, bytes] : io::read_zip(damaged, "x"))
          EXPECT_THAT(arrays, testing::Contains(io::parse_npy(bytes, name))) << i;
      } catch (const Error&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, std::ssize(whole));
}

}  // namespace
}  // namespace array_files
}  // namespace coda
