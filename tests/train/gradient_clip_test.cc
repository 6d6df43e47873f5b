// SPDX-License-Identifier: Apache-2.0
// The global norm against a plain float64 sum, its bits for any number of threads, and PyTorch's
// clipping factor.
#include "coda/gradient_clip.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "coda/program.h"
#include "runtime/reference_backend.h"
#include "train/update_programs.h"

namespace coda {
namespace {

using Gradients = std::vector<std::vector<float>>;

double norm_of(const Gradients& gradients) {
  const std::vector<std::span<const float>> spans(gradients.begin(), gradients.end());
  return global_norm(spans);
}

Gradients random_gradients(uint64_t seed, float size) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, size);
  Gradients gradients;
  for (const size_t count : {1u, 7u, 8u, 9u, 16384u, 16385u, 50001u, 0u}) {
    gradients.emplace_back(count);
    for (float& value : gradients.back()) value = normal(random);
  }
  return gradients;
}

TEST(GlobalNorm, IsTheRootOfTheSumOfSquares) {
  // Large values, whose squares are beyond fp32, and small ones, whose squares are below it.
  for (const float size : {1.0f, 1e25f, 1e-30f}) {
    const Gradients gradients = random_gradients(5, size);
    long double sum = 0;
    for (const auto& gradient : gradients) {
      for (const float value : gradient) sum += static_cast<long double>(value) * value;
    }
    const auto expected = static_cast<double>(std::sqrt(sum));
    EXPECT_NEAR(norm_of(gradients), expected, 1e-12 * expected) << "size " << size;
  }
  EXPECT_EQ(norm_of({}), 0);
  EXPECT_EQ(norm_of({{3, 0}, {}, {-4}}), 5);
}

TEST(GlobalNorm, HasTheSameBitsForAnyNumberOfThreads) {
  const int threads = omp_get_max_threads();
  const Gradients gradients = random_gradients(6, 1);
  omp_set_num_threads(1);
  const double one = norm_of(gradients);
  for (const int count : {2, 3, 7}) {
    omp_set_num_threads(count);
    EXPECT_EQ(norm_of(gradients), one) << count << " threads";
  }
  omp_set_num_threads(threads);
}

TEST(GlobalNorm, IsNotFiniteIfAGradientIsNot) {
  Gradients gradients = random_gradients(7, 1);
  gradients[5][16384] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(std::isfinite(norm_of(gradients)));
  gradients[5][16384] = -std::numeric_limits<float>::infinity();
  EXPECT_FALSE(std::isfinite(norm_of(gradients)));
}

// A backend with memory of its own finds the norm and the factor by a program.
TEST(ClipScale, OfAProgramIsTheSame) {
  ReferenceBackend backend;
  for (const double clip : {0.0, 1e-7, 1e-6, 1.0}) {
    const Program program = parse_program(norm_text(clip));
    const auto kernel = backend.prepare(program, {{"S", 2}, {"G", 64}});
    for (const double norm : {0.0, 1e-7, 1e-6, 0.5, 4.0, 1e30}) {
      std::map<std::string, Tensor> tensors;
      std::vector<TensorView> views;
      for (const TensorDecl& decl : program.tensors) {
        const PhysicalShape shape = physical_shape(decl, {{"S", 2}, {"G", 64}});
        Tensor& its =
            tensors.try_emplace(decl.name, DType::f32, shape.rows, shape.cols).first->second;
        its.fill(decl.name == "of_groups"
                     ? static_cast<float>(norm * norm / static_cast<double>(its.size()))
                     : 1.0F);
        views.push_back(its.view());
      }
      kernel->run(views);
      const bool is_finite = norm * norm < 1e38;
      EXPECT_EQ(tensors.at("sound").floats()[0], is_finite ? 1 : 0);
      if (!is_finite) continue;
      EXPECT_NEAR(tensors.at("norm").floats()[0], norm, 1e-6 * norm);
      const double scale = clip_scale(norm, clip);
      EXPECT_NEAR(tensors.at("scale").floats()[0], scale, 1e-5 * scale) << norm << " " << clip;
    }
  }
}

TEST(ClipScale, IsPyTorchs) {
  EXPECT_EQ(clip_scale(0.5, 1), 1);
  EXPECT_EQ(clip_scale(4, 1), 1 / (4 + 1e-6));
  EXPECT_EQ(clip_scale(0, 1), 1);
  EXPECT_EQ(clip_scale(4, 0), 1);  // no clipping
}

}  // namespace
}  // namespace coda
