// SPDX-License-Identifier: Apache-2.0
// An operand is a tensor as one step left it: what stores over it later makes another operand of
// the same tensor. Its copies are made by one step, directly behind the one that left it, and what
// a product reads of it from then on are the copies. So what is saved for the backward is one byte
// an element, and the 16-bit tensor is saved no longer.
#include "plan/after/eight_bits.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "coda/eight_bits.h"
#include "plan/after/row_chunks.h"
#include "program/step_table.h"
#include "program/tile_map.h"

namespace coda {
namespace {

constexpr int64_t kGranule = 16;             // bytes: rows of operands are multiples of it
constexpr double kFirstGradientScale = 256;  // times the tensor's rows: a loss is a mean over rows

// A tensor and the step that last wrote it before it is read; -1: none did. Copies of one chunk are
// made in the loop: of what the loop makes, and transposed ones, which are no rows of a whole one.
struct Operand {
  std::string tensor;
  int version = -1;
  int loop = -1;
  auto operator<=>(const Operand&) const = default;
};

// The copies that products read, by the first and the last of their steps; none: < 0.
struct Copies {
  struct Order {
    int first = -1;
    int last = -1;
    bool is_read() const { return first >= 0; }
    void read(int step) {
      if (first < 0) first = step;
      last = step;
    }
  };
  Order rows;     // as the tensor is stored
  Order columns;  // transposed
  int scale = -1;
};

class EightBitPass {
 public:
  EightBitPass(const Plan& plan, const DimValues& sizes, bool with_logits)
      : plan_(plan), sizes_(sizes) {
    for (const PlanTensor& t : plan.tensors) tensors_[t.decl.name] = &t;
    for (const auto* phase : {&plan.forward, &plan.backward})
      for (const PlanStep& step : *phase) steps_.push_back(&step);
    for (int i = 0; i < count(); ++i) {
      for (const StepTensor& t : step_tensors(*steps_[i]))
        if (t.written) writers_[owner(t.name)].push_back(i);
    }
    if (!with_logits) find_logits();
  }

  EightBitPlan run() {
    for (int i = 0; i < count(); ++i) find_products(i);
    number_scales();
    find_makers();
    write_steps();
    write_tensors();
    write_note();
    return std::move(result_);
  }

 private:
  int count() const { return static_cast<int>(steps_.size()); }
  bool is_backward(int step) const { return step >= std::ssize(plan_.forward); }
  int64_t size(const Dim& dim) const { return dim.evaluate(sizes_); }

  const std::string& owner(const std::string& name) const {
    const PlanTensor* tensor = tensors_.at(name);
    while (!tensor->view_of.empty()) tensor = tensors_.at(tensor->view_of);
    return tensor->decl.name;
  }

  Operand operand_at(const std::string& tensor, bool transposed, int step) const {
    Operand operand{tensor};
    if (const auto found = writers_.find(owner(tensor)); found != writers_.end()) {
      for (const int writer : found->second)
        if (writer < step) operand.version = writer;
    }
    const int loop = steps_[step]->loop;
    const bool is_chunk = loop >= 0 && is_sliced(tensors_.at(tensor)->decl, plan_.loops[loop]);
    if (is_chunk && (transposed || is_written_in(operand, loop))) operand.loop = loop;
    return operand;
  }
  bool is_written_in(const Operand& operand, int loop) const {
    return operand.version >= 0 && steps_[operand.version]->loop == loop;
  }
  // The operands of a segment of a product of step `step`.
  Operand first_of(const Program& program, const GemmSegment& g, int step) const {
    return operand_at(program.tensors[g.a].name, g.transpose_a, step);
  }
  Operand second_of(const Program& program, const GemmSegment& g, int step) const {
    return operand_at(program.tensors[g.b].name, !g.transpose_b, step);
  }

  // ---- Which products, of which operands.

  // Tiles that go through a log-sum-exp along their rows, and what programs without a product make
  // of them.
  void find_logits() {
    for (const PlanStep* step : steps_) {
      const auto* program = std::get_if<Program>(&step->work);
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
    const auto* program = std::get_if<Program>(&steps_[i]->work);
    if (program == nullptr || !program::has_product(*program)) return;
    const std::string why = obstacle(*program);
    if (!why.empty()) {
      others_.push_back(steps_[i]->name + " (" + why + ")");
      return;
    }
    products_.insert(i);
    for (const Step& s : program->steps) {
      const std::vector<GemmSegment>& segments = s.segments();
      if (segments.empty()) continue;
      ++products_made_;
      for (const GemmSegment& g : segments) {
        const Operand a = first_of(*program, g, i);
        const Operand b = second_of(*program, g, i);
        (g.transpose_a ? copies_[a].columns : copies_[a].rows).read(i);
        (g.transpose_b ? copies_[b].rows : copies_[b].columns).read(i);
        join(a, first_of(*program, segments[0], i));
        join(b, second_of(*program, segments[0], i));
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
    for (auto& [operand, copies] : copies_) {
      const auto [found, is_new] = scales.try_emplace(root(operand), std::ssize(scales));
      copies.scale = found->second;
      if (!is_new) continue;
      const auto rows = static_cast<double>(size(tensors_.at(operand.tensor)->decl.shape.rows));
      const bool is_gradient = operand.version >= 0 && is_backward(operand.version);
      result_.first_scales.push_back(is_gradient ? static_cast<float>(rows * kFirstGradientScale)
                                                 : 1.0F);
    }
  }

  // ---- Makers: programs without a product that leave an operand's copies themselves.

  void find_makers() {
    std::set<Operand> read;  // in 16 bits, by who is no product of 8 bits, or loads it too
    for (int i = 0; i < count(); ++i) {
      const auto* program = std::get_if<Program>(&steps_[i]->work);
      std::set<std::string> loaded;
      for (const StepTensor& t : step_tensors(*steps_[i]))
        if (t.read) loaded.insert(t.name);
      if (products_.contains(i)) {
        loaded.clear();
        for (const Step& s : program->steps)
          if (!program::is_product(s))
            for (const int t : program::tensors_of(s)) loaded.insert(program->tensors[t].name);
      }
      for (const std::string& name : loaded) read.insert(whole(name, i));
    }
    std::set<std::string> views;  // and what is viewed
    for (const PlanTensor& t : plan_.tensors) {
      if (!t.view_of.empty()) views.insert({t.decl.name, t.view_of});
    }
    for (const auto& [operand, copies] : copies_) {
      const int store = store_of(operand);
      if (store < 0) continue;
      const TensorRole role = tensors_.at(operand.tensor)->role;
      const bool is_ours = role == TensorRole::temporary || role == TensorRole::saved;
      // What a product in 8 bits needs of it that its maker cannot leave is another operand.
      const bool is_alone = std::none_of(copies_.begin(), copies_.end(), [&](const auto& other) {
        return other.first.tensor == operand.tensor && other.first.version == operand.version &&
               other.first != operand;
      });
      makers_[operand.version].push_back(
          {&operand, &copies, store,
           is_ours && is_alone && !views.contains(operand.tensor) &&
               !read.contains({owner(operand.tensor), operand.version})});
    }
  }

  // The version of the tensor's memory that a step sees.
  Operand whole(const std::string& tensor, int step) const {
    return {owner(tensor), operand_at(tensor, false, step).version};
  }

  // The step of the program that wrote the operand that stores it as a tile; -1: there is none, or
  // it cannot leave copies.
  int store_of(const Operand& operand) const {
    if (operand.version < 0 || steps_[operand.version]->loop != operand.loop) return -1;
    const PlanStep& maker = *steps_[operand.version];
    const auto* program = std::get_if<Program>(&maker.work);
    if (program == nullptr || program::has_product(*program) || maker.later) return -1;
    const program::TileMap map = program::map_tiles(*program);
    for (size_t i = 0; i < program->steps.size(); ++i) {
      const Step& s = program->steps[i];
      if (program::is_tile_store(s) && program->tensors[s.tensor()].name == operand.tensor &&
          map.grouped[i] == 0)
        return static_cast<int>(i);
    }
    return -1;
  }

  // The maker with what it leaves; without the store in 16 bits, where nothing reads that.
  Program with_copies(const Program& program, int at) const {
    Program result = program;
    std::vector<int> dropped;
    for (const Made& made : makers_.at(at)) {
      add_copies(result, *made.operand, *made.copies, program.steps[made.store].operands[0]);
      if (made.is_dropped) dropped.push_back(made.store);
    }
    std::sort(dropped.rbegin(), dropped.rend());
    for (const int store : dropped) {
      result.steps.erase(result.steps.begin() + store);
      for (Step& s : result.steps)
        for (int& operand : s.operands) operand -= operand > store ? 1 : 0;
    }
    drop_unnamed(result);
    return result;
  }

  static void drop_unnamed(Program& program) {
    for (int t = static_cast<int>(program.tensors.size()) - 1; t >= 0; --t) {
      bool is_named = false;
      for (const Step& s : program.steps) {
        const std::vector<int> tensors = program::tensors_of(s);
        is_named = is_named || std::find(tensors.begin(), tensors.end(), t) != tensors.end();
      }
      if (is_named) continue;
      program.tensors.erase(program.tensors.begin() + t);
      for (Step& s : program.steps)
        for (int* field : program::tensor_fields(s)) *field -= *field > t ? 1 : 0;
    }
  }

  // ---- Names and declarations.

  // "eight_bits.7.inverse". A name's last word is what kernels are named by: those of two layers
  // are one text.
  static std::string numbered(const char* vector, int scale) {
    std::string name = vector;
    return name.insert(name.find('.') + 1, std::to_string(scale) + ".");
  }
  static TensorDecl scalar(const char* vector, int scale) {
    return {.name = numbered(vector, scale), .shape = {1, 1}};
  }

  // Versions of one tensor are told apart by their number among those that are copied.
  TensorDecl copy_of(const Operand& operand, bool transposed) const {
    const Shape& shape = tensors_.at(operand.tensor)->decl.shape;
    int number = 0;
    for (const auto& [other, copies] : copies_)
      number += other.tensor == operand.tensor && other < operand ? 1 : 0;
    return {.name = operand.tensor + (number == 0 ? "" : "_" + std::to_string(number + 1)) +
                    (transposed ? "_e4m3_transposed" : "_e4m3"),
            .shape = transposed ? Shape{shape.cols, shape.rows} : shape,
            .dtype = DType::e4m3};
  }

  // ---- Steps.

  PlanStep quantising_step(const Operand& operand, const Copies& copies) const {
    const TensorDecl& decl = tensors_.at(operand.tensor)->decl;
    Program program;
    program.name = "quantise_" + operand.tensor;
    program.tensors = {decl};
    program.steps = {program::tile_load(0, decl.shape)};
    add_copies(program, operand, copies, 0);
    return {.name = "quantise " + operand.tensor,
            .role = StepRole::tile,
            .work = std::move(program),
            .reasons = {"products read it in 8 bits" +
                        std::string(copies.rows.is_read() && copies.columns.is_read()
                                        ? ", in both orders"
                                        : "")},
            .loop = operand.loop};
  }

  // Of the value of a step.
  void add_copies(Program& program, const Operand& operand, const Copies& copies, int value) const {
    const Shape shape = program.steps[value].shape;
    const auto tensor = [&](const TensorDecl& decl) {
      const auto found = std::find(program.tensors.begin(), program.tensors.end(), decl);
      if (found != program.tensors.end()) return static_cast<int>(found - program.tensors.begin());
      program.tensors.push_back(decl);
      return static_cast<int>(program.tensors.size()) - 1;
    };
    const auto push = [&](Step step) {
      program.steps.push_back(std::move(step));
      return static_cast<int>(program.steps.size()) - 1;
    };
    const int scale = push(program::vector_load(tensor(scalar(kScales, copies.scale)), {1, 1}));
    const int scaled = push(program::applied(Elementwise::mul, {value, scale}, shape));
    if (copies.rows.is_read())
      push(program::tile_store(tensor(copy_of(operand, false)), scaled, shape));
    if (copies.columns.is_read())
      push(program::transposed_store(tensor(copy_of(operand, true)), scaled, shape));
    push(program::abs_max_into(tensor(scalar(kMagnitudes, copies.scale)), value, shape));
  }

  // The step before which an operand's copies are made: behind what wrote it, and behind all of a
  // loop that did, unless they are the loop's own; else the first that reads them.
  int place_of(const Operand& operand, const Copies& copies) const {
    if (operand.version < 0 || (operand.loop >= 0 && !is_written_in(operand, operand.loop))) {
      const int r = copies.rows.first;
      const int c = copies.columns.first;
      return r < 0 ? c : c < 0 ? r : std::min(r, c);
    }
    int place = operand.version + 1;
    const int loop = operand.loop >= 0 ? -1 : steps_[operand.version]->loop;
    while (loop >= 0 && place < count() && steps_[place]->loop == loop &&
           is_backward(place) == is_backward(operand.version))
      ++place;
    return place;
  }

  // Whether copies that are made before `place` belong to the backward. What the forward wrote
  // last is copied at its end.
  bool is_made_in_backward(const Operand& operand, int place) const {
    const bool is_behind_writer = operand.version >= 0 && operand.loop < 0;
    return is_backward(is_behind_writer ? operand.version : place);
  }

  void write_steps() {
    Plan& plan = result_.plan;
    plan.loops = plan_.loops;
    plan.notes = plan_.notes;
    std::multimap<int, std::pair<const Operand*, const Copies*>> made;
    for (const auto& [operand, copies] : copies_) {
      if (store_of(operand) < 0)
        made.emplace(place_of(operand, copies), std::pair(&operand, &copies));
    }
    for (int i = 0; i <= count(); ++i) {
      const auto [begin, end] = made.equal_range(i);
      for (auto it = begin; it != end; ++it) {
        const auto& [operand, copies] = it->second;
        std::vector<PlanStep>& phase =
            is_made_in_backward(*operand, i) ? plan.backward : plan.forward;
        phase.push_back(quantising_step(*operand, *copies));
      }
      if (i == count()) break;
      PlanStep step = *steps_[i];
      if (products_.contains(i)) {
        step.work = in_eight_bits(std::get<Program>(step.work), i);
        if (step.later) step.later = in_eight_bits(*step.later, i);
      }
      if (makers_.contains(i)) step.work = with_copies(std::get<Program>(step.work), i);
      (is_backward(i) ? plan.backward : plan.forward).push_back(std::move(step));
    }
  }

  // The product's operands are the copies, and what reads it reads it divided by both scales.
  Program in_eight_bits(const Program& program, int at) const {
    Program result;
    result.name = program.name;
    std::map<std::string, int> tensors;
    const auto tensor = [&](const TensorDecl& decl) {
      const auto [found, is_new] =
          tensors.try_emplace(decl.name, static_cast<int>(result.tensors.size()));
      if (is_new) result.tensors.push_back(decl);
      return found->second;
    };
    const auto push = [&](Step step) {
      result.steps.push_back(std::move(step));
      return static_cast<int>(result.steps.size()) - 1;
    };
    std::map<int, int> inverses;  // of a scale: its step
    const auto inverse = [&](int scale) {
      const auto [found, is_new] = inverses.try_emplace(scale, -1);
      if (is_new)
        found->second = push(program::vector_load(tensor(scalar(kInverses, scale)), {1, 1}));
      return found->second;
    };
    std::vector<int> place;
    for (const Step& s : program.steps) {
      Step step = s;
      for (int& operand : step.operands) operand = place[operand];
      if (!program::is_product(s)) {
        for (int* t : program::tensor_fields(step)) *t = tensor(program.tensors[*t]);
        place.push_back(push(std::move(step)));
        continue;
      }
      int scale_a = -1;
      int scale_b = -1;
      steps::Gemm product;
      for (const GemmSegment& g : s.segments()) {
        const Operand a = first_of(program, g, at);
        const Operand b = second_of(program, g, at);
        scale_a = copies_.at(a).scale;
        scale_b = copies_.at(b).scale;
        product.segments.push_back({.a = tensor(copy_of(a, g.transpose_a)),
                                    .b = tensor(copy_of(b, !g.transpose_b)),
                                    .transpose_a = false,
                                    .transpose_b = true});
      }
      const int made = push({std::move(product), s.shape});
      const int both =
          push(program::applied(Elementwise::mul, {inverse(scale_a), inverse(scale_b)}, {1, 1}));
      place.push_back(push(program::applied(Elementwise::mul, {made, both}, s.shape)));
    }
    return result;
  }

  // ---- Tensors.

  void write_tensors() {
    Plan& plan = result_.plan;
    const auto forward = static_cast<int>(plan_.forward.size());
    std::set<std::string> read_later;  // owners that the backward names
    std::set<std::string> named;       // by any step, and what their owners are
    for (const auto* phase : {&plan.forward, &plan.backward}) {
      for (const PlanStep& step : *phase) {
        for (const StepTensor& t : step_tensors(step)) {
          named.insert(t.name);
          if (!tensors_.contains(t.name)) continue;
          named.insert(owner(t.name));
          if (phase == &plan.backward) read_later.insert(owner(t.name));
        }
      }
    }
    for (const PlanTensor& t : plan_.tensors) {
      const bool is_ours = t.role == TensorRole::temporary || t.role == TensorRole::saved;
      if (is_ours && t.view_of.empty() && !named.contains(t.decl.name)) continue;
      plan.tensors.push_back(t);
      TensorRole& role = plan.tensors.back().role;
      if (role == TensorRole::saved && !read_later.contains(owner(t.decl.name)))
        role = TensorRole::temporary;
    }
    for (const auto& [operand, copies] : copies_) {
      const bool is_early = !is_made_in_backward(operand, place_of(operand, copies));
      for (const bool transposed : {false, true}) {
        const Copies::Order& order = transposed ? copies.columns : copies.rows;
        if (!order.is_read()) continue;
        const bool is_saved = operand.loop < 0 && is_early && order.last >= forward;
        plan.tensors.push_back({.decl = copy_of(operand, transposed),
                                .role = is_saved ? TensorRole::saved : TensorRole::temporary,
                                .loop = operand.loop});
      }
    }
    if (result_.first_scales.empty()) return;
    const auto scales = static_cast<int>(result_.first_scales.size());
    for (const char* vector : {kScales, kInverses, kMagnitudes}) {
      const TensorRole role = vector == kMagnitudes ? TensorRole::output : TensorRole::input;
      plan.tensors.push_back(
          {.decl = {.name = vector, .shape = {1, kScaleColumns * scales}}, .role = role});
      for (int i = 0; i < scales; ++i) {
        if (!named.contains(numbered(vector, i))) continue;
        plan.tensors.push_back({.decl = scalar(vector, i),
                                .role = role,
                                .view_of = vector,
                                .column_offset = kScaleColumns * i});
      }
    }
  }

  void write_note() {
    std::string note = std::to_string(products_made_) + " products are in 8 bits";
    for (size_t i = 0; i < others_.size(); ++i)
      note += (i == 0 ? "; those of steps that stay as they were: " : ", ") + others_[i];
    result_.plan.notes.push_back(std::move(note));
  }

  const Plan& plan_;
  const DimValues& sizes_;
  std::vector<const PlanStep*> steps_;  // the forward's, then the backward's
  std::map<std::string, const PlanTensor*, std::less<>> tensors_;
  std::map<std::string, std::vector<int>> writers_;  // of an owner: steps, in order
  std::set<std::string> logits_;                     // of a loss, and their gradients
  std::set<int> products_;                           // steps whose products are in 8 bits
  std::map<Operand, Copies> copies_;
  // Copies that a step makes itself, at its step `store`.
  struct Made {
    const Operand* operand = nullptr;
    const Copies* copies = nullptr;
    int store = -1;
    bool is_dropped = false;  // nothing reads the tensor in 16 bits
  };
  std::map<int, std::vector<Made>> makers_;
  std::map<Operand, Operand> joined_;
  int64_t products_made_ = 0;
  std::vector<std::string> others_;  // steps whose products are not, and why
  EightBitPlan result_;
};

}  // namespace

EightBitPlan with_eight_bit_products(const Plan& plan, const DimValues& sizes, bool with_logits) {
  return EightBitPass(plan, sizes, with_logits).run();
}

}  // namespace coda
