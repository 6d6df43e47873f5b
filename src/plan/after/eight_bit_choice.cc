// SPDX-License-Identifier: Apache-2.0
#include "plan/after/eight_bit_choice.h"

#include <algorithm>

#include "program/step_table.h"
#include "program/tile_map.h"

namespace coda {
namespace {

constexpr int64_t kGranule = 16;             // bytes: rows of operands are multiples of it
constexpr double kFirstGradientScale = 256;  // times the tensor's rows: a loss is a mean over rows

class Chooser {
 public:
  Chooser(const PlanOperands& operands, const Plan& plan, const DimValues& sizes)
      : operands_(operands), plan_(plan), sizes_(sizes) {}

  EightBitChoice run(bool with_logits) {
    if (!with_logits) find_logits();
    for (int i = 0; i < operands_.count(); ++i) find_products(i);
    number_scales();
    find_makers();
    write_note();
    return std::move(result_);
  }

 private:
  int64_t size(const Dim& dim) const { return dim.evaluate(sizes_); }

  // ---- Which products, of which operands.

  // Tiles that go through a log-sum-exp along their rows, and what programs without a product make
  // of them.
  void find_logits() {
    for (int i = 0; i < operands_.count(); ++i) {
      const Program* program = operands_.program(i);
      if (program == nullptr) continue;
      std::set<std::string> tiles;
      bool has_logits = false;
      for (const Step& s : program->steps) {
        has_logits =
            has_logits || (program::is_row_partial(s) && s.partial() == PartialKind::log_sum_exp);
        if (!program::is_tile_load(s) && !program::is_tile_store(s)) continue;
        const std::string& name = program->tensors[s.tensor()].name;
        tiles.insert(name);
        has_logits = has_logits || (program::is_tile_load(s) && logits_.contains(name) &&
                                    !program::has_product(*program));
      }
      if (has_logits) logits_.merge(tiles);
    }
  }

  // Why a program's products stay as they are; empty: they need not.
  std::string obstacle(const Program& program) const {
    for (const Step& s : program.steps) {
      if (program::is_tile_store(s) && logits_.contains(program.tensors[s.tensor()].name))
        return "it makes a loss's logits";
      for (const GemmSegment& g : s.segments()) {
        const TensorDecl& a = program.tensors[g.a];
        const TensorDecl& b = program.tensors[g.b];
        for (const TensorDecl* t : {&a, &b}) {
          if (logits_.contains(t->name)) return "it reads the gradient of a loss's logits";
          if (t->dtype != DType::bf16)
            return "'" + t->name + "' is " + std::string(name_of(t->dtype)) + ", not bf16";
        }
        const Dim& k = g.transpose_a ? a.shape.rows : a.shape.cols;
        if (size(k) % kGranule != 0) {
          return "'" + a.name + "' x '" + b.name + "' is a sum over " + std::to_string(size(k)) +
                 ", no multiple of " + std::to_string(kGranule);
        }
      }
    }
    return "";
  }

  void find_products(int i) {
    const Program* program = operands_.program(i);
    if (program == nullptr || !program::has_product(*program)) return;
    const std::string why = obstacle(*program);
    if (!why.empty()) {
      others_.push_back(operands_.step(i).name + " (" + why + ")");
      return;
    }
    result_.products.insert(i);
    for (const Step& s : program->steps) {
      const std::vector<GemmSegment>& segments = s.segments();
      if (segments.empty()) continue;
      ++products_;
      for (const GemmSegment& g : segments) {
        const Operand a = operands_.first_of(*program, g, i);
        const Operand b = operands_.second_of(*program, g, i);
        EightBitCopies& first = result_.copies[a];
        EightBitCopies& second = result_.copies[b];
        (g.transpose_a ? first.columns : first.rows).read(i);
        (g.transpose_b ? second.rows : second.columns).read(i);
        join(a, operands_.first_of(*program, segments[0], i));
        join(b, operands_.second_of(*program, segments[0], i));
      }
    }
  }

  // ---- Scales: operands that are joined have one.

  void join(const Operand& a, const Operand& b) {
    const Operand from = root(a);
    const Operand to = root(b);
    if (from != to) joined_[std::max(from, to)] = std::min(from, to);
  }
  Operand root(Operand operand) const {
    for (auto found = joined_.find(operand); found != joined_.end(); found = joined_.find(operand))
      operand = found->second;
    return operand;
  }

  void number_scales() {
    std::map<Operand, int> scales;
    for (auto& [operand, copies] : result_.copies) {
      const auto [found, is_new] = scales.try_emplace(root(operand), std::ssize(scales));
      copies.scale = found->second;
      if (!is_new) continue;
      const auto rows = static_cast<double>(size(operands_.tensor(operand.tensor).decl.shape.rows));
      const bool is_gradient = operand.version >= 0 && operands_.is_backward(operand.version);
      result_.first_scales.push_back(is_gradient ? static_cast<float>(rows * kFirstGradientScale)
                                                 : 1.0F);
    }
  }

  // ---- Makers: programs without a product that leave an operand's copies themselves.

  void find_makers() {
    const std::set<Operand> read = read_in_16_bits();
    std::set<std::string> views;  // and what is viewed
    for (const PlanTensor& t : plan_.tensors)
      if (!t.view_of.empty()) views.insert({t.decl.name, t.view_of});
    for (auto& [operand, copies] : result_.copies) {
      copies.store = store_of(operand);
      if (copies.store < 0) continue;
      const TensorRole role = operands_.tensor(operand.tensor).role;
      const bool is_ours = role == TensorRole::temporary || role == TensorRole::saved;
      copies.drops_store = is_ours && !views.contains(operand.tensor) && is_all_copies(operand) &&
                           !read.contains({operand.tensor, operand.version});
    }
  }

  // Whether no copies of the same tensor and version are made from the tensor, for a loop or
  // outside of it.
  bool is_all_copies(const Operand& operand) const {
    return std::none_of(result_.copies.begin(), result_.copies.end(), [&](const auto& one) {
      const Operand& other = one.first;
      return other.tensor == operand.tensor && other.version == operand.version &&
             other.loop != operand.loop;
    });
  }

  // Owners, as steps read them in any way but as an operand of a product in 8 bits.
  std::set<Operand> read_in_16_bits() const {
    std::set<Operand> read;
    const auto add = [&](const std::string& tensor, int step) {
      read.insert({operands_.owner(tensor), operands_.at(tensor, false, step).version});
    };
    for (int i = 0; i < operands_.count(); ++i) {
      if (!result_.products.contains(i)) {
        for (const StepTensor& t : step_tensors(operands_.step(i)))
          if (t.read) add(t.name, i);
        continue;
      }
      const Program& program = *operands_.program(i);
      for (const Step& s : program.steps) {
        if (program::is_product(s)) continue;
        for (const int t : program::tensors_of(s)) add(program.tensors[t].name, i);
      }
    }
    return read;
  }

  // The step of the program that wrote the operand that stores it as a tile; -1: there is none, or
  // it cannot leave copies.
  int store_of(const Operand& operand) const {
    if (operand.version < 0 || operands_.step(operand.version).loop != operand.loop) return -1;
    const Program* program = operands_.program(operand.version);
    if (program == nullptr || program::has_product(*program)) return -1;
    if (operands_.step(operand.version).later) return -1;
    const program::TileMap map = program::map_tiles(*program);
    for (size_t i = 0; i < program->steps.size(); ++i) {
      const Step& s = program->steps[i];
      if (program::is_tile_store(s) && program->tensors[s.tensor()].name == operand.tensor &&
          map.grouped[i] == 0)
        return static_cast<int>(i);
    }
    return -1;
  }

  void write_note() {
    result_.note = std::to_string(products_) + " products are in 8 bits";
    for (size_t i = 0; i < others_.size(); ++i)
      result_.note += (i == 0 ? "; those of steps that stay as they were: " : ", ") + others_[i];
  }

  const PlanOperands& operands_;
  const Plan& plan_;
  const DimValues& sizes_;
  std::set<std::string> logits_;  // of a loss, and their gradients
  std::map<Operand, Operand> joined_;
  int64_t products_ = 0;
  std::vector<std::string> others_;  // steps whose products are not in 8 bits, and why
  EightBitChoice result_;
};

}  // namespace

EightBitChoice choose_eight_bit_products(const PlanOperands& operands, const Plan& plan,
                                         const DimValues& sizes, bool with_logits) {
  return Chooser(operands, plan, sizes).run(with_logits);
}

}  // namespace coda
