// SPDX-License-Identifier: Apache-2.0
// What epilogues cost: the programs of a LLaMA block beside the same GEMMs with a plain store. The
// difference of a pair of lines ("fused" and "plain") is the epilogue's own time.
#include <benchmark/benchmark.h>

#include <array>
#include <string>
#include <vector>

#include "coda/program_builder.h"
#include "coda/tensor.h"
#include "cpu/cpu_backend.h"

namespace coda::cpu {
namespace {

// Symbols: M rows; D and D2, both the hidden size; I, that of the MLP.
struct BlockEpilogue {
  const char* name;
  // `plain`: the same products, stored and nothing else.
  void (*write)(ProgramBuilder& p, const std::string& type, bool plain);
};

void out_projection(ProgramBuilder& p, const std::string& t, bool plain) {
  const auto acc = p.gemm("y[M, D]" + t, "w[D2, D]" + t, "nt");
  if (plain) return p.store("x1" + t, acc);
  const auto x1 =
      p.as_stored(acc + p.load_tile("x0[M, D2]" + t), t == ":bf16" ? DType::bf16 : DType::f32);
  p.store("x1" + t, x1);
  p.store("h1" + t, x1 * p.load_per_column("norm[D2]"));
  p.row_partial("s", PartialKind::sum, x1 * x1);
}

void gate_up(ProgramBuilder& p, const std::string& t, bool plain) {
  const auto g = p.gemm("h[M, D]" + t, "wg[I, D]" + t, "nt");
  const auto u = p.gemm("h[M, D]" + t, "wu[I, D]" + t, "nt");
  if (plain) {
    p.store("g" + t, g);
    return p.store("u" + t, u);
  }
  const auto r = p.load_per_row("r[M]");
  const auto gate = g * r;
  const auto up = u * r;
  p.store("g" + t, gate);
  p.store("u" + t, up);
  p.store("a" + t, gate * sigmoid(gate) * up);
}

void gate_up_backward(ProgramBuilder& p, const std::string& t, bool plain) {
  const auto da = p.gemm("dx[M, D]" + t, "w[D, I]" + t, "nn");
  if (plain) return p.store("dg" + t, da);
  const auto r = p.load_per_row("r[M]");
  const auto g = p.load_tile("g[M, I]" + t);
  const auto u = p.load_tile("u[M, I]" + t);
  const auto s = sigmoid(g);
  const auto silu = g * s;
  const auto dg = da * u * (s * (g * (1.0 - s) + 1.0));
  const auto du = da * silu;
  p.store("dg" + t, dg * r);
  p.store("du" + t, du * r);
  p.store("a" + t, silu * u);
  p.row_partial("sg", PartialKind::sum, g * dg);
  p.row_partial("su", PartialKind::sum, u * du);
}

void norm_backward(ProgramBuilder& p, const std::string& t, bool plain) {
  const auto acc =
      p.gemm({{"dg[M, I]" + t, "wg[I, D]" + t, "nn"}, {"du[M, I]" + t, "wu[I, D]" + t, "nn"}});
  if (plain) return p.store("dx" + t, acc);
  const auto x = p.load_tile("x[M, D]" + t);
  const auto c = p.load_per_row("c[M]");
  p.store("dx" + t, acc * p.load_per_column("norm[D]") - x * c + p.load_tile("dy[M, D]" + t));
  p.column_partial("dnorm", PartialKind::sum, acc * x);
}

void weight_gradient(ProgramBuilder& p, const std::string& t, bool plain) {
  const auto acc = p.gemm("dz[M, I]" + t, "x[M, D]" + t, "tn");
  if (plain) return p.store("dw", acc);
  p.store("dw", p.load_tile("dw[I, D]") + acc * p.load_per_column("norm[D]"));
}

constexpr std::array kBlockEpilogues = {BlockEpilogue{"out_projection", out_projection},
                                        BlockEpilogue{"gate_up", gate_up},
                                        BlockEpilogue{"gate_up_backward", gate_up_backward},
                                        BlockEpilogue{"norm_backward", norm_backward},
                                        BlockEpilogue{"weight_gradient", weight_gradient}};

// A program with the memory of its tensors, zeros all of it.
struct AllocatedProgram {
  AllocatedProgram(const BlockEpilogue& epilogue, DType type, bool plain, const DimValues& sizes)
      : program([&] {
          ProgramBuilder p("part");
          epilogue.write(p, type == DType::bf16 ? ":bf16" : "", plain);
          return p.build();
        }()) {
    for (const TensorDecl& decl : program.tensors) {
      const PhysicalShape shape = physical_shape(decl, sizes);
      memory.emplace_back(shape.rows * shape.cols * size_of(decl.dtype));
      tensors.push_back(dense_view(memory.back().data(), decl.dtype, shape.rows, shape.cols));
    }
  }

  Program program;
  std::vector<std::vector<char>> memory;
  std::vector<TensorView> tensors;
};

void run(benchmark::State& state, const BlockEpilogue& epilogue, DType type, const DimValues& sizes,
         bool is_fused) {
  const AllocatedProgram allocated(epilogue, type, !is_fused, sizes);
  const auto backend = make_cpu_backend({.threads = 1});
  const auto kernel = backend->prepare(allocated.program, sizes);
  for (auto _ : state) kernel->run(allocated.tensors);
}

// Each epilogue, fused and plain, at the sizes of three models.
void register_all() {
  for (DType type : {DType::f32, DType::bf16}) {
    for (const auto& [m, d, i] : std::vector<std::array<int64_t, 3>>{
             {2048, 576, 1536}, {4096, 1024, 2816}, {2048, 2048, 5632}}) {
      const DimValues sizes = {{"M", m}, {"D", d}, {"D2", d}, {"I", i}};
      for (const BlockEpilogue& epilogue : kBlockEpilogues) {
        for (bool is_fused : {false, true}) {
          const std::string name = std::string(name_of(type)) + "/" + std::to_string(d) + "/" +
                                   epilogue.name + "/" + (is_fused ? "fused" : "plain");
          benchmark::RegisterBenchmark(name.c_str(), run, epilogue, type, sizes, is_fused)
              ->Unit(benchmark::kMillisecond);
        }
      }
    }
  }
}

}  // namespace
}  // namespace coda::cpu

int main(int argc, char** argv) {
  coda::cpu::register_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
