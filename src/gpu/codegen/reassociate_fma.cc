// SPDX-License-Identifier: Apache-2.0
// Rewrites one sum after another in program order, so that later sums see the rewritten ones.
// Unused steps are removed at the end.
#include "gpu/codegen/reassociate_fma.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "gpu/target/element.h"
#include "program/tile_map.h"
#include "program/vocabulary.h"

namespace coda::gpu {
namespace {

using Factors = std::vector<int>;  // steps, ascending, may repeat

constexpr size_t kMostFactors = 6;  // of a term; all subsets of the common factors are tried

Factors without(const Factors& all, const Factors& some) {
  Factors rest;
  std::set_difference(all.begin(), all.end(), some.begin(), some.end(), std::back_inserter(rest));
  return rest;
}

bool has_all(const Factors& all, const Factors& some) {
  return std::includes(all.begin(), all.end(), some.begin(), some.end());
}

class Rewriter {
 public:
  explicit Rewriter(const Program& program) : program_(program) {}

  Program run() {
    analyse();
    for (int i = 0; i < static_cast<int>(program_.steps.size()); ++i) {
      if (!is_sum(i) || !has_gemm(map_.space[i])) continue;
      std::vector<Step> steps = factor(i);
      if (steps.empty()) steps = put_products_last(i);
      if (steps.empty()) continue;
      replace(i, steps);
      i += static_cast<int>(steps.size()) - 1;
      changed_ = true;
      analyse();
    }
    return changed_ ? without_unused() : program_;
  }

 private:
  const Step& step(int i) const { return program_.steps[i]; }

  void analyse() {
    map_ = program::map_tiles(program_);
    uses_.assign(program_.steps.size(), 0);
    for (const Step& s : program_.steps) {
      for (int operand : s.operands) ++uses_[operand];
    }
  }

  bool is_sum(int i) const {
    return is_elementwise(i, Elementwise::add) && map_.on_tile[step(i).operands[0]] &&
           map_.on_tile[step(i).operands[1]];
  }
  bool is_product(int i) const { return is_elementwise(i, Elementwise::mul); }
  bool is_elementwise(int i, Elementwise op) const {
    return map_.on_tile[i] && program::applies(step(i), op);
  }
  bool has_gemm(int space) const {
    return space >= 0 &&
           std::any_of(map_.spaces[space].steps.begin(), map_.spaces[space].steps.end(),
                       [&](int i) { return program::is_product(step(i)); });
  }

  // ---- Common factors of two terms.

  // Empty if a factor is not a tile.
  Factors factors_of(int i) const {
    if (!is_product(i)) return {i};
    Factors all;
    for (int operand : step(i).operands) {
      if (!map_.on_tile[operand]) return {};
      const Factors some = factors_of(operand);
      if (some.empty()) return {};
      all.insert(all.end(), some.begin(), some.end());
    }
    std::sort(all.begin(), all.end());
    return all;
  }

  struct Made {
    int step;
    Factors factors;
  };

  // Steps that effects need if step `but` did not read its operands.
  std::vector<char> live_steps(int but = -1) const {
    std::vector<char> live(program_.steps.size(), 0);
    for (int k = static_cast<int>(live.size()) - 1; k >= 0; --k) {
      if (program::is_effect(step(k))) live[k] = 1;
      if (!live[k] || k == but) continue;
      for (int operand : step(k).operands) live[operand] = 1;
    }
    return live;
  }

  // Products before step i that are computed anyway, even if step i does not read its operands.
  std::vector<Made> made_anyway(int i) const {
    const std::vector<char> live = live_steps(i);
    std::vector<Made> made;
    for (int k = 0; k < i; ++k) {
      if (!live[k] || !is_product(k) || map_.space[k] != map_.space[i]) continue;
      Factors factors = factors_of(k);
      if (!factors.empty()) made.push_back({k, std::move(factors)});
    }
    return made;
  }

  // The fewest existing values whose product equals that of the factors, by a greedy choice.
  static std::vector<int> pieces(Factors factors, const std::vector<Made>& made) {
    std::vector<int> result;
    while (!factors.empty()) {
      const Made* largest = nullptr;
      for (const Made& one : made) {
        if (has_all(factors, one.factors) &&
            (largest == nullptr || one.factors.size() > largest->factors.size())) {
          largest = &one;
        }
      }
      result.push_back(largest == nullptr ? factors.front() : largest->step);
      factors = without(factors, largest == nullptr ? Factors{factors.front()} : largest->factors);
    }
    return result;
  }

  // Multiplications of a term that no other step needs.
  int own_products(int i, const std::vector<Made>& made) const {
    if (!is_product(i) ||
        std::any_of(made.begin(), made.end(), [&](const Made& one) { return one.step == i; })) {
      return 0;
    }
    return 1 + own_products(step(i).operands[0], made) + own_products(step(i).operands[1], made);
  }

  // Steps that compute sum i as a product; empty if that is not shorter.
  std::vector<Step> factor(int i) const {
    const int terms[2] = {step(i).operands[0], step(i).operands[1]};
    Factors factors[2];
    for (const int t : {0, 1}) {
      factors[t] = factors_of(terms[t]);
      if (!is_product(terms[t]) || uses_[terms[t]] != 1 || factors[t].empty() ||
          factors[t].size() > kMostFactors) {
        return {};
      }
    }
    Factors common;
    std::set_intersection(factors[0].begin(), factors[0].end(), factors[1].begin(),
                          factors[1].end(), std::back_inserter(common));
    const std::vector<Made> made = made_anyway(i);
    // One of the two products fuses with the addition.
    int least = own_products(terms[0], made) + own_products(terms[1], made);
    size_t fewest = 0;         // size of the common factor; ties: fewer live registers
    std::vector<int> best[3];  // pieces of the common factor and of the rest of each term
    for (uint32_t subset = 1; subset < 1u << common.size(); ++subset) {
      Factors shared;
      for (size_t k = 0; k < common.size(); ++k) {
        if ((subset >> k & 1) != 0) shared.push_back(common[k]);
      }
      const Factors rest[2] = {without(factors[0], shared), without(factors[1], shared)};
      if (rest[0].empty() || rest[1].empty()) continue;
      const std::vector<int> parts[3] = {pieces(shared, made), pieces(rest[0], made),
                                         pieces(rest[1], made)};
      const bool fuses = parts[1].size() > 1 || parts[2].size() > 1;
      const int count = static_cast<int>(parts[0].size() + parts[1].size() + parts[2].size()) - 3 +
                        1 + (fuses ? 0 : 1);
      const bool is_better = count < least || (count == least && shared.size() < fewest);
      if (!is_better) continue;
      least = count;
      fewest = shared.size();
      std::copy(std::begin(parts), std::end(parts), std::begin(best));
    }
    if (best[0].empty()) return {};
    std::vector<Step> steps;  // replace step i
    const auto product = [&](const std::vector<int>& values) {
      int result = values.front();
      for (size_t k = 1; k < values.size(); ++k)
        result = append(steps, i, Elementwise::mul, result, values[k]);
      return result;
    };
    const int shared = product(best[0]);
    const int left = product(best[1]);
    const int right = product(best[2]);
    const int sum = append(steps, i, Elementwise::add, left, right);
    append(steps, i, Elementwise::mul, sum, shared);
    return steps;
  }

  // ---- The order of a sum.

  void terms_of(int i, int root, std::vector<int>& terms) const {
    if (is_inner_sum(i) || i == root) {
      for (int operand : step(i).operands) terms_of(operand, root, terms);
    } else {
      terms.push_back(i);
    }
  }
  bool is_inner_sum(int i) const { return is_sum(i) && uses_[i] == 1; }
  // Whether each term is added to the sum of the previous terms.
  bool is_chain(int i) const {
    const std::vector<int>& operands = step(i).operands;
    return !is_inner_sum(operands[1]) && (!is_inner_sum(operands[0]) || is_chain(operands[0]));
  }

  bool reads_a_gemm(int i) const {
    return program::is_product(step(i)) ||
           std::any_of(step(i).operands.begin(), step(i).operands.end(),
                       [&](int operand) { return reads_a_gemm(operand); });
  }

  bool is_only_stored_to_16_bits(int i) const {
    return std::all_of(program_.steps.begin(), program_.steps.end(), [&](const Step& s) {
      if (std::find(s.operands.begin(), s.operands.end(), i) == s.operands.end()) return true;
      return (program::is_tile_store(s) && is_16_bits(program_.tensors[s.tensor()].dtype)) ||
             (program::is_rounding(s) && is_16_bits(s.dtype()));
    });
  }

  std::vector<Step> put_products_last(int i) const {
    if (!is_only_stored_to_16_bits(i)) return {};
    std::vector<int> terms;
    terms_of(i, i, terms);
    const auto fused = [&](int term) { return is_product(term) && uses_[term] == 1; };
    std::vector<int> order = terms;
    const auto first =
        std::stable_partition(order.begin(), order.end(), [&](int term) { return !fused(term); });
    std::stable_partition(first, order.end(), [&](int term) { return reads_a_gemm(term); });
    const auto products = order.end() - first;
    // If there is no other term, the first product cannot fuse.
    const bool fuses = products >= 2 && first != order.begin();
    if (!fuses || (order == terms && is_chain(i))) return {};
    std::vector<Step> steps;
    int sum = order.front();
    for (size_t k = 1; k < order.size(); ++k)
      sum = append(steps, i, Elementwise::add, sum, order[k]);
    return steps;
  }

  // ---- Programs.

  // Appends a step to those that replace step i and returns its index.
  int append(std::vector<Step>& steps, int i, Elementwise op, int first, int second) const {
    steps.push_back(program::applied(op, {first, second}, step(i).shape));
    return i + static_cast<int>(steps.size()) - 1;
  }

  void replace(int i, const std::vector<Step>& by) {
    std::vector<Step>& steps = program_.steps;
    steps.erase(steps.begin() + i);
    steps.insert(steps.begin() + i, by.begin(), by.end());
    const int more = static_cast<int>(by.size()) - 1;
    for (size_t k = i + by.size(); k < steps.size(); ++k) {
      for (int& operand : steps[k].operands) operand += operand >= i ? more : 0;
    }
  }

  Program without_unused() const {
    const std::vector<char> live = live_steps();
    Program result = program_;
    result.steps.clear();
    std::vector<int> place(live.size(), -1);
    for (size_t k = 0; k < live.size(); ++k) {
      if (!live[k]) continue;
      Step kept = program_.steps[k];
      for (int& operand : kept.operands) operand = place[operand];
      place[k] = static_cast<int>(result.steps.size());
      result.steps.push_back(std::move(kept));
    }
    return result;
  }

  Program program_;
  program::TileMap map_;
  std::vector<int> uses_;  // per step: how often it is an operand
  bool changed_ = false;
};

}  // namespace

Program reassociate_fma(const Program& program) {
  return program::has_product(program) ? Rewriter(program).run() : program;
}

}  // namespace coda::gpu
