// SPDX-License-Identifier: Apache-2.0
// The table of cards, from NVIDIA's documents:
// [1] A100 datasheet and "NVIDIA A100 Tensor Core GPU Architecture" (whitepaper)
// [2] datasheets of A30, A10, A40, L4 and L40S
// [3] "NVIDIA Ampere GA102 GPU Architecture" V2 (RTX 3080, 3090, A6000, A40)
// [4] "NVIDIA Ada GPU Architecture" V2 (RTX 4080, 4090, RTX 6000 Ada, L4)
// [5] "NVIDIA RTX Blackwell GPU Architecture" (RTX 5070, 5080, 5090) and
//     "NVIDIA RTX PRO Blackwell GPU Architecture" (RTX PRO 6000)
// [6] "NVIDIA H100 Tensor Core GPU Architecture" and datasheets of H100, H200, GH200 and HGX B200
// [7] specifications of GeForce cards at nvidia.com; NVIDIA publishes no rate of bf16 for these
//     cards, so the rate is multiprocessors x boost clock x the rate of the generation's tensor
//     cores with fp32 accumulation, 512 operations in a cycle of a multiprocessor.
// GeForce cards multiply 16-bit and 8-bit floats at half the rate if they accumulate in fp32.
// Shared memory by compute capability is from the CUDA programming guide.
#include <algorithm>
#include <array>
#include <cctype>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "coda/error.h"
#include "coda/gpu_card.h"

namespace coda {
namespace {

constexpr double kT = 1e12;

constexpr GpuCard kCards[] = {
    // name, capability, multiprocessors, MHz, bf16, 8 bits, bytes/s, GB, L2, shared
    {"A100 80GB", 8, 0, 108, 1410, 312 * kT, 0, 2.039 * kT, 80, 40, 164},                // [1]
    {"A100 80GB PCIe", 8, 0, 108, 1410, 312 * kT, 0, 1.935 * kT, 80, 40, 164},           // [1]
    {"A100 40GB", 8, 0, 108, 1410, 312 * kT, 0, 1.555 * kT, 40, 40, 164},                // [1]
    {"A30", 8, 0, 56, 1440, 165 * kT, 0, 0.933 * kT, 24, 24, 164},                       // [2]
    {"RTX 3090", 8, 6, 82, 1695, 71 * kT, 0, 0.936 * kT, 24, 6, 100},                    // [3]
    {"RTX 3090 Ti", 8, 6, 84, 1860, 80 * kT, 0, 1.008 * kT, 24, 6, 100},                 // [4]
    {"RTX 3080", 8, 6, 68, 1710, 59.5 * kT, 0, 0.760 * kT, 10, 5, 100},                  // [3]
    {"RTX 3060", 8, 6, 28, 1780, 25.5 * kT, 0, 0.360 * kT, 12, 3, 100},                  // [7]
    {"RTX A6000", 8, 6, 84, 1800, 154.8 * kT, 0, 0.768 * kT, 48, 6, 100},                // [3]
    {"A40", 8, 6, 84, 1740, 149.7 * kT, 0, 0.696 * kT, 48, 6, 100},                      // [2] [3]
    {"A10", 8, 6, 72, 1695, 125 * kT, 0, 0.600 * kT, 24, 6, 100},                        // [2]
    {"RTX 4090", 8, 9, 128, 2520, 165.2 * kT, 330.3 * kT, 1.008 * kT, 24, 72, 100},      // [4]
    {"RTX 4080", 8, 9, 76, 2505, 97.5 * kT, 194.9 * kT, 0.717 * kT, 16, 64, 100},        // [4]
    {"RTX 4070", 8, 9, 46, 2475, 58.3 * kT, 116.6 * kT, 0.504 * kT, 12, 36, 100},        // [7]
    {"RTX 4060 Ti", 8, 9, 34, 2535, 44.1 * kT, 88.3 * kT, 0.288 * kT, 16, 32, 100},      // [7]
    {"RTX 6000 Ada", 8, 9, 142, 2505, 364.2 * kT, 728.5 * kT, 0.960 * kT, 48, 96, 100},  // [4]
    {"L40S", 8, 9, 142, 2520, 362 * kT, 733 * kT, 0.864 * kT, 48, 96, 100},              // [2]
    {"L4", 8, 9, 58, 2040, 121 * kT, 242.5 * kT, 0.300 * kT, 24, 48, 100},               // [2] [4]
    {"H200", 9, 0, 132, 1830, 989.4 * kT, 1978.9 * kT, 4.8 * kT, 141, 50, 228},          // [6]
    {"H200 NVL", 9, 0, 132, 0, 835 * kT, 1671 * kT, 4.8 * kT, 141, 50, 228},             // [6]
    {"H100", 9, 0, 132, 1830, 989.4 * kT, 1978.9 * kT, 3.35 * kT, 80, 50, 228},          // [6]
    {"H100 PCIe", 9, 0, 114, 1620, 756 * kT, 1513 * kT, 2.0 * kT, 80, 50, 228},          // [6]
    {"H100 NVL", 9, 0, 132, 0, 835 * kT, 1671 * kT, 3.9 * kT, 94, 50, 228},              // [6]
    {"GH200", 9, 0, 132, 1830, 990 * kT, 1979 * kT, 4.9 * kT, 144, 50, 228},             // [6]
    {"B200", 10, 0, 148, 0, 2250 * kT, 4500 * kT, 7.7 * kT, 180, 0, 228},                // [6]
    {"RTX 5090", 12, 0, 170, 2407, 209.5 * kT, 419 * kT, 1.792 * kT, 32, 96, 100},       // [5]
    {"RTX 5080", 12, 0, 84, 2617, 112.6 * kT, 225.1 * kT, 0.960 * kT, 16, 64, 100},      // [5]
    {"RTX 5070", 12, 0, 48, 2512, 61.7 * kT, 123.5 * kT, 0.672 * kT, 12, 48, 100},       // [5]
    {"RTX PRO 6000", 12, 0, 188, 2617, 503.8 * kT, 1007.6 * kT, 1.792 * kT, 96, 128, 100},  // [5]
};

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words(1);
  for (const char c : lower(text)) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      words.back() += c;
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

bool has(const std::vector<std::string>& words, const std::string& word) {
  return std::ranges::find(words, word) != words.end();
}

// The name without maker, family and spaces.
std::string short_name(std::string_view name) {
  std::string text;
  for (const std::string& word : words_of(name))
    if (word != "nvidia" && word != "geforce") text += word;
  return text;
}

// Levenshtein's distance.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({change, row[j] + 1, row[j - 1] + 1}));
    }
  }
  return row.back();
}

std::string nearest_names(const std::string& name) {
  std::vector<std::pair<size_t, std::string_view>> near;
  for (const GpuCard& card : kCards) {
    const std::string own = short_name(card.name);
    // A name that was not written to its end is near.
    near.emplace_back(own.starts_with(name) && !name.empty() ? 0 : distance(name, own), card.name);
  }
  std::ranges::stable_sort(near, {}, &std::pair<size_t, std::string_view>::first);
  return std::string(near[0].second) + ", " + std::string(near[1].second) + " and " +
         std::string(near[2].second);
}

}  // namespace

std::span<const GpuCard> gpu_cards() { return kCards; }

const GpuCard* find_gpu_card(std::string_view device) {
  // A device with one of these words is another card than the one without it.
  static constexpr std::array kOthers{"ti", "super", "laptop", "max", "mig", "d"};
  const std::vector<std::string> words = words_of(device);
  const GpuCard* found = nullptr;
  size_t most = 0;
  for (const GpuCard& card : kCards) {
    const std::vector<std::string> own = words_of(card.name);
    const bool matches = std::ranges::all_of(own, [&](const auto& w) { return has(words, w); });
    const bool is_other = std::ranges::any_of(
        kOthers, [&](const char* word) { return has(words, word) && !has(own, word); });
    if (!matches || is_other || own.size() <= most) continue;
    found = &card;
    most = own.size();
  }
  return found;
}

const GpuCard& gpu_card(std::string_view name) {
  const std::string asked = short_name(name);
  for (const GpuCard& card : kCards)
    if (short_name(card.name) == asked) return card;
  if (const GpuCard* card = find_gpu_card(name)) return *card;
  throw Error("no GPU named '" + std::string(name) + "' is known; the nearest names are " +
              nearest_names(asked) + " (docs/gpus.md lists all)");
}

}  // namespace coda
