// SPDX-License-Identifier: Apache-2.0
// Whole plans on the reference backend, built by hand: a projection after a norm, with its gradient
// by the saved factor; a gradient that is added to; stores rounded to their type; opaque steps
// beside programs.
#include "runtime/reference_backend.h"

#include <gtest/gtest.h>

#include <cmath>

#include "coda/error.h"
#include "coda/float16.h"
#include "coda/program_builder.h"
#include "coda/session.h"
#include "runtime/owned_tensor.h"

namespace coda {
namespace {

PlanStep step(const Program& program, StepRole role) { return {program.name, role, program, {}}; }

// Every tensor that the programs declare, with the roles given; the others are temporaries.
std::vector<PlanTensor> tensors_of(const Plan& plan,
                                   const std::map<std::string, TensorRole>& roles) {
  std::map<std::string, PlanTensor> tensors;
  for (const auto* steps : {&plan.forward, &plan.backward}) {
    for (const PlanStep& s : *steps) {
      const auto* program = std::get_if<Program>(&s.work);
      if (program == nullptr) continue;
      for (const TensorDecl& decl : program->tensors) {
        const auto role = roles.find(decl.name);
        tensors[decl.name] = {decl, role == roles.end() ? TensorRole::temporary : role->second};
      }
    }
  }
  std::vector<PlanTensor> list;
  for (auto& [name, tensor] : tensors) list.push_back(tensor);
  return list;
}

// y = (x · wᵀ) * r with r = rsqrt(mean(x²) + eps); dw += (dy * r)ᵀ · x.
Plan norm_plan(const std::string& y_type) {
  Plan plan;
  ProgramBuilder squares("squares");
  auto x = squares.load_tile("x[M, K]:f32");
  squares.row_partial("p", PartialKind::sum, x * x);
  plan.forward.push_back(step(squares.build(), StepRole::tile));

  ProgramBuilder finalizer("factor");
  auto sum = finalizer.combine_rows("p[M, K]", PartialKind::sum);
  finalizer.store("r[M, 1]:f32", rsqrt(sum * (1.0 / 70) + 1e-5));
  plan.forward.push_back(step(finalizer.build(), StepRole::finalizer));

  ProgramBuilder project("project");
  auto acc = project.gemm("x[M, K]:f32", "w[N, K]:f32");
  project.store("y[M, N]:" + y_type, acc * project.load_per_row("r[M, 1]:f32"));
  plan.forward.push_back(step(project.build(), StepRole::gemm));

  ProgramBuilder scaled("scaled");
  scaled.store("g[M, N]:f32",
               scaled.load_tile("dy[M, N]:f32") * scaled.load_per_row("r[M, 1]:f32"));
  plan.backward.push_back(step(scaled.build(), StepRole::tile));

  ProgramBuilder weight("weight_gradient");
  auto dw = weight.gemm("g[M, N]:f32", "x[M, K]:f32", "tn");
  weight.store("dw[N, K]:f32", dw + weight.load_tile("dw[N, K]:f32"));
  plan.backward.push_back(step(weight.build(), StepRole::gemm));
  plan.tensors = tensors_of(plan, {{"x", TensorRole::input},
                                   {"w", TensorRole::parameter},
                                   {"r", TensorRole::saved},
                                   {"y", TensorRole::output},
                                   {"dy", TensorRole::input},
                                   {"dw", TensorRole::output}});
  return plan;
}

TEST(ReferenceBackend, RunsAPlanForwardAndBackward) {
  const int64_t m = 5, n = 3, k = 70;
  for (DType y_type : {DType::f32, DType::bf16}) {
    ReferenceBackend backend;
    Session session(norm_plan(std::string(name_of(y_type))), backend,
                    {{"M", m}, {"N", n}, {"K", k}}, {.timing = false, .poison = true});
    OwnedTensor x(DType::f32, m, k, 2), w(DType::f32, n, k), y(y_type, m, n), dy(DType::f32, m, n),
        dw(DType::f32, n, k);
    x.randomise(1), w.randomise(2), dy.randomise(3), dw.randomise(4);
    const std::vector<double> xs = x.values(), ws = w.values(), dys = dy.values(),
                              before = dw.values();
    session.bind("x", x.view()), session.bind("w", w.view()), session.bind("y", y.view());
    session.bind("dy", dy.view()), session.bind("dw", dw.view());
    session.forward();
    session.backward();

    std::vector<double> expected_y, expected_dw = before;
    for (int64_t i = 0; i < m; ++i) {
      double squares = 0;
      for (int64_t c = 0; c < k; ++c) squares += xs[i * k + c] * xs[i * k + c];
      const double r = 1 / std::sqrt(squares / k + 1e-5);
      for (int64_t j = 0; j < n; ++j) {
        double dot = 0;
        for (int64_t c = 0; c < k; ++c) {
          dot += xs[i * k + c] * ws[j * k + c];
          expected_dw[j * k + c] += dys[i * n + j] * r * xs[i * k + c];
        }
        const float value = static_cast<float>(dot * r);
        expected_y.push_back(y_type == DType::bf16 ? float_from_bf16(bf16_from_float(value))
                                                   : value);
      }
    }
    EXPECT_LT(relative_error(y.values(), expected_y), y_type == DType::bf16 ? 1e-3 : 1e-6);
    EXPECT_LT(relative_error(dw.values(), expected_dw), 1e-6);
  }
}

TEST(ReferenceBackend, RunsOpaqueStepsBesidePrograms) {
  ProgramBuilder twice("twice");
  twice.store("y[M, D]:f32", twice.load_tile("rows[M, D]:f32") * 2.0);
  OpaqueCall embedding;
  embedding.function = "embedding";
  embedding.inputs = {"table", "ids"};
  embedding.outputs = {"rows"};
  Plan plan;
  plan.forward = {{"embedding", StepRole::opaque, embedding, {}},
                  step(twice.build(), StepRole::tile)};
  plan.tensors = tensors_of(plan, {{"y", TensorRole::output}});
  plan.tensors.push_back({TensorDecl{"table", Shape{"V", "D"}}, TensorRole::parameter});
  plan.tensors.push_back({TensorDecl{"ids", Shape{"M", 1}, DType::i32}, TensorRole::input});
  ReferenceBackend backend;
  Session session(plan, backend, {{"M", 3}, {"V", 4}, {"D", 2}});
  OwnedTensor table(DType::f32, 4, 2), ids(DType::i32, 3, 1), y(DType::f32, 3, 2);
  table.set(std::vector<double>{0, 1, 2, 3, 4, 5, 6, 7});
  ids.set(std::vector<double>{3, 0, 3});
  session.bind("table", table.view()), session.bind("ids", ids.view()), session.bind("y", y.view());
  session.forward();
  EXPECT_EQ(y.values(), (std::vector<double>{12, 14, 0, 2, 12, 14}));
}

TEST(ReferenceBackend, RefusesAnUnknownFunction) {
  ReferenceBackend backend;
  OpaqueCall call;
  call.function = "attend";
  EXPECT_THROW(backend.prepare(call, {}, {}), Error);
}

}  // namespace
}  // namespace coda
