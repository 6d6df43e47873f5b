// SPDX-License-Identifier: Apache-2.0
// Backends with a bug each, which usual inputs do not show: the traps do.
#include "measure/traps.h"
#include "measure/random_inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/stored_element.h"
#include "runtime/reference_backend.h"

namespace coda {
namespace traps_of_checks {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// What a wrong backend does to its tensors, x and y, before and behind the right computation.
struct Bug {
  std::function<void(const TensorView& x, const TensorView& y)> before = [](auto&, auto&) {};
  std::function<void(const TensorView& x, const TensorView& y)> behind = [](auto&, auto&) {};
};

class WrongKernel : public Kernel {
 public:
  WrongKernel(std::unique_ptr<Kernel> right, const Bug& bug)
      : right_(std::move(right)), bug_(bug) {}
  void run(std::span<const TensorView> tensors) override {
    bug_.before(tensors.front(), tensors.back());
    right_->run(tensors);
    bug_.behind(tensors.front(), tensors.back());
  }

 private:
  std::unique_ptr<Kernel> right_;
  const Bug& bug_;
};

class WrongBackend : public ReferenceBackend {
 public:
  explicit WrongBackend(Bug bug) : bug_(std::move(bug)) {}
  using ReferenceBackend::prepare;
  std::unique_ptr<Kernel> prepare(const Program& program, const DimValues& sizes) override {
    return std::make_unique<WrongKernel>(ReferenceBackend::prepare(program, sizes), bug_);
  }

 private:
  Bug bug_;
};

double at(const TensorView& view, int64_t i) { return read_element(view.dtype, view.data, i); }
void put(const TensorView& view, int64_t i, double x) {
  write_element(view.dtype, view.data, i, x);
}

std::vector<std::string> wrong_traps(const Bug& bug) {
  const Program program = parse_program("program p {\n  store(y, tile(x[M, N]) * 3 + 0.1)\n}\n");
  const DimValues sizes{{"M", 7}, {"N", 9}};
  WrongBackend backend(bug);
  const measure::TensorValues inputs = measure::random_inputs(program, sizes, 1);
  CheckedBackend result;
  measure::check_traps(backend, program, sizes, inputs,
                       measure::run_between_guards(backend, program, sizes, inputs), result);
  return result.wrong_traps;
}

TEST(Traps, ARightBackendHasNone) { EXPECT_THAT(wrong_traps({}), IsEmpty()); }

TEST(Traps, FindWhatIsWrongOfZerosAlone) {
  const Bug bug{.behind = [](const TensorView& x, const TensorView& y) {
    if (at(x, 3) == 0) put(y, 3, 0);
  }};
  EXPECT_THAT(wrong_traps(bug), ElementsAre("of zero inputs y is wrong"));
}

TEST(Traps, FindWhatIsWrongOfHugeInputsAlone) {
  const Bug bug{.behind = [](const TensorView&, const TensorView& y) {
    if (at(y, 3) > 100 || at(y, 3) < -100) put(y, 3, 100);
  }};
  EXPECT_THAT(wrong_traps(bug), ElementsAre("of huge inputs y is wrong"));
}

TEST(Traps, FindWhatReadsInfinityBesideATensor) {
  const Bug bug{.behind = [](const TensorView& x, const TensorView& y) {
    if (std::isinf(at(x, -1))) put(y, 0, at(x, -1));
  }};
  EXPECT_THAT(wrong_traps(bug), ElementsAre("infinity around tensors changes results"));
}

TEST(Traps, FindWhatClearsItsResultBeforeItHasReadItsInput) {
  const Bug bug{.before = [](const TensorView&, const TensorView& y) { put(y, 2, 0); }};
  EXPECT_THAT(wrong_traps(bug), ElementsAre("results in the place of inputs differ"));
}

}  // namespace
}  // namespace traps_of_checks
}  // namespace coda
