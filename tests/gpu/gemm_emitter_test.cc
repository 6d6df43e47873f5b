// SPDX-License-Identifier: Apache-2.0
// Kernels of programs with products: what their text looks like, that it serves all sizes and all
// layers, and that every program of the plans of LLaMA and GPT-2 becomes kernels without a spill,
// local memory or serialised wgmma.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "coda/error.h"
#include "gpu/clean_kernels.h"
#include "gpu/codegen/kernel_names.h"
#include "gpu/configure/choose_config.h"
#include "gpu/gemm_programs.h"
#include "gpu/golden_text.h"
#include "gpu/lower.h"
#include "program/library_programs.h"

namespace coda::gpu {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const DimValues kSizes{{"M", 16384}, {"N", 2048}, {"K", 2048}, {"S", 4096}, {"H", 16}};

TEST(GemmEmitter, GoldenText) {
  LowerOptions options;
  options.uses_table = false;  // which is measured anew from time to time
  expect_golden("residual_norm.cu",
                lower(tests::library_program("residual_norm"), kSizes, options));
}

// Two heads beside each other in a tile read the same table: a thread loads it once, before the
// tile's accumulators are there. It loads a fragment ahead, head by head, if keeping the table
// spills or if the tile's epilogue is hidden.
TEST(GemmEmitter, ATableIsKeptUnlessThatSpills) {
  struct Epilogue {
    std::string scales;  // of z
    std::string more;    // of the result
    bool spills;
  };
  const std::string sum = "\n  row_partial(p, sum(z * z))";
  const Epilogue epilogues[] = {
      {"", "", false},
      {" * per_row(r[M])", "", false},
      {" * per_row(r[M]) * per_row(s[M])", "", true},
      {" + per_column(b[2048])", "", true},
      {"", sum, false},
      {" * per_row(r[M])", sum, true},
  };
  std::set<std::string> texts;
  for (const Epilogue& one : epilogues) {
    const Program program = parse_program(
        "program rope {\n  z = gemm(h[M, K]:bf16, w[2048, K]:bf16, nt)" + one.scales + R"(
  cos = tile(cos[S, 64], rows=position[M], repeat=16)
  sin = tile(sin[S, 64], rows=position, repeat=16)
  first, second = split_pairs(z, 128)
  result = merge_pairs(first * cos - second * sin, second * cos + first * sin, 128)
  store(q:bf16, result))" +
        one.more + "\n}\n");
    const auto is_kept = [](const std::string& text) {
      const bool kept =
          text.find("DirectPairs<Element::f32, kFragments> cos;") != std::string::npos;
      EXPECT_NE(kept, text.find("load_ahead") != std::string::npos) << text;
      return kept;
    };
    for (const std::string choice :
         {"128x256c21s3", "128x256c12s3", "128x256c21s4", "64x256p21s5"}) {
      LowerOptions options;
      options.choice = parse_choice(choice);
      // As the compiler would say it.
      const auto spilled = [&](const std::string& text) {
        return one.spills && is_kept(text) ? 8 : 0;
      };
      std::string text;
      try {
        text = lower(program, kSizes, options, spilled).front().source;
      } catch (const Error&) {
        continue;  // no room for the ring
      }
      const bool is_cooperative = options.choice->schedule == device::Schedule::cooperative;
      EXPECT_EQ(is_kept(text), !one.spills && is_cooperative) << choice << one.scales << one.more;
      // A cluster's direction and the depth leave the epilogue as it is, so two are compiled.
      if (choice == "128x256c21s3" || !is_cooperative) texts.insert(text);
    }
  }
  expect_no_defects(texts);
}

// What is compiled for one batch serves every other: sizes are in the numbers only.
TEST(GemmEmitter, TextDoesNotDependOnSizes) {
  for (const std::string name : {"residual_norm", "swiglu", "swiglu_backward", "loss"}) {
    const Program program = tests::library_program(name);
    LowerOptions options;
    options.choice = legal_choices(program, kSizes, {}).front();
    const std::vector<KernelLaunch> launches = lower(program, kSizes, options);
    for (const int64_t rows : {1, 100, 4096}) {
      const DimValues other{{"M", rows}, {"N", 4096}, {"K", 1024}};
      const std::vector<KernelLaunch> others = lower(program, other, options);
      ASSERT_EQ(others.size(), launches.size());
      EXPECT_EQ(others[0].source, launches[0].source) << name << " with " << rows << " rows";
      EXPECT_NE(others[0].numbers, launches[0].numbers);
      EXPECT_EQ(others[0].shared_bytes, launches[0].shared_bytes);
    }
  }
}

const LlamaSizes kLlama{.hidden = 2048,
                        .heads = 16,
                        .kv_heads = 4,
                        .head_dim = 128,
                        .mlp = 5632,
                        .vocab = 32768,
                        .sequence = 2048};

// Of the kernels that make products: only they have descriptors.
std::set<std::string> texts_of(const std::vector<SizedProgram>& programs) {
  std::set<std::string> texts;
  for (const SizedProgram& p : programs) {
    for (const KernelLaunch& launch : lower(p.program, p.sizes, p.options)) {
      if (!launch.maps.empty()) texts.insert(launch.source);
    }
  }
  return texts;
}

// Their code, one of those that differ in names alone.
std::set<std::string> kernels_of(std::vector<SizedProgram> programs) {
  for (SizedProgram& p : programs) p.program = without_names(std::move(p.program));
  std::set<std::string> code;
  for (const std::string& text : texts_of(programs))
    code.insert(text.substr(text.find("#include")));
  return code;
}

// Layers differ in the names of their tensors only; texts must not, or each layer is compiled. (But
// for the comment: a program of one layer may have tiles of all others in it.)
TEST(GemmEmitter, FurtherLayersNeedNoFurtherKernels) {
  for (const PlanSource source : {PlanSource::llama_model, PlanSource::gpt2_model}) {
    LlamaSizes sizes = kLlama;
    if (source == PlanSource::gpt2_model) sizes.kv_heads = sizes.heads;
    const auto of_layers = [&](int layers) {
      std::set<std::string> code;
      for (const std::string& text : texts_of(gemm_programs(
               source, sizes, 4096, DType::bf16, Objective::memory, DType::bf16, layers))) {
        code.insert(text.substr(text.find("#include")));
      }
      return code;
    };
    EXPECT_EQ(of_layers(3), of_layers(5));
  }
}

TEST(KernelNames, ProgramsThatDifferInMoreStayApart) {
  const auto of = [](const std::string& x, const std::string& function, const std::string& type) {
    return without_names(parse_program("program " + x + " { store(" + x + ":" + type + ", " +
                                       function + "(gemm(a[M, K]:bf16, b[N, K]:bf16, nt))) }"));
  };
  const Program one = of("y", "exp", "bf16");
  EXPECT_EQ(one, of("z", "exp", "bf16"));
  EXPECT_NE(one, of("y", "tanh", "bf16"));
  EXPECT_NE(one, of("y", "exp", "f16"));
}

// Large ones, in both storage types, for both objectives, with gradients stored or accumulated.
TEST(GemmEmitter, ProgramsOfLlamaPlansCompile) {
  std::set<std::string> texts;
  for (const PlanSource source : {PlanSource::llama_model, PlanSource::llama_layer}) {
    texts.merge(kernels_of(
        gemm_programs(source, kLlama, 16384, DType::bf16, Objective::memory, DType::f32)));
    texts.merge(kernels_of(
        gemm_programs(source, kLlama, 16384, DType::bf16, Objective::speed, DType::bf16)));
  }
  texts.merge(kernels_of(gemm_programs(PlanSource::llama_model, kLlama, 16384, DType::f16,
                                       Objective::memory, DType::f16)));
  expect_no_defects(texts);
}

// Tiles of 192 accumulators leave an epilogue few registers. These were measured and taken, and are
// near the limit.
TEST(GemmEmitter, ManyAccumulatorsLeaveRoomForWhatWasTaken) {
  struct Case {
    const char* program;
    const char* tile;
  };
  constexpr Case kCases[] = {{"swiglu", "192x128p12s4"},
                             {"swiglu", "128x192p21s5"},
                             {"weight_gradient", "256x192c21s3"},
                             {"residual_norm", "192x128p12s5"},
                             {"residual_norm", "256x192c21s3"},
                             {"norm_backward", "128x192p21s4"},
                             {"swiglu_backward", "128x192p21s4"},
                             {"swiglu_backward", "192x128p12s4"},
                             {"loss", "128x192p21s5"}};
  std::set<std::string> texts;
  for (const Case& one : kCases) {
    LowerOptions options;
    options.choice = parse_choice(one.tile);
    texts.insert(lower(tests::library_program(one.program), kSizes, options).front().source);
  }
  EXPECT_EQ(texts.size(), std::size(kCases));
  expect_no_defects(texts);
}

// An error function is long, and its pairs take turns: the assembler would else work on so many at
// once that it spills, beside one product or two, with a row's scale or nothing to wait for.
TEST(GemmEmitter, ErrorFunctionsLeaveNoSpill) {
  std::set<std::string> texts;
  for (const std::string epilogue :
       {"store(y:bf16, gelu(gate))", "store(y:bf16, gelu(gate * per_row(r[M])))",
        "store(gate:bf16, gate)\n  store(y:bf16, gelu(gate) * gemm(x, w_up[N, K]:bf16, nt))",
        "store(y:bf16, gate * ((erf(gate) + 1) * 0.5))",
        "h = tile(h[M, N]:bf16)\n  phi = (erf(h) + 1) * 0.5\n  store(a:bf16, h * phi)\n"
        "  store(y:bf16, phi * gate + exp(h * h * -1) * (h * gate))"}) {
    const Program program = parse_program(
        "program errors {\n  gate = gemm(x[M, K]:bf16, w[N, K]:bf16, nt)\n  " + epilogue + "\n}");
    for (const std::string tile : {"128x256c21s3", "192x128p12s4"}) {
      LowerOptions options;
      options.choice = parse_choice(tile);
      texts.insert(lower(program, kSizes, options).front().source);
    }
  }
  EXPECT_EQ(texts.size(), 10U);
  expect_no_defects(texts);
}

// erf(x) + 1, as in a GELU, is one short function. Only what reads erf alone makes pairs take
// turns.
TEST(GemmEmitter, AnErrorFunctionPlusOneIsOneFunction) {
  const auto text = [](const std::string& result) {
    const Program program =
        parse_program("program p {\n  acc = gemm(x[M, K]:bf16, w[N, K]:bf16, nt)\n" + result +
                      "\n  store(out:bf16, y)\n}\n");
    return lower(program, kSizes, {}).front().source;
  };
  const std::string sum = "error_function_plus_one(acc)";
  const std::string gelu = text("  y = acc * ((1 + erf(acc)) * 0.5)");
  EXPECT_THAT(gelu, HasSubstr(sum));
  EXPECT_THAT(gelu, Not(HasSubstr("after_turn(")));
  const std::string both = text("  e = erf(acc)\n  y = (e + 1) * e");
  EXPECT_THAT(both,
              AllOf(HasSubstr(sum), HasSubstr(" error_function(acc)"), HasSubstr("after_turn(")));
  EXPECT_THAT(text("  y = erf(acc) + 2"), Not(HasSubstr(sum)));
}

// A tile of 128x128 that both warpgroups share, with every epilogue of the library, as deep as it
// can be.
TEST(GemmEmitter, ATileOfBothWarpgroupsServesEveryEpilogue) {
  std::set<std::string> texts;
  for (const std::string& name : tests::library_names()) {
    const Program program = tests::library_program(name);
    if (!program::has_product(program)) continue;
    LowerOptions options;
    for (const GemmConfig& choice : legal_choices(program, kSizes, {})) {
      const bool is_it = choice.tile_m == 128 && choice.tile_n == 128 &&
                         choice.schedule == device::Schedule::cooperative &&
                         choice.cluster_m == 2 && choice.cluster_n == 1;
      if (is_it && (!options.choice || choice.stages > options.choice->stages))
        options.choice = choice;
    }
    ASSERT_TRUE(options.choice) << program.name;
    EXPECT_GE(options.choice->stages, 5U) << program.name;
    const std::string source = lower(program, kSizes, options).front().source;
    EXPECT_THAT(source, HasSubstr(".schedule = Schedule::cooperative"));
    EXPECT_THAT(source, HasSubstr(".tile_m = 128, .tile_n = 128, .cluster_m = 2"));
    texts.insert(source);
  }
  EXPECT_GE(texts.size(), 13U);
  expect_no_defects(texts);
}

// GPT-2's vocabulary is odd, its products lie the other way round.
TEST(GemmEmitter, ProgramsOfGpt2PlansCompile) {
  const LlamaSizes sizes{.hidden = 768,
                         .heads = 12,
                         .kv_heads = 12,
                         .head_dim = 64,
                         .mlp = 3072,
                         .vocab = 50257,
                         .sequence = 1024};
  std::set<std::string> texts;
  texts.merge(kernels_of(gemm_programs(PlanSource::gpt2_model, sizes, 4096, DType::bf16,
                                       Objective::memory, DType::f32)));
  texts.merge(kernels_of(gemm_programs(PlanSource::gpt2_model, sizes, 4096, DType::f16,
                                       Objective::speed, DType::f16)));
  expect_no_defects(texts);
}

// Small and ragged ones, and other blocks: heads of 32 and 64, as many key-value heads as heads.
TEST(GemmEmitter, ProgramsOfOtherPlansCompile) {
  const LlamaSizes small{.hidden = 72,
                         .heads = 3,
                         .kv_heads = 3,
                         .head_dim = 32,
                         .mlp = 104,
                         .vocab = 61,
                         .sequence = 50};
  std::set<std::string> texts;
  for (const PlanSource source :
       {PlanSource::llama_layer, PlanSource::parallel_block, PlanSource::sandwich_block}) {
    texts.merge(
        kernels_of(gemm_programs(source, small, 100, DType::bf16, Objective::memory, DType::f32)));
  }
  expect_no_defects(texts);
}

struct RefusedProgram {
  std::string text;
  DimValues sizes;
  std::string error;
};

TEST(GemmEmitter, RefusesWithTheRemedy) {
  const RefusedProgram cases[] = {
      {"program forward.l0.p { store(y:bf16, gemm(x[M, K]:bf16, w[N, K]:bf16)) }",
       {{"M", int64_t{1} << 31}, {"N", 8}, {"K", 8}},
       "a product has 2147483648 rows, but a kernel supports at most 2147483647; run it over fewer "
       "rows"},
  };
  for (const RefusedProgram& c : cases) {
    try {
      lower(parse_program(c.text), c.sizes, {});
      ADD_FAILURE() << "not refused: " << c.text;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(c.error));
      EXPECT_THAT(error.what(), HasSubstr("program 'forward.l0.p'"));
    }
  }
}

// A head of any size that a tile holds whole is summed in its product's epilogue, in the tiles that
// do: one walk, or two where a sum is made of another; with the value that was normed stored too;
// as a gradient, of planes that are loaded.
TEST(GemmEmitter, SumsOfHeadsAreInTheEpilogue) {
  struct Case {
    std::string program;
    const char* tile;
  };
  const std::string rotated = tests::library_text("qk_norm_rope");
  const auto normed = [](int head, const std::string& more) {
    const std::string h = std::to_string(head);
    return "program heads {\n z = gemm(h[M, K]:bf16, w[" + h + "*H, K]:bf16, nt)\n" + more +
           " s = rsqrt(reduce_group(x * x, " + h + ") * 0.01 + 1e-6)\n store(s[M, H], s)\n" +
           " store(y:bf16, x * repeat_group(s, " + h + ") * per_column(g[" + h + "*H]))\n}";
  };
  const std::string as_it_is = " x = z * 1\n";
  const auto centred = [](int head) {
    const std::string h = std::to_string(head);
    return " x = z - repeat_group(reduce_group(z, " + h + ") * 0.01, " + h + ")\n";
  };
  const auto gradient = [](int head) {
    const std::string h = std::to_string(head);
    return "program heads_backward {\n dy = gemm(g[M, K]:bf16, w[K, " + h + "*H]:bf16)\n" +
           " x = tile(x[M, " + h + "*H]:bf16)\n s = repeat_group(tile(s[M, H]), " + h + ")\n" +
           " c = repeat_group(reduce_group(dy * x, " + h + ") * 0.01, " + h + ")\n" +
           " store(dx:bf16, (dy - x * s * s * c) * s)\n}";
  };
  const Case cases[] = {
      {rotated, "128x128p21s4"},
      {rotated, "128x256c21s3"},
      {normed(32, as_it_is), "128x128p21s4"},
      {normed(96, as_it_is), "128x192p21s4"},
      {normed(128, centred(128)), "128x128p21s4"},
      {normed(256, as_it_is), "128x256c21s3"},
      {gradient(64), "128x128p21s4"},
      {gradient(128), "128x128p21s4"},
  };
  std::set<std::string> texts;
  for (const Case& one : cases) {
    const Program program = parse_program(one.program);
    const DimValues sizes{{"M", 4096}, {"H", 12}, {"K", 2048}, {"S", 64}};
    LowerOptions options;
    options.choice = parse_choice(one.tile);
    const std::vector<KernelLaunch> launches = lower(program, sizes, options);
    EXPECT_EQ(launches.front().note, "");
    ASSERT_EQ(launches.size(), 1U);
    if (one.program == rotated) texts.insert(launches.front().source);
  }
  expect_no_defects(texts);
}

// Values are called after tensors, and hide nothing that the text calls itself.
TEST(GemmEmitter, TensorsMayHaveTheNamesOfTheText) {
  const Program program = parse_program(R"(program names {
  acc = gemm(a[M, K]:bf16, b[128, K]:bf16, nt) * (per_row(is_inside[M]) + 1)
  x = acc + tile(is_plain[R, 64], rows=next[M]:i32, repeat=2) * per_column(pack[128])
  store(out, x - tile(at_out[M, 128]) * tile(stride_out[M, 128]))
  store(unpack:bf16, x)
  store(pair_of:bf16, x * per_column(Rows[128]:bf16))
  row_partial(rounded, sum(x))
})");
  std::set<std::string> texts;
  for (const KernelLaunch& launch : lower(program, {{"M", 128}, {"K", 64}, {"R", 9}}, {}))
    texts.insert(launch.source);
  expect_no_defects(texts);
}

// Columns side by side in the tile stand two apart in the vector: they are not read as neighbours.
TEST(GemmEmitter, VectorsBesideAdjacentPairsAreReadOneByOne) {
  std::set<std::string> texts;
  for (const char* type : {"f32", "bf16"}) {
    const Program program = parse_program(
        "program biased {\n  gate = gemm(x[M, K]:bf16, w_gate[N, K]:bf16, nt)\n"
        "  up = gemm(x, w_up[N, K]:bf16, nt)\n"
        "  store(y:bf16, merge_pairs(gate, up, 2) + per_column(bias[2*N]:" +
        std::string(type) + "))\n}");
    const std::vector<KernelLaunch> launches = lower(program, kSizes, {});
    ASSERT_EQ(launches.size(), 1U);
    EXPECT_THAT(launches[0].source,
                HasSubstr("load_two<Element::" + std::string(type) +
                          ">(a.pointers[at_bias], wide_column(1, 1, column), wide_column(1, 1, "
                          "(column + 1)), inside_pair(column, at.columns))"));
    texts.insert(launches[0].source);
  }
  expect_no_defects(texts);
}

// Random programs whose products tensor cores can make are all lowered, whole or split; of those
// that stay whole some are compiled.
TEST(GemmEmitter, RandomPrograms) {
  constexpr uint64_t kPrograms = 400;
  constexpr size_t kCompiled = 16;
  std::set<std::string> texts;
  for (uint64_t seed = 0; seed < kPrograms; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const coda::tests::RandomProgram random = coda::tests::random_program(seed);
    const Program program = with_products_for_tensor_cores(random.program, seed);
    verify(program);
    LowerOptions options;
    options.row_strides = padded_strides(program, random.sizes);
    for (const KernelLaunch& launch : lower(program, random.sizes, options)) {
      const bool is_whole = launch.note.empty() && !launch.maps.empty();
      if (is_whole && texts.size() < kCompiled) texts.insert(launch.source);
    }
  }
  expect_no_defects(texts);
}

}  // namespace
}  // namespace coda::gpu
