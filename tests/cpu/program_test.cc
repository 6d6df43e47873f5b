// SPDX-License-Identifier: Apache-2.0
// Programs on the CPU backend against the float64 meaning of the same programs, from the same
// (already rounded) inputs: random ones of every kind of step, and written ones for what sizes and
// types random ones do not reach. Options that must not matter must not change a bit.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "coda/error.h"
#include "coda/program_builder.h"
#include "cpu/cpu_backend.h"
#include "cpu/instruction_sets.h"
#include "cpu/program_run.h"
#include "program/evaluate.h"
#include "program/random_program.h"

namespace coda::cpu {
namespace {

using tests::random_inputs;
using tests::run_program;
using tests::Values;

DType type_of(const Program& program, const std::string& name) {
  for (const TensorDecl& decl : program.tensors) {
    if (decl.name == name) return decl.dtype;
  }
  ADD_FAILURE() << "no tensor " << name;
  return DType::f32;
}

// Sums of up to 400 products of numbers around 1 have errors of about sqrt(400) 2^-24 = 1.2e-6 of
// their size, and a chain of elementwise operations adds a few 2^-24 each. Random programs subtract
// values that are nearly equal, which multiplies this (by 300 in 3000 programs); an intermediate
// rounding to 16 bits that falls to the other side changes an element by 2^-8 (bf16).
constexpr double kRandomBound = 1e-3;
// What is rounded to 16 bits may fall to the other side of a tie: with the bound above less than
// one rounding (2^-9 bf16, 2^-12 f16) of the whole tensor.
double bound_of(DType type) { return kRandomBound + (type == DType::bf16 ? 0x1p-9 : 0); }

void expect_close(const Program& program, const DimValues& sizes, const Values& inputs,
                  const Values& results, double bound_f32 = -1) {
  const Values reference = program::evaluate(program, sizes, inputs, {.round_stored = true});
  for (const auto& [name, expected] : reference) {
    const DType type = type_of(program, name);
    const double bound = bound_f32 < 0         ? bound_of(type)
                         : type == DType::bf16 ? bound_f32 + 0x1p-9
                                               : bound_f32;
    EXPECT_LE(relative_error(results.at(name), expected), bound) << name << "\n" << text(program);
  }
}

void expect_same_bits(const Values& a, const Values& b, const std::string& what) {
  for (const auto& [name, values] : a) {
    const std::vector<double>& others = b.at(name);
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::isnan(values[i]) && std::isnan(others[i])) continue;
      ASSERT_EQ(std::bit_cast<uint64_t>(values[i]), std::bit_cast<uint64_t>(others[i]))
          << what << ": " << name << " element " << i;
    }
  }
}

Values run_with(const CpuOptions& options, const Program& program, const DimValues& sizes,
                const Values& inputs) {
  return run_program(*make_cpu_backend(options), program, sizes, inputs);
}

// Copies transposed, and largest magnitudes, of every value that random programs store.
TEST(CpuProgram, TransposedCopiesAndMagnitudesAgreeWithFloat64) {
  for (uint64_t seed = 1; seed <= 120; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const tests::RandomProgram random = tests::random_program(seed);
    const Program program = tests::with_copies(random.program, seed);
    const Values inputs = random_inputs(program, random.sizes, seed);
    const Values one = run_with({.threads = 1}, program, random.sizes, inputs);
    expect_same_bits(one, run_with({.threads = 2}, program, random.sizes, inputs), "threads");
    Values results = one;
    // A copy has the codes of what it is a copy of, where both have one type: no bound is needed.
    for (const Step& step : program.steps) {
      if (!program::is_transposed_store(step)) continue;
      const TensorDecl& copy = program.tensors[static_cast<size_t>(step.tensor())];
      for (const Step& store : program.steps) {
        if (!program::is_tile_store(store) || store.operands != step.operands) continue;
        const TensorDecl& stored = program.tensors[static_cast<size_t>(store.tensor())];
        if (stored.dtype != DType::f32) continue;
        const int64_t rows = store.shape.rows.evaluate(random.sizes);
        const int64_t cols = store.shape.cols.evaluate(random.sizes);
        for (int64_t i = 0; i < rows; ++i) {
          for (int64_t j = 0; j < cols; ++j) {
            ASSERT_EQ(
                results.at(copy.name)[static_cast<size_t>(j * rows + i)],
                rounded_to(copy.dtype, results.at(stored.name)[static_cast<size_t>(i * cols + j)]))
                << copy.name << " " << i << " " << j;
          }
        }
      }
      if (size_of(copy.dtype) == 1) results.erase(copy.name);  // one code to the side is 6 %
    }
    const Values reference =
        program::evaluate(program, random.sizes, inputs, {.round_stored = true});
    for (const auto& [name, values] : results)
      EXPECT_LE(relative_error(values, reference.at(name)), bound_of(type_of(program, name)))
          << name << "\n"
          << text(program);
  }
}

// No number stays no number, as on the other backends; infinity is a magnitude.
TEST(CpuProgram, MagnitudesOfWhatIsNotFinite) {
  const Program program = parse_program("program p { abs_max_into(largest, tile(x[M, N])) }");
  const DimValues sizes{{"M", 2}, {"N", 40}};
  const auto largest = [&](float odd) {
    Values inputs{{"x", std::vector<double>(80, -2.0)}, {"largest", {1}}};
    inputs.at("x")[70] = static_cast<double>(odd);
    return run_with({}, program, sizes, inputs).at("largest")[0];
  };
  EXPECT_EQ(largest(1), 2);
  EXPECT_EQ(largest(-INFINITY), INFINITY);
  EXPECT_TRUE(std::isnan(largest(NAN)));
}

TEST(CpuProgram, RandomProgramsAgreeWithFloat64) {
  for (uint64_t seed = 1; seed <= 250; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const tests::RandomProgram random = tests::random_program(seed);
    const Values inputs = random_inputs(random.program, random.sizes, seed);
    expect_close(random.program, random.sizes, inputs,
                 run_with({.threads = 2}, random.program, random.sizes, inputs));
    if (!random.finalizer) continue;
    const Values partials = random_inputs(*random.finalizer, random.sizes, seed);
    expect_close(*random.finalizer, random.sizes, partials,
                 run_with({.threads = 2}, *random.finalizer, random.sizes, partials));
  }
}

TEST(CpuProgram, ThreadsAndTileShapesDoNotChangeABit) {
  for (uint64_t seed = 1001; seed <= 1060; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const tests::RandomProgram random = tests::random_program(seed);
    const Values inputs = random_inputs(random.program, random.sizes, seed);
    const auto run = [&](const CpuOptions& options) {
      return run_with(options, random.program, random.sizes, inputs);
    };
    const Values one = run({.threads = 1});
    expect_same_bits(one, run({.threads = 1}), "run again");
    expect_same_bits(one, run({.threads = 2}), "2 threads");
    expect_same_bits(one, run({.threads = 3}), "3 threads");
    expect_same_bits(one, run({.threads = 2, .tile_rows = 64, .tile_cols = 64}), "tiles 64 x 64");
    expect_same_bits(one, run({.threads = 1, .tile_rows = 192, .tile_cols = 128}), "192 x 128");
    expect_same_bits(one, run({.threads = 3, .tile_rows = 64, .tile_cols = 512}), "64 x 512");
  }
}

TEST(CpuProgram, EveryInstructionSetAndThePortableGemmAgreeWithFloat64) {
  for_each_instruction_set([] {
    for (uint64_t seed = 2001; seed <= 2030; ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      const tests::RandomProgram random = tests::random_program(seed);
      const Values inputs = random_inputs(random.program, random.sizes, seed);
      const auto run = [&](const CpuOptions& options) {
        return run_with(options, random.program, random.sizes, inputs);
      };
      const Values portable = run({.threads = 2, .gemm = GemmLibrary::portable});
      expect_close(random.program, random.sizes, inputs, portable);
      expect_close(random.program, random.sizes, inputs, run({.threads = 2}));
      expect_same_bits(
          portable,
          run({.threads = 1, .tile_rows = 64, .tile_cols = 64, .gemm = GemmLibrary::portable}),
          "portable, tiles 64 x 64");
    }
  });
}

// Layouts, types, sizes around panels, blocks of k (256; 512 for bf16) and tiles.
TEST(CpuProgram, GemmsOfAllLayoutsAndTypes) {
  const std::vector<std::array<int64_t, 3>> sizes = {
      {1, 1, 1}, {1, 200, 700}, {3, 65, 257}, {129, 130, 31}, {130, 63, 513}, {70, 100, 1025}};
  for (const std::string layout : {"nn", "nt", "tn", "tt"}) {
    for (const auto& [ta, tb] : std::vector<std::pair<std::string, std::string>>{
             {"", ""}, {":bf16", ":bf16"}, {":bf16", ""}, {":f16", ":bf16"}}) {
      for (const auto& [m, n, k] : sizes) {
        const DimValues dims = {{"M", m}, {"N", n}, {"K", k}};
        SCOPED_TRACE(layout + ta + tb + " " + std::to_string(m) + " x " + std::to_string(n) +
                     " x " + std::to_string(k));
        ProgramBuilder p("gemm");
        const std::string a = (layout[0] == 't' ? "a[K, M]" : "a[M, K]") + ta;
        const std::string b = (layout[1] == 't' ? "b[N, K]" : "b[K, N]") + tb;
        p.store("c", p.gemm(a, b, layout));
        const Program program = p.build();
        const Values inputs = random_inputs(program, dims, static_cast<uint64_t>(m + n + k));
        for (GemmLibrary library : {GemmLibrary::best, GemmLibrary::portable}) {
          const Values result = run_with({.threads = 2, .gemm = library}, program, dims, inputs);
          // Products of 16-bit values are exact; sums of k terms of random sign err by about
          // sqrt(k) 2^-24 of their size at most (2^-23 with bf16 products summed in pairs).
          expect_close(program, dims, inputs, result, 0x1p-23 * std::sqrt(double(k)));
          const Values other =
              run_with({.threads = 1, .tile_rows = 64, .tile_cols = 64, .gemm = library}, program,
                       dims, inputs);
          expect_same_bits(result, other, "tiles 64 x 64");
        }
      }
    }
  }
}

// out = silu(gate) * up and the gradient of z behind a row scale, as a block has them, at a size of
// several tiles; pairs in each layout.
Program gated_program(const Pairs& pairs, const std::string& type) {
  ProgramBuilder p("gated");
  const auto da = p.gemm("dx[M, D]" + type, "w[D, 10*H]" + type, "nn");
  const auto r = p.load_per_row("r[M]");
  const auto z = p.load_tile("z[M, 20*H]" + type);
  const auto [gate, up] = p.split_pairs(z, pairs);
  const auto s = sigmoid(gate);
  const auto a = gate * s;
  const auto dup = da * a;
  const auto dgate = da * up * (s * (gate * (1.0 - s) + 1.0));
  const auto dz = p.merge_pairs(dgate, dup, pairs);
  p.store("dz" + type, dz * r);
  p.store("a" + type, a * up);
  p.row_partial("s", PartialKind::sum, z * dz);
  p.column_partial("bias", PartialKind::sum, dz);
  return p.build();
}

TEST(CpuProgram, GatedBackwardAtTheSizeOfABlock) {
  const DimValues dims = {{"M", 200}, {"D", 300}, {"H", 33}};
  for (const Pairs& pairs : {Pairs::interleaved, Pairs::concatenated, Pairs::within(Dim(10))}) {
    for (const std::string type : {"", ":bf16"}) {
      const Program program = gated_program(pairs, type);
      const Values inputs = random_inputs(program, dims, 5);
      const Values result = run_with({.threads = 2}, program, dims, inputs);
      expect_close(program, dims, inputs, result, 4e-6);
      expect_same_bits(
          result,
          run_with({.threads = 3, .tile_rows = 64, .tile_cols = 192}, program, dims, inputs),
          "other tiles");
    }
  }
}

TEST(CpuProgram, ARowsResultDoesNotDependOnTheOtherRows) {
  ProgramBuilder p("rows");
  const auto acc = p.gemm("x[M, K]:bf16", "w[N, K]:bf16", "nt") +
                   p.gemm("y[M, J]", "v[J, N]", "nn") * p.load_per_row("r[M]");
  p.store("out", gelu(acc));
  p.row_partial("partial", PartialKind::log_sum_exp, acc);
  const Program program = p.build();
  DimValues all = {{"M", 150}, {"N", 200}, {"K", 600}, {"J", 77}};
  const Values inputs = random_inputs(program, all, 9);
  const Values expected = run_with({.threads = 2}, program, all, inputs);
  for (const auto& [first, count] : std::vector<std::pair<int64_t, int64_t>>{
           {0, 1}, {149, 1}, {3, 5}, {60, 70}, {17, 64}, {1, 130}}) {
    DimValues some = all;
    some["M"] = count;
    Values part = inputs;
    for (const auto& [name, columns] :
         std::vector<std::pair<std::string, int64_t>>{{"x", 600}, {"y", 77}, {"r", 1}}) {
      const std::vector<double>& whole = inputs.at(name);
      part[name] = {whole.begin() + first * columns, whole.begin() + (first + count) * columns};
    }
    const Values result = run_with({.threads = 2}, program, some, part);
    const std::vector<double>& out = expected.at("out");
    const std::vector<double>& partial = expected.at("partial");
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t j = 0; j < 200; ++j) {
        ASSERT_EQ(result.at("out")[i * 200 + j], out[(first + i) * 200 + j]);
      }
      for (int64_t lane = 0; lane < 2; ++lane) {
        for (int64_t j = 0; j < 4; ++j) {
          ASSERT_EQ(result.at("partial")[(lane * count + i) * 4 + j],
                    partial[(lane * 150 + first + i) * 4 + j]);
        }
      }
    }
  }
}

TEST(CpuProgram, AWeightGradientAccumulatesInPlaceIntoEachStorageType) {
  for (const std::string type : {"", ":bf16", ":f16"}) {
    ProgramBuilder p("accumulate");
    const auto acc = p.gemm("dz[M, N]:bf16", "x[M, K]:bf16", "tn");
    const auto w = p.load_per_column("w[K]");
    p.store("dw" + type, p.load_tile("dw[N, K]" + type) + acc * w);
    p.column_partial("partial", PartialKind::sum, acc * p.load_tile("weight[N, K]:bf16"));
    const Program program = p.build();
    const DimValues dims = {{"M", 300}, {"N", 140}, {"K", 333}};
    const Values inputs = random_inputs(program, dims, 11);
    const Values result = run_with({.threads = 2}, program, dims, inputs);
    expect_close(program, dims, inputs, result, type == ":f16" ? 1e-5 : 2e-6);
  }
}

// Products of different heights, as the gradients of q's, k's and v's weights: one packing of their
// common operand serves them, and the one that has another does not get it.
TEST(CpuProgram, ProductsOfSeveralHeightsShareAnOperand) {
  for (const std::string type : {"", ":bf16"}) {
    for (const std::string order : {"qkw", "qwk", "wqk"}) {
      SCOPED_TRACE(order + type);
      ProgramBuilder p("share");
      for (const char height : order) {
        const std::string name(1, height);
        const std::string b = (height == 'w' ? "y" : "x") + std::string("[K, N]") + type;
        p.store("d" + name, p.gemm("a" + name + "[K, " + name + "]" + type, b, "tn"));
      }
      const Program program = p.build();
      const DimValues sizes = {{"q", 200}, {"k", 70}, {"w", 129}, {"K", 301}, {"N", 130}};
      const Values inputs = random_inputs(program, sizes, 1);
      const Values one = run_with({.threads = 1}, program, sizes, inputs);
      expect_close(program, sizes, inputs, one);
      expect_same_bits(one, run_with({.threads = 2}, program, sizes, inputs), "2 threads");
      expect_same_bits(one, run_with({.threads = 2, .tile_rows = 64}, program, sizes, inputs),
                       "tiles of 64 rows");
    }
  }
}

TEST(CpuProgram, PrepareOnceRunManyAndCountScratch) {
  ProgramBuilder p("twice");
  p.store("out", p.gemm("x[M, K]", "w[N, K]", "nt"));
  const Program program = p.build();
  const DimValues dims = {{"M", 100}, {"N", 90}, {"K", 80}};
  const auto backend = make_cpu_backend({.threads = 2});
  const auto kernel = backend->prepare(program, dims);
  const int64_t bytes = backend->scratch_bytes();
  EXPECT_GE(bytes, 128 * 80 * 4);  // packed B at least
  for (uint64_t seed : {1, 2, 3}) {
    const Values inputs = random_inputs(program, dims, seed);
    const Values reference = program::evaluate(program, dims, inputs);
    std::vector<tests::GuardedTensor> tensors;
    std::vector<TensorView> views;
    for (const TensorDecl& decl : program.tensors) {
      const auto found = inputs.find(decl.name);
      tensors.emplace_back(decl, dims, found == inputs.end() ? nullptr : &found->second);
    }
    for (auto& tensor : tensors) views.push_back(tensor.view());
    kernel->run(views);
    for (size_t i = 0; i < program.tensors.size(); ++i) {
      if (program.tensors[i].name != "out") continue;
      EXPECT_LE(relative_error(tensors[i].values(), reference.at("out")), 1e-6);
    }
    EXPECT_EQ(backend->scratch_bytes(), bytes);
  }
}

TEST(CpuProgram, ARowIndexOutsideTheTableIsAnError) {
  ProgramBuilder p("gather");
  p.store("out", p.load_tile("table[S, N]", {.rows = "position[M]"}));
  const Program program = p.build();
  const DimValues dims = {{"M", 5}, {"S", 4}, {"N", 3}};
  Values inputs = random_inputs(program, dims, 1);
  inputs["position"] = {0, 1, 4, 2, 3};
  try {
    run_with({.threads = 1}, program, dims, inputs);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "row index 4 at 2 is outside the 4 rows of the tensor it gathers from");
  }
}

TEST(CpuProgram, OptionsThatCannotBeMetAreErrors) {
  EXPECT_THROW(make_cpu_backend({.threads = -1}), Error);
  EXPECT_THROW(make_cpu_backend({.tile_rows = 100}), Error);
  EXPECT_THROW(make_cpu_backend({.tile_cols = 32}), Error);
}

}  // namespace
}  // namespace coda::cpu
