// SPDX-License-Identifier: Apache-2.0
// Starts from all GEMMs with two bf16 operands and removes those with an obstacle. Then assigns
// scales, and a maker for each copy.
#include "plan/after/eight_bit_choice.h"

#include <algorithm>

#include "plan/after/gradient_values.h"
#include "program/step_table.h"
#include "program/tile_map.h"

namespace coda {
namespace {

constexpr int64_t kGranule = 16;             // bytes: alignment of operand rows
constexpr double kFirstGradientScale = 256;  // times rows: a loss is a mean over rows

class Chooser {
 public:
  Chooser(const PlanOperands& operands, const Plan& plan, const DimValues& sizes, EightBits which,
          const std::set<std::string>& except)
      : operands_(operands), plan_(plan), sizes_(sizes), which_(which), excepted_(except) {}

  EightBitChoice run() {
    find_logits();
    find_excepted();
    for (int i = 0; i < operands_.count(); ++i) find_products(i);
    find_views();
    if (which_ == EightBits::fp8_kept) find_saved();
    number_scales();
    find_makers();
    write_note();
    return std::move(result_);
  }

 private:
  int64_t size(const Dim& dim) const { return dim.evaluate(sizes_); }

  // ---- GEMMs and their operands.

  // Finds tiles that go through a log-sum-exp along their rows, and what programs without a GEMM
  // compute from them.
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

  // Tensors that steps without a GEMM compute from an excepted parameter (a norm's weight is folded
  // into it), or from which they compute an excepted gradient (the embedding's call adds to the
  // head's), are excepted too, if they are temporaries of the same shape.
  void find_excepted() {
    if (excepted_.empty()) return;
    const auto visit = [&](int step, bool is_behind) {
      const Program* program = operands_.program(step);
      if (program != nullptr && program::has_product(*program)) return;
      std::vector<std::string> from, to;  // owners
      for (const StepTensor& t : step_tensors(operands_.step(step)))
        ((is_behind ? t.read : t.written) ? from : to).push_back(operands_.owner(t.name));
      for (const std::string& one : from) {
        if (!excepted_.contains(one)) continue;
        for (const std::string& other : to) {
          const PlanTensor& tensor = operands_.tensor(other);
          if (tensor.role == TensorRole::temporary &&
              tensor.decl.shape == operands_.tensor(one).decl.shape)
            excepted_.insert(other);
        }
      }
    };
    for (int i = 0; i < operands_.count(); ++i) visit(i, true);
    for (int i = operands_.count() - 1; i >= 0; --i) visit(i, false);
  }
  bool is_excepted(const Program& program, int tensor) const {
    return excepted_.contains(operands_.owner(program.tensors[static_cast<size_t>(tensor)].name));
  }

  // The reason why a program's GEMMs stay in 16 bits, in the same words for all of a kind, and one
  // of the GEMMs as an example. Empty: no obstacle.
  struct Obstacle {
    std::string why;
    std::string product;
  };
  Obstacle obstacle(const Program& program) const {
    const auto is_of_logits = [&](int tensor) {
      return logits_.contains(program.tensors[static_cast<size_t>(tensor)].name);
    };
    const bool makes_excepted =
        std::any_of(program.steps.begin(), program.steps.end(), [&](const Step& s) {
          return program::is_tile_store(s) && is_excepted(program, s.tensor());
        });
    for (const Step& s : program.steps) {
      for (const GemmSegment& g : s.segments()) {
        const TensorDecl& a = program.tensors[g.a];
        const TensorDecl& b = program.tensors[g.b];
        const std::string product = "'" + a.name + "' x '" + b.name + "'";
        if (makes_excepted || is_excepted(program, g.a) || is_excepted(program, g.b))
          return {"of parameters that are excepted", product};
        if ((g.transpose_a && is_of_logits(g.a)) || (!g.transpose_b && is_of_logits(g.b)))
          return {"over the rows of a loss's logits", product};
        for (const TensorDecl* t : {&a, &b}) {
          if (t->dtype != DType::bf16)
            return {"of " + std::string(name_of(t->dtype)) + " operands, not bf16", product};
        }
        const int64_t k = size(g.transpose_a ? a.shape.rows : a.shape.cols);
        if (k % kGranule != 0) {
          return {
              "of sums over " + std::to_string(k) + ", no multiple of " + std::to_string(kGranule),
              product};
        }
      }
    }
    return {};
  }

  void find_products(int i) {
    const Program* program = operands_.program(i);
    if (program == nullptr || !program::has_product(*program)) return;
    Obstacle found = obstacle(*program);
    if (!found.why.empty()) {
      Others& alike = others_[found.why];
      if (alike.steps++ == 0) alike.first = std::move(found.product);
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

  void find_views() {
    for (const PlanTensor& t : plan_.tensors)
      if (!t.view_of.empty()) views_.insert({t.decl.name, t.view_of});
  }

  // ---- Values saved in 8 bits: those that the forward saves only for epilogues of the backward
  // (for example gate and up, for SwiGLU's gradient). Not the residual stream, which the forward
  // reads again, and nothing that an opaque call reads.

  void find_saved() {
    for (const PlanTensor& t : plan_.tensors) {
      if (t.role != TensorRole::saved || t.decl.dtype != DType::bf16) continue;
      if (views_.contains(t.decl.name) || size(t.decl.shape.cols) % kGranule != 0) continue;
      Operand value{t.decl.name};
      for (int i = 0; i < operands_.count() && !operands_.is_backward(i); ++i)
        if (is_written(t.decl.name, i)) value.version = i;
      const std::vector<int> readers = readers_of(value);
      if (store_of(value) < 0 || readers.empty()) continue;
      for (const int reader : readers) result_.copies[value].rows.read(reader);
      result_.kept.insert(value);
    }
  }
  bool is_written(const std::string& tensor, int step) const {
    const std::vector<StepTensor> all = step_tensors(operands_.step(step));
    return std::any_of(all.begin(), all.end(),
                       [&](const StepTensor& t) { return t.written && t.name == tensor; });
  }

  // The relative error of exp(x) equals the absolute error of x, which would be 1 for a logit of
  // 20.
  static bool takes_exponential_of(const Program& program, const std::string& tensor) {
    std::vector<bool> is_of_it;
    for (const Step& s : program.steps) {
      const bool is_read = std::any_of(s.operands.begin(), s.operands.end(),
                                       [&](int operand) { return is_of_it[operand]; });
      if (is_read && program::applies(s, Elementwise::exp)) return true;
      is_of_it.push_back(is_read ||
                         (program::is_tile_load(s) && program.tensors[s.tensor()].name == tensor));
    }
    return false;
  }

  // The steps that load tiles of a value; empty if some step must not load them in 8 bits.
  std::vector<int> readers_of(const Operand& value) const {
    std::vector<int> readers;
    for (int i = value.version + 1; i < operands_.count(); ++i) {
      if (operands_.at(value.tensor, false, i).version != value.version) break;
      const std::vector<StepTensor> all = step_tensors(operands_.step(i));
      const bool is_read = std::any_of(all.begin(), all.end(), [&](const StepTensor& t) {
        return t.read && t.name == value.tensor;
      });
      if (!is_read) continue;
      const Program* program = operands_.program(i);
      const PlanStep& step = operands_.step(i);
      if (!operands_.is_backward(i) || program == nullptr || step.loop >= 0 || step.later)
        return {};
      if (takes_exponential_of(*program, value.tensor)) return {};
      for (const Step& s : program->steps) {
        const std::vector<int> tensors = program::tensors_of(s);
        const bool names_it = std::any_of(tensors.begin(), tensors.end(), [&](int t) {
          return program->tensors[t].name == value.tensor;
        });
        const bool is_of_8_bits = program::is_product(s) && result_.products.contains(i);
        if (names_it && !program::is_tile_load(s) && !program::is_tile_store(s) && !is_of_8_bits)
          return {};
        if (names_it && program::is_tile_load(s)) {
          if (!s.repeat().is(1) || s.row_index() >= 0) return {};
          readers.push_back(i);
        }
      }
    }
    return readers;
  }

  // ---- Scales: joined operands share one.

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

  // Values are e4m3. Gradients are e5m2, as in TransformerEngine, because their magnitudes vary
  // more, both within a tensor and between training steps.
  void number_scales() {
    const std::set<Operand> written = find_gradients(operands_, plan_, logits_);
    std::set<Operand> gradients;  // roots
    for (const auto& [operand, copies] : result_.copies)
      if (written.contains({operands_.owner(operand.tensor), operand.version}))
        gradients.insert(root(operand));
    std::map<Operand, int> scales;
    for (auto& [operand, copies] : result_.copies) {
      const auto [found, is_new] = scales.try_emplace(root(operand), std::ssize(scales));
      copies.scale = found->second;
      const bool is_one = gradients.contains(root(operand));
      if (is_one) copies.type = DType::e5m2;
      if (!is_new) continue;
      const auto rows = static_cast<double>(size(operands_.tensor(operand.tensor).decl.shape.rows));
      result_.first_scales.push_back(is_one ? static_cast<float>(rows * kFirstGradientScale)
                                            : 1.0F);
    }
  }

  // ---- Makers: programs that also store the 8-bit copies of an operand.

  void find_makers() {
    const std::set<Operand> read = read_in_16_bits();
    for (auto& [operand, copies] : result_.copies) {
      copies.maker = operand.version;
      copies.tile = store_of(operand);
      if (copies.tile < 0) {
        find_loader(operand, copies);
        continue;
      }
      const TensorRole role = operands_.tensor(operand.tensor).role;
      const bool is_ours = role == TensorRole::temporary || role == TensorRole::saved;
      copies.drops_store = is_ours && !views_.contains(operand.tensor) && is_all_copies(operand) &&
                           !read.contains({operand.tensor, operand.version});
    }
  }

  // Whether all copies of this tensor and version are made in the same place: inside a loop or
  // outside.
  bool is_all_copies(const Operand& operand) const {
    return std::none_of(result_.copies.begin(), result_.copies.end(), [&](const auto& one) {
      const Operand& other = one.first;
      return other.tensor == operand.tensor && other.version == operand.version &&
             other.loop != operand.loop;
    });
  }

  // Owners that steps read in any way except as an operand of an 8-bit GEMM.
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
    for (const Operand& kept : result_.kept) read.erase(kept);
    return read;
  }

  // The store of the operand's tile in the program that wrote it; -1: there is none, or the program
  // cannot store copies.
  int store_of(const Operand& operand) const {
    if (operand.version < 0 || operands_.step(operand.version).loop != operand.loop) return -1;
    const Program* program = operands_.program(operand.version);
    if (program == nullptr) return -1;
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

  // If a call or the caller made the operand, a program without a GEMM that loads it before its
  // first 8-bit use may make the copies. Not for values saved in 8 bits, because that program then
  // loads the copy.
  void find_loader(const Operand& operand, EightBitCopies& copies) const {
    copies.maker = -1;
    if (operand.loop >= 0 || result_.kept.contains(operand) ||
        operands_.tensor(operand.tensor).role == TensorRole::parameter)
      return;
    const auto first_read = [](const EightBitCopies::Order& order, int none) {
      return order.is_read() ? order.first : none;
    };
    const int end = std::min(first_read(copies.rows, operands_.count()),
                             first_read(copies.columns, operands_.count()));
    for (int i = operand.version + 1; i < end; ++i) {
      const Program* program = operands_.program(i);
      if (program == nullptr || operands_.step(i).loop >= 0 || program::has_product(*program))
        continue;
      if (operands_.at(operand.tensor, false, i) != operand) return;
      const program::TileMap map = program::map_tiles(*program);
      for (size_t k = 0; k < program->steps.size(); ++k) {
        const Step& s = program->steps[k];
        if (!program::is_tile_load(s) || program->tensors[s.tensor()].name != operand.tensor ||
            s.row_index() >= 0 || !s.repeat().is(1) || map.grouped[k] != 0)
          continue;
        copies.maker = i;
        copies.tile = static_cast<int>(k);
        return;
      }
    }
  }

  // For example "18 products are in 8 bits; 3 steps stay as they were: 3 of a loss's logits (the
  // first: 'x' x 'w')".
  void write_note() {
    result_.note = std::to_string(products_) + " products are in 8 bits";
    if (!result_.kept.empty())
      result_.note += ", and " + std::to_string(result_.kept.size()) +
                      " values that are saved for the backward's epilogues";
    int steps = 0;
    std::string kinds;
    for (const auto& [why, alike] : others_) {
      steps += alike.steps;
      kinds += (kinds.empty() ? "" : "; ") + std::to_string(alike.steps) + " " + why +
               " (the first: " + alike.first + ")";
    }
    if (steps != 0)
      result_.note += "; those of " + std::to_string(steps) + " steps stay as they were: " + kinds;
  }

  const PlanOperands& operands_;
  const Plan& plan_;
  const DimValues& sizes_;
  const EightBits which_;
  std::set<std::string> excepted_;  // owners
  std::set<std::string> logits_;    // logits of a loss, and their gradients
  std::set<std::string> views_;     // views and their owners
  std::map<Operand, Operand> joined_;
  int64_t products_ = 0;
  // Steps whose GEMMs stay in 16 bits, by reason.
  struct Others {
    int steps = 0;
    std::string first;  // GEMM of the first
  };
  std::map<std::string, Others> others_;
  EightBitChoice result_;
};

}  // namespace

EightBitChoice choose_eight_bit_products(const PlanOperands& operands, const Plan& plan,
                                         const DimValues& sizes, EightBits which,
                                         const std::set<std::string>& except) {
  return Chooser(operands, plan, sizes, which, except).run();
}

}  // namespace coda
