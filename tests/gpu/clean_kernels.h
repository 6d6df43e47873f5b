// SPDX-License-Identifier: Apache-2.0
// The check that kernels compile without a defect (a spill, local memory, serialised wgmma). The
// tests have some five hundred kernels, ten minutes of processor time, of which a change touches
// few. So clean_kernels.txt keeps the digests of those that were found clean, and a test compiles
// what is not in it, and every day another 64th of what is, which notices a wrong list. A digest is
// of all that the compiler is given: its version and options, the text, and the device code that
// the text includes, but for comments and folders. A configuration that gives way to the next
// because it spills has a line too, with what it spills.
// `make clean-kernels` compiles all of them and writes the file anew.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "gpu/nvrtc.h"

namespace coda::gpu {

// The files among `headers` that a text includes, directly or through another.
inline void find_included(const std::string& text, const NvrtcCompiler::Headers& headers,
                          std::set<std::string>& found) {
  const std::string word = "#include \"";
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at)) {
    at += word.size();
    const auto header = headers.find(text.substr(at, text.find('"', at) - at));
    if (header != headers.end() && found.insert(header->first).second) {
      find_included(header->second, headers, found);
    }
  }
}

// What the compiler makes a kernel of: its text without comments, blanks and the lines that include
// a file (the digest has its text). So neither a comment nor the place of a header makes another
// kernel.
inline std::string code_of(const std::string& text) {
  std::string code;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    line = line.substr(0, line.find("//"));
    if (!line.starts_with("#include")) code += line;
  }
  std::erase(code, ' ');
  return code;
}

// 16 hexadecimal digits: five hundred kernels meet by accident once in 10^14 files.
inline std::string digest_of_kernel(const NvrtcCompiler& compiler, const std::string& source) {
  Sha256 hash;
  hash.add_field(compiler.version().text());
  for (const std::string& option : NvrtcCompiler::options(compiler.target().architecture))
    hash.add_field(option);
  hash.add_field(code_of(source));
  std::set<std::string> included;
  find_included(source, compiler.headers(), included);
  std::set<std::string> headers;
  for (const std::string& name : included) headers.insert(code_of(compiler.headers().at(name)));
  for (const std::string& header : headers) hash.add_field(header);
  return hash.digest().substr(0, 16);
}

class CleanKernels {
 public:
  static constexpr int kSampleDays = 64;  // in which each known kernel is compiled once

  // A digest a line, and behind it CompiledKernel::spilled_bytes() of a kernel that spills; none
  // where there is no such file.
  explicit CleanKernels(const std::string& file) {
    std::ifstream text(file);
    for (std::string line; std::getline(text, line);) {
      std::istringstream words(line);
      std::string digest;
      int64_t spilled = 0;
      words >> digest >> spilled;
      spilled_bytes_[digest] = spilled;
    }
  }

  // Whether a kernel that is clean need not be compiled on this day, a count of days.
  bool may_skip(const std::string& digest, int64_t day) const {
    return spilled_bytes(digest) == 0 &&
           std::stoi(digest.substr(0, 4), nullptr, 16) % kSampleDays != day % kSampleDays;
  }

  // 0: it is clean; -1: it is not known.
  int64_t spilled_bytes(const std::string& digest) const {
    const auto found = spilled_bytes_.find(digest);
    return found == spilled_bytes_.end() ? -1 : found->second;
  }

 private:
  std::map<std::string, int64_t> spilled_bytes_;
};

// CODA_RECORD_KERNELS=FILE: what is compiled gets a line there.
inline void record_kernel(const std::string& digest, int64_t spilled_bytes) {
  const char* record = std::getenv("CODA_RECORD_KERNELS");
  if (record == nullptr) return;
  std::ofstream file(record, std::ios::app);
  file << digest + (spilled_bytes == 0 ? "" : " " + std::to_string(spilled_bytes)) + "\n"
       << std::flush;
  ASSERT_TRUE(file.good()) << "cannot write " << record;
}

// No kernel has a defect: those that `clean` does not know, and today's sample, are compiled.
// CODA_RECORD_KERNELS=FILE: all of them are, and those without a defect get a line there.
inline void expect_no_defects(const NvrtcCompiler& compiler, const std::set<std::string>& sources,
                              const CleanKernels& clean) {
  const char* record = std::getenv("CODA_RECORD_KERNELS");
  const int64_t day = std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now())
                          .time_since_epoch()
                          .count();
  std::vector<std::string> digests, compiled;
  for (const std::string& source : sources) {
    const std::string digest = digest_of_kernel(compiler, source);
    if (record == nullptr && clean.may_skip(digest, day)) continue;
    digests.push_back(digest);
    compiled.push_back(source);
  }
  const std::vector<CompiledKernel> kernels = compiler.compile_all(compiled);
  for (size_t i = 0; i < kernels.size(); ++i) {
    EXPECT_EQ(kernels[i].defect, "") << kernels[i].log << "\n" << compiled[i];
    if (kernels[i].defect.empty()) record_kernel(digests[i], 0);
  }
  const auto fresh = std::count_if(digests.begin(), digests.end(), [&](const auto& digest) {
    return clean.spilled_bytes(digest) < 0;
  });
  std::printf("%zu kernels compiled, %td of them new, %zu known to be clean\n", compiled.size(),
              fresh, sources.size() - compiled.size());
}

inline CleanKernels known_clean_kernels() {
  return CleanKernels(CODA_SOURCE_DIR "/tests/gpu/clean_kernels.txt");
}

inline void expect_no_defects(const std::set<std::string>& sources) {
  if (const auto compiler = find_nvrtc()) {
    expect_no_defects(*compiler, sources, known_clean_kernels());
  } else {
    GTEST_SKIP() << "no NVRTC";
  }
}

}  // namespace coda::gpu
