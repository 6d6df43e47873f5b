// SPDX-License-Identifier: Apache-2.0
// Keyed hashes as RFC 4231 has them, and secrets.
#include "collective/proof.h"

#include <gtest/gtest.h>

#include "coda/communicator.h"

namespace coda {
namespace {

TEST(KeyedHash, IsThatOfTheStandard) {
  EXPECT_EQ(keyed_hash(std::string(20, '\x0b'), "Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(keyed_hash("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(keyed_hash(std::string(131, '\xaa'),
                       "Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(KeyedHash, AreComparedWhole) {
  const std::string hash = keyed_hash("a", "b");
  EXPECT_TRUE(is_same_hash(hash, keyed_hash("a", "b")));
  EXPECT_FALSE(is_same_hash(hash, hash.substr(0, 63)));
  EXPECT_FALSE(is_same_hash("", hash));
  for (size_t i = 0; i < hash.size(); ++i) {
    std::string other = hash;
    other[i] = other[i] == 'x' ? 'y' : 'x';
    EXPECT_FALSE(is_same_hash(hash, other)) << i;
  }
}

TEST(RandomSecret, IsAnotherEachTime) {
  const std::string secret = random_secret();
  EXPECT_EQ(secret.size(), 64u);
  EXPECT_EQ(secret.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_NE(secret, random_secret());
}

}  // namespace
}  // namespace coda
