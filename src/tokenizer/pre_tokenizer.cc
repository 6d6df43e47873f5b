// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <map>

#include "tokenizer/pattern_setting.h"

namespace coda::tokenizer {
namespace {

constexpr const char* kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Joins matches and what lies between them as a behaviour has it; ranges come in order.
class Joiner {
 public:
  Joiner(CutBehaviour behaviour, const std::function<void(Range)>& on_range)
      : behaviour_(behaviour), on_range_(on_range) {}

  void add(Range range, bool is_match) {
    if (range.begin == range.end || (is_match && behaviour_ == CutBehaviour::removed)) return;
    if (is_pending_ && joins(is_match)) {
      pending_.end = range.end;
    } else {
      flush();
      pending_ = range;
      is_pending_ = true;
    }
    was_match_ = is_match;
  }
  void flush() {
    if (is_pending_) on_range_(pending_);
    is_pending_ = false;
  }

 private:
  bool joins(bool is_match) const {
    switch (behaviour_) {
      case CutBehaviour::merged_with_previous: return is_match && !was_match_;
      case CutBehaviour::merged_with_next: return !is_match && was_match_;
      case CutBehaviour::contiguous: return is_match == was_match_;
      default: return false;
    }
  }

  CutBehaviour behaviour_;
  const std::function<void(Range)>& on_range_;
  Range pending_;
  bool is_pending_ = false;
  bool was_match_ = false;
};

void cut_by(const CutStep& step, std::string_view text,
            const std::function<void(Range)>& on_range) {
  Joiner joiner(step.behaviour, on_range);
  size_t done = 0;
  Matches matches(*step.pattern, text);
  for (Range match; matches.next(match); done = match.end) {
    joiner.add({done, match.begin}, step.inverts);
    joiner.add(match, !step.inverts);
  }
  joiner.add({done, text.size()}, step.inverts);
  joiner.flush();
}

// The piece as a step changes it, in `changed` where it does.
std::string_view changed_by(const CutStep& step, std::string_view piece, bool is_at_start,
                            std::string& changed) {
  const bool has_blanks = !step.blank.empty() && piece.find(' ') != std::string_view::npos;
  if (has_blanks) {
    for (char c : piece) {
      if (c == ' ') {
        changed += step.blank;
      } else {
        changed += c;
      }
    }
    piece = changed;
  }
  if (step.front.empty() || piece.starts_with(step.front) || (step.only_at_start && !is_at_start))
    return piece;
  changed = step.front + std::string(piece);
  return changed;
}

void run(std::span<const CutStep> steps, std::string_view piece, bool is_at_start,
         const std::function<void(std::string_view)>& on_piece) {
  if (piece.empty()) return;
  if (steps.empty()) return on_piece(piece);
  std::string memory;
  const std::string_view text = changed_by(steps[0], piece, is_at_start, memory);
  if (!steps[0].pattern) return run(steps.subspan(1), text, is_at_start, on_piece);
  cut_by(steps[0], text, [&](Range range) {
    run(steps.subspan(1), text.substr(range.begin, range.end - range.begin),
        is_at_start && range.begin == 0, on_piece);
  });
}

CutBehaviour behaviour_of(const Component& split) {
  static const std::map<std::string, CutBehaviour> kBehaviours{
      {"Removed", CutBehaviour::removed},
      {"Isolated", CutBehaviour::isolated},
      {"MergedWithPrevious", CutBehaviour::merged_with_previous},
      {"MergedWithNext", CutBehaviour::merged_with_next},
      {"Contiguous", CutBehaviour::contiguous}};
  const auto found = kBehaviours.find(split.text("behavior"));
  if (found == kBehaviours.end()) split.refuse("its 'behavior'");
  return found->second;
}

CutStep metaspace_step(const Component& part) {
  CutStep step;
  step.blank = part.text("replacement");
  // Older files have add_prefix_space, true or false, for the schemes "always" and "never".
  const std::string scheme =
      part.text("prepend_scheme", part.flag("add_prefix_space", true) ? "always" : "never");
  if (scheme != "always" && scheme != "first" && scheme != "never")
    part.refuse("its 'prepend_scheme'");
  if (scheme != "never") step.front = step.blank;
  step.only_at_start = scheme == "first";
  if (part.flag("split", true)) {
    step.pattern = Pattern::of_text(step.blank, part.source());
    step.behaviour = CutBehaviour::merged_with_next;
  }
  return step;
}

}  // namespace

void PreTokenizer::cut(std::string_view text, bool is_at_start,
                       const std::function<void(std::string_view)>& on_piece) const {
  run(steps, text, is_at_start, on_piece);
}

PreTokenizer make_pre_tokenizer(const Component& component) {
  PreTokenizer result;
  for (const Component& part : flattened(component, "pretokenizers")) {
    // Behind it a piece is letters of bytes.
    if (result.of_bytes) part.refuse("what stands behind ByteLevel");
    CutStep step;
    if (part.is("ByteLevel")) {
      result.of_bytes = true;
      if (part.flag("add_prefix_space", true)) step.front = " ";
      if (part.flag("use_regex", true)) step.pattern = Pattern::of_regex(kGpt2Words, part.source());
    } else if (part.is("Split")) {
      step.pattern = pattern_setting(part);
      step.behaviour = behaviour_of(part);
      step.inverts = part.flag("invert", false);
    } else if (part.is("Digits")) {
      step.pattern = Pattern::of_digits(part.flag("individual_digits", false));
    } else if (part.is("Metaspace")) {
      step = metaspace_step(part);
    } else {
      part.refuse();
    }
    result.steps.push_back(std::move(step));
  }
  return result;
}

}  // namespace coda::tokenizer
