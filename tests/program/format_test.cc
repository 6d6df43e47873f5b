// SPDX-License-Identifier: Apache-2.0
// The one layout: what it makes of a text, that it changes neither a program nor its comments, and
// that it is itself where it is done.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "coda/error.h"
#include "coda/program.h"
#include "coda/program_format.h"
#include "program/random_program.h"

namespace coda {
namespace {

TEST(Format, LaysAProgramOut) {
  EXPECT_EQ(format_program(R"(
# about this program


program   p
{ # what it has

     acc=gemm( x[ M,K ]:bf16 ,w[64 * I,K],nt )   # a product
  # alone

  a,b=split_pairs(acc*2,64)


  store( out , (a+b) * -a - neg(-3)+where(a<=b,1,2*a) )
  z = tile(t[S, I+4 - 2], # the table
           rows=i[M],repeat = 1)
  store(g,column_index( 2 * I )*tile(v[M,2*I]))
  store(z, z) }
# the end)"),
            R"(# about this program

program p {  # what it has
  acc = gemm(x[M, K]:bf16, w[64*I, K], nt)  # a product
  # alone

  a, b = split_pairs(acc * 2, 64)

  store(out, (a + b) * -a - neg(-3) + where(a <= b, 1, 2 * a))
  # the table
  z = tile(t[S, I + 4 - 2], rows=i[M], repeat=1)
  store(g, column_index(2*I) * tile(v[M, 2*I]))
  store(z, z)
}
# the end
)");
}

TEST(Format, BreaksLongLinesWhereLeastIsOpen) {
  const std::string formatted = format_program(
      "program p {\n  store(a_tensor_with_a_long_name, max(tile(another_long_name[M, N]) * "
      "per_row(a_vector[M]), tile(another_long_name) + per_column(one_more_vector[N])))\n}\n");
  EXPECT_EQ(formatted, R"(program p {
  store(a_tensor_with_a_long_name,
      max(tile(another_long_name[M, N]) * per_row(a_vector[M]),
      tile(another_long_name) + per_column(one_more_vector[N])))
}
)");
  EXPECT_EQ(format_program(formatted), formatted);
}

TEST(Format, AMistakeIsAMistake) {
  EXPECT_THROW(format_program("program p {\n  store(o, )\n}"), Error);
}

// Of random programs and of files: it is the same program, and laid out again the same text.
TEST(Format, ChangesNoProgramAndNotItself) {
  std::vector<std::string> texts;
  for (uint64_t seed = 0; seed < 300; ++seed)
    texts.push_back(text(tests::random_program(seed).program));
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(CODA_SOURCE_DIR) + "/programs")) {
    if (entry.path().extension() != ".coda") continue;
    std::ostringstream whole;
    whole << std::ifstream(entry.path()).rdbuf();
    texts.push_back(whole.str());
  }
  for (const std::string& written : texts) {
    const std::string once = format_program(written);
    ASSERT_EQ(parse_program(once), parse_program(written)) << once;
    ASSERT_EQ(format_program(once), once);
    EXPECT_EQ(std::count(once.begin(), once.end(), '#'),
              std::count(written.begin(), written.end(), '#'));
  }
}

// What the printer writes is laid out as it should be, but for lines that are too long.
TEST(Format, ThePrinterWritesInThisLayout) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const std::string printed = text(tests::random_program(seed).program);
    std::istringstream lines(printed);
    bool is_short = true;
    for (std::string line; std::getline(lines, line);) is_short = is_short && line.size() <= 100;
    EXPECT_TRUE(!is_short || format_program(printed) == printed) << printed;
  }
}

}  // namespace
}  // namespace coda
