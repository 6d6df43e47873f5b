// SPDX-License-Identifier: Apache-2.0
#include "coda/recompute.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coda/error.h"

namespace coda {
namespace {

TEST(Recompute, HasAnObjectiveAndACountOfLayersForEachName) {
  EXPECT_EQ(recompute_of("none").objective, Objective::speed);
  for (const char* name : {"norms", "layer", "layer:8"})
    EXPECT_EQ(recompute_of(name).objective, Objective::memory) << name;
  EXPECT_EQ(recompute_of("none").recomputed_layers, 0);
  EXPECT_EQ(recompute_of("norms").recomputed_layers, 0);
  EXPECT_EQ(recompute_of("layer").recomputed_layers, kAllLayers);
  EXPECT_EQ(recompute_of("layer:8").recomputed_layers, 8);
}

TEST(Recompute, RefusesOtherNames) {
  for (const char* name :
       {"", "all", "layer:", "layer:0", "layer:-2", "layer:2x", "layer:99999999999"}) {
    try {
      recompute_of(name);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("none, norms, layer or layer:N, not '"));
    }
  }
}

}  // namespace
}  // namespace coda
