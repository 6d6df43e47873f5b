// SPDX-License-Identifier: Apache-2.0
// safetensors: the bytes are the official library's, what was written reads back to the bit, and
// every malformed file is refused with a message that names the tensor and the numbers.
#include "io/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <random>

#include "base/atomic_file.h"
#include "io/error_message.h"
#include "io/failing_disk.h"
#include "io/mapped_file.h"
#include "io/temp_folder.h"

namespace coda::io {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;
using namespace std::string_literals;

template <typename T>
std::span<const std::byte> bytes_of_values(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

std::string with_length(const std::string& header, const std::string& data, uint64_t length) {
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + header + data;
}

std::string file_of(const std::string& header, const std::string& data) {
  return with_length(header, data, header.size());
}

StoredTensors parse(const std::string& file) {
  return parse_safetensors(std::as_bytes(std::span(file)), "x.safetensors");
}

std::string message_of(const std::string& file) {
  return error_message([&] { parse(file); });
}

// A file of one tensor 'w' with this entry, and 16 bytes of data.
std::string message_of_entry(const std::string& entry) {
  return message_of(file_of("{\"w\":" + entry + "}", std::string(16, 'd')));
}

TEST(Safetensors, WritesTheOfficialLibrarysBytes) {
  // Made with safetensors 0.8.0: safetensors.numpy.save of the same arrays in another order.
  const std::string official =
      "p\x01\0\0\0\0\0\0"
      "{\"__metadata__\":{\"format\":\"pt\"},"
      "\"c.i\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]},"
      "\"\xc3\xa9\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[8,16]},"
      "\"b\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[16,40]},"
      "\"e\":{\"dtype\":\"F32\",\"shape\":[0,4],\"data_offsets\":[40,40]},"
      "\"d\":{\"dtype\":\"I32\",\"shape\":[3],\"data_offsets\":[40,52]},"
      "\"a\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[52,56]}}   "
      "\x07\0\0\0\0\0\0\0\0\0\0\0\0\0\x04@\0\0\0\0\0\0\x80?\0\0\0@\0\0@@\0\0\x80@\0\0\xa0@"
      "\x01\0\0\0\x02\0\0\0\x03\0\0\0\0<\0@"s;
  const std::vector<float> b = {0, 1, 2, 3, 4, 5};
  const std::vector<uint16_t> a = {0x3c00, 0x4000};
  const std::vector<int64_t> c = {7};
  const std::vector<int32_t> d = {1, 2, 3};
  const std::vector<double> scalar = {2.5};
  const std::vector<TensorToWrite> tensors = {
      {"b", ElementType::f32, {2, 3}, bytes_of_values(b)},
      {"a", ElementType::f16, {2}, bytes_of_values(a)},
      {"c.i", ElementType::i64, {1}, bytes_of_values(c)},
      {"d", ElementType::i32, {3}, bytes_of_values(d)},
      {"\xc3\xa9", ElementType::f64, {}, bytes_of_values(scalar)},
      {"e", ElementType::f32, {0, 4}, {}},
  };
  const TempFolder folder;
  write_safetensors(folder / "x.safetensors", tensors);
  EXPECT_EQ(read_file(folder / "x.safetensors"), official);
  EXPECT_THAT(folder.entries(), ElementsAre("x.safetensors"));

  const StoredTensors read = open_safetensors(folder / "x.safetensors");
  EXPECT_EQ(read.tensors.size(), tensors.size());
  EXPECT_EQ(read.metadata.at("format"), "pt");
  for (const TensorToWrite& tensor : tensors) {
    const StoredTensor& stored = read.at(tensor.name);
    EXPECT_EQ(stored.type, tensor.type) << tensor.name;
    EXPECT_EQ(stored.shape, tensor.shape) << tensor.name;
    std::vector<std::byte> bytes(tensor.bytes.size());
    read_exact(stored, tensor.type, tensor.shape, bytes);
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), tensor.bytes.begin())) << tensor.name;
  }
}

TEST(Safetensors, OrdersTypesAsTheOfficialLibrary) {
  const std::vector<std::byte> data(16);
  const auto tensor = [&](const std::string& name, ElementType type) {
    return TensorToWrite{name, type, {2}, std::span(data).first(2 * size_of(type))};
  };
  const TempFolder folder;
  write_safetensors(folder / "x",
                    std::vector{tensor("f32b", ElementType::f32), tensor("f16", ElementType::f16),
                                tensor("bf16", ElementType::bf16), tensor("f64", ElementType::f64),
                                tensor("bool", ElementType::boolean), tensor("u8", ElementType::u8),
                                tensor("f32", ElementType::f32), tensor("i64", ElementType::i64),
                                tensor("i32", ElementType::i32)});
  const StoredTensors read = open_safetensors(folder / "x");
  std::vector<std::pair<const std::byte*, std::string>> order;
  for (const auto& [name, stored] : read.tensors) order.emplace_back(stored.bytes.data(), name);
  std::sort(order.begin(), order.end());
  std::vector<std::string> names;
  for (const auto& [place, name] : order) names.push_back(name);
  EXPECT_THAT(names, ElementsAre("i64", "f64", "f32", "f32b", "i32", "bf16", "f16", "u8", "bool"));
}

TEST(Safetensors, ReadsEveryFloatingTypeAsFloats) {
  const std::vector<double> values = {0.0, 1.5, -2.0, std::numeric_limits<double>::infinity()};
  const std::vector<uint16_t> bf16 = {0x0000, 0x3fc0, 0xc000, 0x7f80};
  const std::vector<uint16_t> f16 = {0x0000, 0x3e00, 0xc000, 0x7c00};
  const std::vector<float> f32(values.begin(), values.end());
  const TempFolder folder;
  write_safetensors(folder / "x", std::vector<TensorToWrite>{
                                      {"f64", ElementType::f64, {2, 2}, bytes_of_values(values)},
                                      {"f32", ElementType::f32, {2, 2}, bytes_of_values(f32)},
                                      {"f16", ElementType::f16, {2, 2}, bytes_of_values(f16)},
                                      {"bf16", ElementType::bf16, {2, 2}, bytes_of_values(bf16)},
                                  });
  const StoredTensors read = open_safetensors(folder / "x");
  const std::vector<int64_t> shape = {2, 2};
  for (const auto& [name, stored] : read.tensors) {
    std::vector<float> floats(4);
    read_floats(stored, shape, floats);
    EXPECT_EQ(floats, f32) << name;
  }
}

TEST(Safetensors, ReadsUnalignedData) {
  const std::string data("\0\0\x80?\0\0\0@", 8);
  std::string header = R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  while (header.size() % 4 != 1) header += ' ';
  const std::string file = file_of(header, data);
  const StoredTensors read = parse(file);
  std::vector<float> floats(2);
  read_floats(read.at("w"), std::vector<int64_t>{2}, floats);
  EXPECT_THAT(floats, ElementsAre(1.0f, 2.0f));
}

TEST(Safetensors, AcceptsTypesThatItCannotConvertUntilTheyAreAskedFor) {
  const std::string file =
      file_of(R"({"m":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})", "\1\0\1"s);
  const StoredTensors read = parse(file);
  std::vector<float> floats(3);
  EXPECT_THAT(error_message([&] { read_floats(read.at("m"), std::vector<int64_t>{3}, floats); }),
              AllOf(HasSubstr("x.safetensors: tensor 'm' has type BOOL"),
                    HasSubstr("convert the checkpoint")));
}

TEST(Safetensors, AFileWithoutTensorsIsFine) {
  EXPECT_TRUE(parse(file_of("{}", "")).tensors.empty());
  EXPECT_TRUE(parse(file_of("{}      ", "")).tensors.empty());
}

TEST(Safetensors, AskingForTheWrongTensorNamesIt) {
  const std::string file =
      file_of(R"({"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})", std::string(16, 0));
  const StoredTensors read = parse(file);
  std::vector<float> floats(4);
  EXPECT_THAT(error_message([&] { read.at("model.norm.weight"); }),
              HasSubstr("x.safetensors: tensor 'model.norm.weight' is missing"));
  EXPECT_THAT(error_message([&] { read_floats(read.at("w"), std::vector<int64_t>{4, 1}, floats); }),
              HasSubstr("tensor 'w' has shape [2, 2], but the model needs [4, 1]"));
  EXPECT_THAT(error_message([&] {
                read_exact(read.at("w"), ElementType::i32, std::vector<int64_t>{2, 2},
                           std::as_writable_bytes(std::span(floats)));
              }),
              HasSubstr("tensor 'w' has type F32, but I32 is needed"));
}

TEST(Safetensors, RefusesBadLengths) {
  EXPECT_THAT(message_of(""), AllOf(StartsWith("x.safetensors: "), HasSubstr("the file is empty")));
  EXPECT_THAT(message_of("1234567"), HasSubstr("7 bytes, too few"));
  EXPECT_THAT(message_of(with_length("{}", "", 3)),
              HasSubstr("length is given as 3 bytes, but only 2 bytes follow"));
  EXPECT_THAT(message_of(with_length("{}", "", 100'000'001)),
              HasSubstr("100000001 bytes, above the format's limit of 100000000"));
  EXPECT_THAT(message_of(with_length("{}", "", UINT64_MAX)), HasSubstr("18446744073709551615"));
  EXPECT_THAT(message_of(with_length("", "", 0)), HasSubstr("does not start with '{'"));
}

TEST(Safetensors, RefusesBadHeaders) {
  EXPECT_THAT(message_of(file_of("[]", "")), HasSubstr("does not start with '{'"));
  EXPECT_THAT(message_of(file_of("{\n\"a\" 1}", "")),
              HasSubstr("x.safetensors: header: not valid JSON at line 2, column 5"));
  EXPECT_THAT(message_of(file_of("{\"a\":", "")), HasSubstr("ends too early"));
  EXPECT_THAT(message_of(file_of("{\"\xff\":1}", "")), HasSubstr("not valid JSON"));
  EXPECT_THAT(message_of(file_of("{\"a\":1e999}", "")), HasSubstr("a number is out of range"));
  EXPECT_THAT(message_of(file_of("{" + std::string(100000, '['), "")), HasSubstr("not valid JSON"));
  EXPECT_THAT(message_of(file_of("{\"a\":" + std::string(100000, '['), "")),
              HasSubstr("levels of brackets"));
  const std::string entry = R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  EXPECT_THAT(message_of(file_of("{\"w\":" + entry + ",\"w\":" + entry + "}", "12345678")),
              HasSubstr("'w' appears twice"));
  EXPECT_THAT(message_of(file_of(R"({"__metadata__":{"a":1}})", "")), HasSubstr("no text for 'a'"));
  EXPECT_THAT(message_of(file_of(R"({"__metadata__":[]})", "")), HasSubstr("is no object"));
}

// Time is proportional to the header: where each entry goes through all others these take minutes.
TEST(Safetensors, ManyEmptyTensorsAreRead) {
  constexpr int kTensors = 80000;
  std::string header;
  for (int i = 0; i < kTensors; ++i) {
    header += (i == 0 ? "{\"t" : ",\"t") + std::to_string(i) +
              R"(":{"dtype":"F32","shape":[0],"data_offsets":[0,0]})";
  }
  const std::string file = file_of(header + "}", "");
  const StoredTensors stored = parse_safetensors(std::as_bytes(std::span(file)), "x.safetensors");
  EXPECT_EQ(stored.tensors.size(), size_t{kTensors});
}

TEST(Safetensors, RefusesBadEntries) {
  EXPECT_THAT(message_of_entry("7"), HasSubstr("tensor 'w' has no 'dtype'"));
  EXPECT_THAT(message_of_entry(R"({"dtype":"F32","data_offsets":[0,16]})"),
              HasSubstr("tensor 'w' has no 'shape'"));
  EXPECT_THAT(message_of_entry(R"({"dtype":"F32","shape":[4]})"), HasSubstr("no 'data_offsets'"));
  EXPECT_THAT(message_of_entry(R"({"dtype":"Q4","shape":[4],"data_offsets":[0,16]})"),
              HasSubstr("tensor 'w' has the unknown type '\"Q4\"'"));
  EXPECT_THAT(message_of_entry(R"({"dtype":4,"shape":[4],"data_offsets":[0,16]})"),
              HasSubstr("unknown type '4'"));
  EXPECT_THAT(message_of_entry(R"({"dtype":"F32","shape":4,"data_offsets":[0,16]})"),
              HasSubstr("a shape that is no list"));
  EXPECT_THAT(message_of_entry(R"({"dtype":"F32","shape":[4],"data_offsets":[0]})"),
              HasSubstr("no pair"));
  EXPECT_THAT(message_of_entry(R"({"dtype":"F32","shape":[-4],"data_offsets":[0,16]})"),
              HasSubstr("'-4' where a whole number"));
  EXPECT_THAT(message_of_entry(R"({"dtype":"F32","shape":[4.0],"data_offsets":[0,16]})"),
              HasSubstr("'4.0' where a whole number"));
  EXPECT_THAT(
      message_of_entry(R"({"dtype":"F32","shape":[4],"data_offsets":[0,9223372036854775808]})"),
      HasSubstr("'9223372036854775808' where a whole number"));
  EXPECT_THAT(message_of_entry(R"({"dtype":"F32","shape":[4],"data_offsets":[16,0]})"),
              HasSubstr("ends at byte 0, before its start at byte 16"));
  EXPECT_THAT(message_of_entry(R"({"dtype":"F32","shape":[3],"data_offsets":[0,16]})"),
              HasSubstr("shape [3] needs 12 bytes, but its offsets [0, 16] hold 16"));
  EXPECT_THAT(
      message_of_entry(R"({"dtype":"F32","shape":[2147483648,4294967296],"data_offsets":[0,16]})"),
      HasSubstr("shape [2147483648, 4294967296] has more than 2^63 - 1 bytes"));
  EXPECT_THAT(message_of(file_of("{\"a\\nb\":7}", "")), HasSubstr("tensor 'a\\x0ab' has no"));
}

TEST(Safetensors, RefusesOffsetsThatDoNotCoverTheDataOnce) {
  const auto two = [](const std::string& first, const std::string& second) {
    return message_of(file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":)" + first +
                                  R"(},"b":{"dtype":"F32","shape":[2],"data_offsets":)" + second +
                                  "}}",
                              std::string(16, 'd')));
  };
  EXPECT_EQ(two("[0,8]", "[8,16]"), "");
  EXPECT_EQ(two("[8,16]", "[0,8]"), "");
  EXPECT_THAT(two("[0,8]", "[4,12]"),
              HasSubstr("tensor 'b' starts at byte 4 of the data, inside tensor 'a', which ends at "
                        "byte 8"));
  EXPECT_THAT(two("[0,8]", "[0,8]"), HasSubstr("starts at byte 0 of the data, inside tensor 'a'"));
  EXPECT_THAT(two("[4,12]", "[12,20]"),
              HasSubstr("bytes 0 to 4 of the data, before tensor 'a', belong to no tensor"));
  EXPECT_THAT(two("[0,8]", "[9,17]"), HasSubstr("tensor 'b' ends at byte 17 of the data"));
  EXPECT_THAT(message_of_entry(R"({"dtype":"F32","shape":[3],"data_offsets":[0,12]})"),
              HasSubstr("the tensors end at byte 12 of the data, but the file holds 16"));
  // A tensor without elements lies between others, but not inside one.
  const auto empty_at = [](const std::string& offsets) {
    return message_of(file_of(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},)"
                              R"("e":{"dtype":"F32","shape":[0],"data_offsets":)" +
                                  offsets + "}}",
                              std::string(16, 'd')));
  };
  EXPECT_EQ(empty_at("[0,0]"), "");
  EXPECT_EQ(empty_at("[16,16]"), "");
  EXPECT_THAT(empty_at("[8,8]"), HasSubstr("inside tensor 'a'"));
}

TEST(Safetensors, RefusesAFileCutAtAnyByte) {
  const std::vector<float> values = {1, 2, 3, 4};
  const TempFolder folder;
  write_safetensors(folder / "x",
                    std::vector<TensorToWrite>{
                        {"a", ElementType::f32, {2}, std::as_bytes(std::span(values)).first(8)},
                        {"b", ElementType::f32, {2}, std::as_bytes(std::span(values)).last(8)}});
  const std::string file = read_file(folder / "x");
  EXPECT_EQ(message_of(file), "");
  for (size_t length = 0; length < file.size(); ++length) {
    EXPECT_NE(message_of(file.substr(0, length)), "") << length << " bytes of " << file.size();
  }
  EXPECT_THAT(message_of(file + "x"), HasSubstr("but the file holds 17 bytes of data"));
}

TEST(Safetensors, WritingRefusesNamesThatCollide) {
  const std::vector<float> value = {1};
  const TensorToWrite w{"w", ElementType::f32, {1}, bytes_of_values(value)};
  TensorToWrite as_bits = w;
  as_bits.type = ElementType::i32;
  const TempFolder folder;
  EXPECT_THAT(error_message([&] { write_safetensors(folder / "x", std::vector{w, as_bits}); }),
              HasSubstr("two tensors are named 'w'"));
  TensorToWrite metadata = w;
  metadata.name = "__metadata__";
  EXPECT_THAT(error_message([&] { write_safetensors(folder / "x", std::vector{metadata}); }),
              HasSubstr("cannot be named"));
  TensorToWrite wrong = w;
  wrong.shape = {2};
  EXPECT_THROW(write_safetensors(folder / "x", std::vector{wrong}), InternalError);
  EXPECT_THAT(folder.entries(), ElementsAre());
}

TEST(Safetensors, AFullDiskKeepsTheOldFile) {
  const std::vector<float> values(100000, 1.0f);
  const TempFolder folder;
  const auto write = [&](int64_t count) {
    write_safetensors(folder / "x",
                      std::vector<TensorToWrite>{
                          {"w",
                           ElementType::f32,
                           {count},
                           bytes_of_values(values).first(static_cast<size_t>(4 * count))}});
  };
  write(10);
  {
    const FailingDisk full(100000);
    EXPECT_THAT(error_message([&] { write(100000); }), HasSubstr("free some space"));
  }
  EXPECT_EQ(open_safetensors(folder / "x").at("w").count(), 10);
  EXPECT_THAT(folder.entries(), ElementsAre("x"));
}

// Headers with one or a few edits: a reader must refuse or accept, never read outside the file.
// Accepted tensors lie inside the bytes (checked), and the sanitizer build watches the rest.
TEST(Safetensors, SurvivesSeededMutations) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const TempFolder folder;
  const auto bytes = std::as_bytes(std::span(values));
  write_safetensors(folder / "x", std::vector<TensorToWrite>{
                                      {"layers.0.w", ElementType::f32, {2, 2}, bytes.first(16)},
                                      {"n", ElementType::bf16, {2, 1}, bytes.subspan(16, 4)},
                                      {"e", ElementType::i64, {0}, {}},
                                      {"s", ElementType::i32, {}, bytes.subspan(20, 4)}});
  const std::string original = read_file(folder / "x");
  const std::vector<std::string> pieces = {"0",
                                           "-1",
                                           "1e9",
                                           "4294967296",
                                           "9223372036854775807",
                                           "18446744073709551615",
                                           "[",
                                           "]",
                                           "{",
                                           "}",
                                           ",",
                                           ":",
                                           "\"",
                                           "\"F32\"",
                                           "\"I64\"",
                                           "null",
                                           "true",
                                           "[]",
                                           "{}",
                                           "\\u0000",
                                           "\xc3",
                                           "\"data_offsets\"",
                                           "\"__metadata__\"",
                                           "\n",
                                           "99999999999999999999999999",
                                           ".5"};
  constexpr uint64_t kSeed = 20240607;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937_64 random(kSeed);
  const auto below = [&](size_t bound) { return static_cast<size_t>(random() % bound); };
  int accepted = 0;
  constexpr int kRuns = 8000;
  for (int run = 0; run < kRuns; ++run) {
    std::string file = original;
    for (size_t edits = 1 + below(3); edits > 0 && !file.empty(); --edits) {
      const size_t place = below(file.size());
      switch (below(5)) {
        case 0: file[place] = static_cast<char>(random()); break;
        case 1: file.resize(place); break;
        case 2: file.insert(place, pieces[below(pieces.size())]); break;
        case 3: file.erase(place, 1 + below(12)); break;
        default: file.replace(place, 1 + below(4), pieces[below(pieces.size())]); break;
      }
    }
    // Most edits change the header's size: half of the runs mend the length so that deeper checks
    // are reached.
    const size_t end = file.rfind('}');
    if (below(2) == 0 && file.size() > 8 && end != std::string::npos && end >= 8) {
      const uint64_t length = end - 8 + 1;
      std::memcpy(file.data(), &length, 8);
    }
    try {
      const StoredTensors read = parse(file);
      ++accepted;
      const auto* begin = reinterpret_cast<const std::byte*>(file.data());
      for (const auto& [name, stored] : read.tensors) {
        ASSERT_GE(stored.bytes.data(), begin) << "run " << run;
        ASSERT_LE(stored.bytes.data() + stored.bytes.size(), begin + file.size()) << "run " << run;
      }
    } catch (const Error& error) {
      ASSERT_THAT(error.what(), StartsWith("x.safetensors: ")) << "run " << run;
      ASSERT_EQ(std::string(error.what()).find('\n'), std::string::npos) << "run " << run;
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, kRuns / 2);
}

class ModelWeights : public testing::Test {
 protected:
  void write_shard(const std::string& file, const std::vector<std::string>& names) {
    std::vector<TensorToWrite> tensors;
    for (const std::string& name : names) {
      tensors.push_back({name, ElementType::f32, {2}, bytes_of_values(values_)});
    }
    write_safetensors(folder_ / file, tensors);
  }
  void write_index(const std::string& text) {
    write_file_atomically(folder_ / "model.safetensors.index.json", text);
  }
  std::string open_message() {
    return error_message([&] { open_model_weights(folder_.path()); });
  }
  static std::string index_of(const std::string& a, const std::string& b) {
    return R"({"metadata":{"total_size":16},"weight_map":{"a":")" + a + R"(","b":")" + b + "\"}}";
  }

  const std::vector<float> values_ = {1, 2};
  TempFolder folder_;
};

TEST_F(ModelWeights, OneFileOrShards) {
  EXPECT_THAT(open_message(), HasSubstr("neither model.safetensors nor model.safetensors.index"));
  write_shard("s1.safetensors", {"a"});
  write_shard("s2.safetensors", {"b"});
  write_index(index_of("s1.safetensors", "s2.safetensors"));
  const StoredTensors shards = open_model_weights(folder_.path());
  EXPECT_EQ(shards.tensors.size(), 2u);
  EXPECT_EQ(shards.at("b").file, (folder_ / "s2.safetensors").string());
  write_shard("model.safetensors", {"a"});  // the single file comes first, as in transformers
  EXPECT_EQ(open_model_weights(folder_.path()).tensors.size(), 1u);
}

// torch.compile, FSDP, checkpointing and DeepSpeed put their parts anywhere, data parallel and PEFT
// in front.
TEST_F(ModelWeights, NamesOfWrappersAreTakenWithoutThem) {
  for (const char* wrapped :
       {"_orig_mod.a.b", "a._orig_mod.b", "_fsdp_wrapped_module.a._fsdp_wrapped_module.b",
        "a._checkpoint_wrapped_module.b", "_forward_module.a.b", "module.a.b", "module.module.a.b",
        "base_model.model.a.b", "_orig_mod.module.a.b", "module._orig_mod.a.b"}) {
    write_shard("model.safetensors", {wrapped});
    EXPECT_NE(open_model_weights(folder_.path()).find("a.b"), nullptr) << wrapped;
  }
  for (const char* name : {"a.module.b", "a.x_orig_mod.b", "base_model.a.b"}) {
    write_shard("model.safetensors", {name});
    EXPECT_NE(open_model_weights(folder_.path()).find(name), nullptr);
  }
  write_shard("model.safetensors", {"a.b", "module.a.b"});
  EXPECT_THAT(open_message(), HasSubstr("'a.b' and 'module.a.b' are both 'a.b' of the model"));
  write_shard("model.safetensors", {"a.b", "a.q.lora_A.default.weight"});
  EXPECT_THAT(open_message(), HasSubstr("merge it into the weights first"));
}

TEST_F(ModelWeights, AnotherPrefixIsNamedWithTheLineThatStripsIt) {
  write_shard("model.safetensors", {"net.model.a.b", "net.c"});
  const StoredTensors stored = open_model_weights(folder_.path());
  EXPECT_THAT(error_message([&] { stored.at("a.b"); }),
              HasSubstr("there is 'net.model.a.b': strip the prefix 'net.model.'"));
  EXPECT_THAT(error_message([&] { stored.at("c"); }), HasSubstr("n.removeprefix('net.')"));
  EXPECT_THAT(error_message([&] { stored.at("d"); }), HasSubstr("missing among its 2 tensors"));
}

TEST_F(ModelWeights, RefusesAnIndexThatDoesNotFit) {
  write_shard("s1.safetensors", {"a"});
  write_index(index_of("s1.safetensors", "s2.safetensors"));
  EXPECT_THAT(open_message(), HasSubstr("shard 's2.safetensors' is missing"));
  write_shard("s2.safetensors", {"c"});
  EXPECT_THAT(open_message(), HasSubstr("tensor 'b' is not in shard 's2.safetensors'"));
  write_shard("s2.safetensors", {"a", "b"});
  EXPECT_THAT(open_message(), HasSubstr("tensor 'a' is in two shards"));
  write_shard("s1.safetensors", {"b"});  // each tensor is in the other's shard
  write_shard("s2.safetensors", {"a"});
  EXPECT_THAT(open_message(), HasSubstr("tensor 'a' is not in shard 's1.safetensors'"));
  write_shard("s1.safetensors", {"b"});  // the index names s1 for a and b, and s1 lacks a
  write_shard("s2.safetensors", {"c"});
  write_index(index_of("s1.safetensors", "s1.safetensors"));
  EXPECT_THAT(open_message(), HasSubstr("tensor 'a' is not in shard 's1.safetensors'"));
  write_index(index_of("../s1.safetensors", "s2.safetensors"));
  EXPECT_THAT(open_message(), HasSubstr("which is no file name"));
  write_index(R"({"weight_map":{"a":7}})");
  EXPECT_THAT(open_message(), HasSubstr("tensor 'a' is said to lie in '7'"));
  for (const char* text : {"[]", "{}", R"({"weight_map":[]})", R"({"weight_map":{}})"}) {
    write_index(text);
    EXPECT_THAT(open_message(), HasSubstr("no 'weight_map' with tensors")) << text;
  }
  write_index("{");
  EXPECT_THAT(open_message(), HasSubstr("not valid JSON"));
}

// Whatever happens to the index, it opens the tensors that it names or is refused with one line.
TEST_F(ModelWeights, SurvivesSeededMutationsOfTheIndex) {
  write_shard("s1.safetensors", {"a"});
  write_shard("s2.safetensors", {"b"});
  const std::string original = index_of("s1.safetensors", "s2.safetensors");
  const std::vector<std::string> pieces = {
      "0", "-1", "null", "[]", "{}", "[",     "{",    "}",  "\"",      ":",
      ",", "\n", "\xff", "..", "/",  "\"a\"", "1e99", "s1", "\\u0000", ".safetensors"};
  constexpr uint64_t kSeed = 20240609;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937_64 random(kSeed);
  const auto below = [&](size_t bound) { return static_cast<size_t>(random() % bound); };
  int accepted = 0;
  constexpr int kRuns = 2000;
  for (int run = 0; run < kRuns; ++run) {
    std::string text = original;
    for (size_t edits = 1 + below(2); edits > 0 && !text.empty(); --edits) {
      const size_t place = below(text.size());
      switch (below(4)) {
        case 0: text[place] = static_cast<char>(random()); break;
        case 1: text.resize(place); break;
        case 2: text.insert(place, pieces[below(pieces.size())]); break;
        default: text.erase(place, 1 + below(12)); break;
      }
    }
    std::ofstream(folder_ / "model.safetensors.index.json", std::ios::binary) << text;
    const std::string message = open_message();
    accepted += message.empty() ? 1 : 0;
    ASSERT_EQ(message.find('\n'), std::string::npos) << "run " << run << ": " << message;
    if (!message.empty()) {
      ASSERT_THAT(message, HasSubstr(folder_.path().string())) << "run " << run;
    }
  }
  EXPECT_GT(accepted, 10);
  EXPECT_LT(accepted, kRuns / 2);
}

}  // namespace
}  // namespace coda::io
