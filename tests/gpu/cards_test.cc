// SPDX-License-Identifier: Apache-2.0
// The table of cards: its figures agree with each other and with the targets, cards are found by
// name, and docs/gpus.md has the same table.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>

#include "coda/error.h"
#include "coda/gpu_card.h"
#include "coda/kernels.h"
#include "gpu/lower.h"
#include "gpu/targets/targets.h"
#include "program/library_programs.h"

namespace coda::gpu {
namespace {

using testing::HasSubstr;

// Operations in a cycle of a multiprocessor, for bf16 with accumulation in fp32. They come from the
// architecture, independently of the table: GeForce cards have half the rate of other cards.
double operations_of_a_cycle(const GpuCard& card) {
  if (card.major == 9) return 4096;
  if (card.major == 8 && card.minor == 0) return 2048;
  static const std::set<std::string_view> kGeForce{
      "RTX 3060", "RTX 3080", "RTX 3090", "RTX 3090 Ti", "RTX 4060 Ti", "RTX 4070",
      "RTX 4080", "RTX 4090", "RTX 5070", "RTX 5080",    "RTX 5090"};
  return kGeForce.contains(card.name) ? 512 : 1024;
}

TEST(Cards, PeaksAreThoseOfClocksAndMultiprocessors) {
  for (const GpuCard& card : gpu_cards()) {
    if (card.boost_mhz == 0) continue;
    const double peak = card.multiprocessors * 1e6 * card.boost_mhz * operations_of_a_cycle(card);
    EXPECT_NEAR(card.flops / peak, 1, 0.013) << card.name;
  }
}

TEST(Cards, EightBitsAreTwiceAsFastFromAdaOn) {
  for (const GpuCard& card : gpu_cards()) {
    const bool has_them = card.major > 8 || card.minor == 9;
    EXPECT_NEAR(card.flops_of_8_bits / card.flops, has_them ? 2 : 0, 0.03) << card.name;
  }
}

// A kernel may use the shared memory of a block, and every card has a target.
TEST(Cards, TargetsFit) {
  for (const GpuCard& card : gpu_cards()) {
    const Target& target = target_for("", card.major, card.minor, card.name);
    EXPECT_EQ(target.multiprocessors, card.major == 9 ? 132 : card.multiprocessors) << card.name;
    EXPECT_LE(target.shared_bytes, (card.shared_kb - 1) << 10) << card.name;
    EXPECT_EQ(target.has_eight_bits, card.flops_of_8_bits > 0) << card.name;
    if (card.boost_mhz == 0 || card.major == 9) continue;
    EXPECT_NEAR(target.rates.multiplications / (operations_of_a_cycle(card) / 2), 1, 0.013)
        << card.name;
  }
}

TEST(Cards, AreFoundByName) {
  for (const GpuCard& card : gpu_cards()) EXPECT_EQ(&gpu_card(card.name), &card);
  EXPECT_EQ(gpu_card("rtx4090").name, "RTX 4090");
  EXPECT_EQ(gpu_card("RTX-4090").name, "RTX 4090");
  EXPECT_EQ(gpu_card("geforce rtx 4060ti").name, "RTX 4060 Ti");
  EXPECT_EQ(gpu_card("rtxpro6000").name, "RTX PRO 6000");
  EXPECT_EQ(gpu_card("NVIDIA H100 80GB HBM3").name, "H100");
}

TEST(Cards, AreFoundByTheDriversName) {
  for (const auto& [device, name] :
       {std::pair{"NVIDIA GeForce RTX 4090", "RTX 4090"},
        {"NVIDIA A100-SXM4-40GB", "A100 40GB"},
        {"NVIDIA A100-SXM4-80GB", "A100 80GB"},
        {"NVIDIA A100 80GB PCIe", "A100 80GB PCIe"},
        {"NVIDIA H100 PCIe", "H100 PCIe"},
        {"NVIDIA H200, driver for CUDA 13.0", "H200"},
        {"NVIDIA H200 NVL", "H200 NVL"},
        {"NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"},
        {"NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX PRO 6000"},
        {"NVIDIA L40S", "L40S"}}) {
    const GpuCard* card = find_gpu_card(device);
    ASSERT_NE(card, nullptr) << device;
    EXPECT_EQ(card->name, name);
  }
  for (const char* other :
       {"NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 4090 D", "NVIDIA L40",
        "NVIDIA GeForce RTX 4080 SUPER", "NVIDIA GeForce RTX 3080 Ti", "Quadro RTX 6000",
        "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "NVIDIA RTX A1000",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "Fake GPU", ""})
    EXPECT_EQ(find_gpu_card(other), nullptr) << other;
}

TEST(Cards, AnUnknownNameIsRefusedWithTheNearest) {
  const auto error_of = [](const char* name) -> std::string {
    try {
      gpu_card(name);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(error_of("rtx4091"), HasSubstr("no GPU named 'rtx4091' is known; the nearest names "
                                             "are RTX 4090"));
  EXPECT_THAT(error_of("a100"), HasSubstr("A100 80GB, A100 80GB PCIe and A100 40GB"));
  EXPECT_NE(error_of(""), "");
}

TEST(Cards, RatesAreSharesOfThePeaksAndOnHopperThoseOfAnH200) {
  for (const GpuCard& card : gpu_cards()) {
    const Rates rates = rates_of(card);
    if (card.major == 9) {
      EXPECT_EQ(rates.flops_per_second, h200_rates().flops_per_second) << card.name;
      EXPECT_EQ(rates.bytes_per_second, h200_rates().bytes_per_second) << card.name;
      EXPECT_THAT(prediction_note(card), HasSubstr("measured on an H200"));
    } else {
      EXPECT_NEAR(rates.flops_per_second / card.flops, 0.7075, 1e-3) << card.name;
      EXPECT_NEAR(rates.bytes_per_second / card.bytes_per_second, 0.8917, 1e-3) << card.name;
      EXPECT_THAT(prediction_note(card), HasSubstr("not measured"));
    }
  }
}

// The rate of the card's tensor cores reaches the choice: with half the rate, an RTX 3090 is bound
// by tensor cores where an RTX A6000 is bound by operands.
TEST(Cards, TheModelOfAKernelHasTheCardsRates) {
  const DimValues sizes{{"M", 4096}, {"N", 4096}, {"K", 4096}};
  const Program program = tests::library_program("product_nt");
  const auto cost = [&](const char* name) {
    const GpuCard& card = gpu_card(name);
    LowerOptions options;
    options.target = &target_for("", card.major, card.minor, card.name);
    options.multiprocessors = 84;
    const GemmProgram kernels(program, sizes, options);
    return kernels.ranked(0).front().cost;
  };
  EXPECT_GT(cost("RTX 3090"), 1.4 * cost("RTX A6000"));
}

// The kernels of a card's name are those of its target with its multiprocessors.
TEST(Cards, KernelsAreEmittedWithoutTheCard) {
  const Plan plan = one_step_plan(tests::library_program("swiglu"));
  const DimValues sizes{{"M", 512}, {"N", 512}, {"K", 512}};
  const std::vector<KernelText> kernels =
      emit_kernels(plan, sizes, kernel_options(gpu_card("rtx3090")));
  ASSERT_FALSE(kernels.empty());
  EXPECT_THAT(kernels.front().source, HasSubstr("sm80::Config"));
  EXPECT_LE(kernels.front().shared_bytes, 99u << 10);
}

std::string table_of_cards() {
  const auto number = [](double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.4g", value);
    return std::string(text);
  };
  std::string table;
  for (const GpuCard& card : gpu_cards()) {
    const Target& target = target_for("", card.major, card.minor, card.name);
    table += "| " + std::string(card.name) + " | " + std::to_string(card.major) + "." +
             std::to_string(card.minor) + " | `" + std::string(target.name) + "` | " +
             std::to_string(card.multiprocessors) + " | " +
             (card.boost_mhz == 0 ? "" : std::to_string(card.boost_mhz)) + " | " +
             number(card.flops / 1e12) + " | " +
             (card.flops_of_8_bits == 0 ? "none" : number(card.flops_of_8_bits / 1e12)) + " | " +
             number(card.bytes_per_second / 1e9) + " | " + std::to_string(card.memory_gb) + " | " +
             (card.l2_mb == 0 ? "" : std::to_string(card.l2_mb)) + " | " +
             std::to_string(card.shared_kb - 1) + " |\n";
  }
  return table;
}

TEST(Cards, ThePageHasTheTable) {
  std::ifstream file(CODA_SOURCE_DIR "/docs/gpus.md");
  const std::string page(std::istreambuf_iterator<char>(file), {});
  EXPECT_NE(page.find(table_of_cards()), std::string::npos)
      << "docs/gpus.md should have these lines:\n"
      << table_of_cards();
}

}  // namespace
}  // namespace coda::gpu
