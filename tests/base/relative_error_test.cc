// SPDX-License-Identifier: Apache-2.0
// The measure that bounds are held against: a norm's ratio for numbers; what is NaN or infinite is
// right only where the reference is the same.
#include "base/relative_error.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace coda {
namespace {

using Numbers = std::vector<double>;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(RelativeError, IsTheDifferencesNormOverTheReferences) {
  EXPECT_EQ(relative_error(Numbers{3, 4}, Numbers{3, 4}), 0);
  EXPECT_DOUBLE_EQ(relative_error(Numbers{3.3, 4.4}, Numbers{3, 4}), 0.1);
  EXPECT_DOUBLE_EQ(relative_error(Numbers{0, 0}, Numbers{3, 4}), 1);
  EXPECT_EQ(relative_error(Numbers{}, Numbers{}), 0);
}

TEST(RelativeError, OfAReferenceThatIsZeroIsTheSizeItself) {
  EXPECT_DOUBLE_EQ(relative_error(Numbers{3, -4}, Numbers{0, 0}), 5);
}

TEST(RelativeError, ANumberIsNeverRightWhereTheOtherIsNone) {
  for (const double odd : {kNaN, kInfinity, -kInfinity}) {
    EXPECT_EQ(relative_error(Numbers{1, odd}, Numbers{1, 2}), kInfinity) << odd;
    EXPECT_EQ(relative_error(Numbers{1, 2}, Numbers{1, odd}), kInfinity) << odd;
    for (const double other : {kNaN, kInfinity, -kInfinity}) {
      const bool same = odd == other || (std::isnan(odd) && std::isnan(other));
      EXPECT_EQ(relative_error(Numbers{1, odd}, Numbers{1, other}), same ? 0 : kInfinity)
          << odd << " where " << other << " is right";
    }
  }
}

// The rest is still judged.
TEST(RelativeError, WhatAgreesInBeingNoNumberDoesNotHideTheRest) {
  EXPECT_DOUBLE_EQ(relative_error(Numbers{kNaN, 3.3, 4.4}, Numbers{kNaN, 3, 4}), 0.1);
  EXPECT_EQ(relative_error(Numbers{kNaN, 3, kNaN}, Numbers{kNaN, 3, 4}), kInfinity);
}

TEST(RelativeError, OtherSizesAreInfinitelyWrong) {
  EXPECT_EQ(relative_error(Numbers{1}, Numbers{1, 2}), kInfinity);
  EXPECT_EQ(relative_error(Numbers{1, 2}, Numbers{1}), kInfinity);
}

// A type that cannot hold a result makes it infinite: then that is right, and the rest is judged.
TEST(RelativeError, WhatATypeCannotHoldIsRightAsItIsRounded) {
  const Numbers exact{1, 1e5, -1e5, 3};
  const Numbers rounded{1.001, kInfinity, -kInfinity, 3};
  EXPECT_EQ(as_stored_allows(exact, rounded), (Numbers{1, kInfinity, -kInfinity, 3}));
  EXPECT_EQ(as_stored_allows(Numbers{kNaN, 2}, Numbers{kNaN, 2})[1], 2);
}

}  // namespace
}  // namespace coda
