// SPDX-License-Identifier: Apache-2.0
// Zip archives as NumPy writes them (.npz): members that are stored or deflated, in memory.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace coda::io {

// The members by name, of which only those are unpacked whose names are wanted. `source` is what
// messages call the archive. Throws Error for what is damaged, encrypted or compressed in another
// way; sizes and checksums are verified.
std::map<std::string, std::vector<std::byte>> read_zip(
    std::span<const std::byte> bytes, const std::string& source,
    const std::function<bool(const std::string&)>& is_wanted = [](const auto&) { return true; });

// An archive of stored members. Throws Error for more than 4 GB, which need another format.
std::vector<std::byte> zip_of(
    std::span<const std::pair<std::string, std::vector<std::byte>>> members,
    const std::string& source);

}  // namespace coda::io
