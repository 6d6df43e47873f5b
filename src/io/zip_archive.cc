// SPDX-License-Identifier: Apache-2.0
// Source of the format: PKWARE's APPNOTE.TXT 6.3.10, sections 4.3 and 4.5.3.
#include "io/zip_archive.h"

#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "coda/error.h"
#include "io/mapped_file.h"

namespace coda::io {
namespace {

constexpr uint32_t kLocal = 0x04034b50;
constexpr uint32_t kCentral = 0x02014b50;
constexpr uint32_t kEnd = 0x06054b50;
constexpr uint32_t kEnd64 = 0x06064b50;
constexpr uint32_t kEnd64Locator = 0x07064b50;
constexpr size_t kEndSize = 22;
constexpr size_t kLargestComment = 65535;
constexpr uint32_t kIn64 = 0xffffffff;  // the number stands in a 64-bit field
constexpr uint16_t kStored = 0;
constexpr uint16_t kDeflated = 8;

using Bytes = std::span<const std::byte>;

struct Reader {
  Bytes bytes;
  const std::string& source;

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(source + ": " + what + " (the file is corrupted or truncated: write it again)");
  }
  Bytes part(uint64_t at, uint64_t size) const {
    if (at > bytes.size() || size > bytes.size() - at) fail("an entry lies outside of the file");
    return bytes.subspan(at, size);
  }
  uint64_t number(uint64_t at, size_t size) const {
    uint64_t value = 0;
    std::memcpy(&value, part(at, size).data(),
                size);  // little-endian, as all that this is built for
    return value;
  }
};

struct Member {
  std::string name;
  uint16_t flags = 0;
  uint16_t method = 0;
  uint32_t checksum = 0;
  uint64_t packed = 0;
  uint64_t size = 0;
  uint64_t local = 0;
};

// Of the fields that did not fit into 32 bits, in their order; `extra` is the central entry's.
void read_extra(const Reader& in, uint64_t at, uint64_t length, Member& member) {
  const uint64_t end = at + length;
  while (at + 4 <= end) {
    const uint64_t kind = in.number(at, 2);
    uint64_t field = at + 4;
    at = field + in.number(at + 2, 2);
    if (kind != 1) continue;
    for (uint64_t* value : {&member.size, &member.packed, &member.local}) {
      if (*value != kIn64) continue;
      if (field + 8 > at) in.fail("a size is missing");
      *value = in.number(field, 8);
      field += 8;
    }
  }
}

std::vector<Member> members_of(const Reader& in) {
  const size_t size = in.bytes.size();
  if (size < kEndSize) in.fail("this is no zip archive");
  uint64_t end = size - kEndSize;
  const uint64_t last = end > kLargestComment ? end - kLargestComment : 0;
  while (in.number(end, 4) != kEnd) {
    if (end == last) in.fail("this is no zip archive, or its end is missing");
    --end;
  }
  uint64_t count = in.number(end + 10, 2);
  uint64_t at = in.number(end + 16, 4);
  if (end >= 20 && in.number(end - 20, 4) == kEnd64Locator) {
    const uint64_t end64 = in.number(end - 12, 8);
    if (in.number(end64, 4) != kEnd64) in.fail("the directory's end is missing");
    count = in.number(end64 + 32, 8);
    at = in.number(end64 + 48, 8);
  }
  std::vector<Member> members;
  for (uint64_t i = 0; i < count; ++i) {
    if (in.number(at, 4) != kCentral) in.fail("an entry of the directory is missing");
    Member member{.name = {},
                  .flags = static_cast<uint16_t>(in.number(at + 8, 2)),
                  .method = static_cast<uint16_t>(in.number(at + 10, 2)),
                  .checksum = static_cast<uint32_t>(in.number(at + 16, 4)),
                  .packed = in.number(at + 20, 4),
                  .size = in.number(at + 24, 4),
                  .local = in.number(at + 42, 4)};
    const uint64_t name = in.number(at + 28, 2);
    const uint64_t extra = in.number(at + 30, 2);
    const Bytes letters = in.part(at + 46, name);
    member.name.assign(reinterpret_cast<const char*>(letters.data()), letters.size());
    read_extra(in, at + 46 + name, extra, member);
    at += 46 + name + extra + in.number(at + 32, 2);
    members.push_back(std::move(member));
  }
  return members;
}

// At most `size` bytes; memory grows with what is there, not with what a header says.
std::vector<std::byte> inflated(const Reader& in, Bytes packed, uint64_t size,
                                const std::string& name) {
  constexpr size_t kPiece = size_t{1} << 20;
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) throw InternalError("zlib cannot start");
  std::vector<std::byte> result;
  int state = Z_OK;
  Bytes rest = packed;
  while (state == Z_OK && result.size() <= size) {
    if (stream.avail_in == 0 && !rest.empty()) {
      const size_t piece = std::min(rest.size(), kPiece);
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(rest.data()));
      stream.avail_in = static_cast<uInt>(piece);
      rest = rest.subspan(piece);
    }
    const size_t before = result.size();
    result.resize(before + kPiece);
    stream.next_out = reinterpret_cast<Bytef*>(result.data() + before);
    stream.avail_out = static_cast<uInt>(kPiece);
    state = inflate(&stream, Z_NO_FLUSH);
    result.resize(before + kPiece - stream.avail_out);
  }
  inflateEnd(&stream);
  if (state != Z_STREAM_END || result.size() != size)
    in.fail("the member '" + name + "' cannot be inflated");
  return result;
}

uint32_t checksum_of(Bytes bytes) {
  constexpr size_t kPiece = size_t{1} << 30;
  uLong sum = crc32(0, nullptr, 0);
  for (size_t at = 0; at < bytes.size(); at += kPiece) {
    const Bytes piece = bytes.subspan(at, std::min(kPiece, bytes.size() - at));
    sum = crc32(sum, reinterpret_cast<const Bytef*>(piece.data()), static_cast<uInt>(piece.size()));
  }
  return static_cast<uint32_t>(sum);
}

class Writer {
 public:
  void number(uint64_t value, size_t size) {
    for (size_t i = 0; i < size; ++i) bytes_.push_back(static_cast<std::byte>(value >> (8 * i)));
  }
  void numbers(std::initializer_list<std::pair<uint64_t, size_t>> fields) {
    for (const auto& [value, size] : fields) number(value, size);
  }
  void add(Bytes bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  void add(const std::string& text) { add(std::as_bytes(std::span(text))); }
  uint64_t size() const { return bytes_.size(); }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace

std::map<std::string, std::vector<std::byte>> read_zip(
    Bytes bytes, const std::string& source,
    const std::function<bool(const std::string&)>& is_wanted) {
  require_not_empty(bytes.size(), source);
  const Reader in{bytes, source};
  std::map<std::string, std::vector<std::byte>> result;
  for (const Member& member : members_of(in)) {
    if (!is_wanted(member.name)) continue;
    if (member.flags & 1) in.fail("the member '" + member.name + "' is encrypted");
    if (in.number(member.local, 4) != kLocal) in.fail("a member's header is missing");
    const uint64_t data =
        member.local + 30 + in.number(member.local + 26, 2) + in.number(member.local + 28, 2);
    const Bytes packed = in.part(data, member.packed);
    std::vector<std::byte> values;
    if (member.method == kDeflated) {
      values = inflated(in, packed, member.size, member.name);
    } else if (member.method == kStored && member.packed == member.size) {
      values.assign(packed.begin(), packed.end());
    } else {
      throw Error(source + ": the member '" + member.name +
                  "' is compressed in a way that is not read (numpy.savez and "
                  "numpy.savez_compressed write what is)");
    }
    if (checksum_of(values) != member.checksum)
      in.fail("the member '" + member.name + "' has another checksum");
    if (!result.emplace(member.name, std::move(values)).second)
      in.fail("the member '" + member.name + "' is there twice");
  }
  return result;
}

std::vector<std::byte> zip_of(
    std::span<const std::pair<std::string, std::vector<std::byte>>> members,
    const std::string& source) {
  constexpr uint16_t kVersion = 20;
  constexpr uint16_t kFirstOfJanuary1980 = 0x21;
  Writer out;
  Writer directory;
  for (const auto& [name, bytes] : members) {
    const uint64_t at = out.size();
    require(at + bytes.size() < kIn64 - (1U << 20) && members.size() < 65535,
            source + ": an .npz file holds 4 GB at most (write .safetensors)");
    const uint32_t checksum = checksum_of(bytes);
    out.numbers({{kLocal, 4},
                 {kVersion, 2},
                 {0, 2},
                 {kStored, 2},
                 {0, 2},
                 {kFirstOfJanuary1980, 2},
                 {checksum, 4},
                 {bytes.size(), 4},
                 {bytes.size(), 4},
                 {name.size(), 2},
                 {0, 2}});
    out.add(name);
    out.add(bytes);
    directory.numbers({{kCentral, 4},
                       {kVersion, 2},
                       {kVersion, 2},
                       {0, 2},
                       {kStored, 2},
                       {0, 2},
                       {kFirstOfJanuary1980, 2},
                       {checksum, 4},
                       {bytes.size(), 4},
                       {bytes.size(), 4},
                       {name.size(), 2},
                       {0, 2},
                       {0, 2},
                       {0, 2},
                       {0, 2},
                       {0, 4},
                       {at, 4}});
    directory.add(name);
  }
  const uint64_t start = out.size();
  const uint64_t size = directory.size();
  out.add(directory.take());
  out.numbers({{kEnd, 4},
               {0, 2},
               {0, 2},
               {members.size(), 2},
               {members.size(), 2},
               {size, 4},
               {start, 4},
               {0, 2}});
  return out.take();
}

}  // namespace coda::io
