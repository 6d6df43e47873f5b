// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/pattern.h"

#include <algorithm>
#include <map>
#include <utility>

#include "coda/error.h"
#include "coda/messages.h"
#include "tokenizer/regex_tree.h"
#include "tokenizer/unicode.h"
#include "tokenizer/utf8.h"

namespace coda::tokenizer {
namespace {

constexpr size_t kMostClasses = 255;
constexpr size_t kMostThreads = 10'000;
constexpr size_t kMostTransitions = 1 << 17;
constexpr size_t kMostSteps = 4'000'000;  // limit on the work of making the automaton
constexpr size_t kBlock = 32;             // bytes; one position of each block is remembered

// An instruction of a backtracking matcher; a split tries `next` before `otherwise`.
struct Thread {
  enum class Kind : uint8_t { set, look, split, match };

  Kind kind = Kind::match;
  int set = -1;
  bool is_negative = false;
  int next = -1;
  int otherwise = -1;  // for a split
};

class TooLarge {};

class Threads {
 public:
  explicit Threads(const RegexNode& tree) {
    const int match = add({});
    first_ = made(tree, match);
  }
  int first() const { return first_; }
  const Thread& operator[](int place) const { return all_[static_cast<size_t>(place)]; }
  size_t size() const { return all_.size(); }
  const std::vector<PointSet>& sets() const { return sets_; }

 private:
  int add(Thread thread) {
    if (all_.size() >= kMostThreads) throw TooLarge();
    all_.push_back(thread);
    return static_cast<int>(all_.size()) - 1;
  }
  int set_of(const PointSet& set) {
    const auto place = std::ranges::find(sets_, set) - sets_.begin();
    if (place == std::ssize(sets_)) sets_.push_back(set);
    return static_cast<int>(place);
  }
  int split(int body, int behind, bool is_lazy) {
    return add({.kind = Thread::Kind::split,
                .next = is_lazy ? behind : body,
                .otherwise = is_lazy ? body : behind});
  }

  // Adds instructions that match the node and continue with `next`; returns the first of them.
  int made(const RegexNode& node, int next) {
    using Kind = RegexNode::Kind;
    switch (node.kind) {
      case Kind::set:
        return add({.kind = Thread::Kind::set, .set = set_of(node.set), .next = next});
      case Kind::look_ahead:
        return add({.kind = Thread::Kind::look,
                    .set = set_of(node.set),
                    .is_negative = node.is_negative,
                    .next = next});
      case Kind::sequence:
        for (auto part = node.parts.rbegin(); part != node.parts.rend(); ++part)
          next = made(*part, next);
        return next;
      case Kind::choice: {
        int all = made(node.parts.back(), next);
        for (auto part = node.parts.rbegin() + 1; part != node.parts.rend(); ++part)
          all = split(made(*part, next), all, false);
        return all;
      }
      case Kind::repeat: {
        const RegexNode& body = node.parts[0];
        const int behind = next;
        if (node.most < 0) {
          const int loop = split(behind, behind, node.is_lazy);
          const int again = made(body, loop);
          Thread& thread = all_[static_cast<size_t>(loop)];
          (node.is_lazy ? thread.otherwise : thread.next) = again;
          next = loop;
        } else {
          for (int i = node.least; i < node.most; ++i)
            next = split(made(body, next), behind, node.is_lazy);
        }
        for (int i = 0; i < node.least; ++i) next = made(body, next);
        return next;
      }
    }
    return next;
  }

  std::vector<Thread> all_;
  std::vector<PointSet> sets_;
  int first_ = -1;
};

}  // namespace

// Two code points are in the same class if every set contains both or neither. The last class is
// the end of the text.
struct PointClasses {
  std::vector<std::vector<bool>> has;  // indexed by class, then by set

  explicit PointClasses(const std::vector<PointSet>& sets) {
    std::vector<uint8_t> of_point(kCodePoints);
    std::vector<std::pair<uint32_t, size_t>> edges;
    for (size_t set = 0; set < sets.size(); ++set)
      for (const uint32_t edge : sets[set].edges()) edges.emplace_back(edge, set);
    std::ranges::sort(edges);
    std::map<std::vector<bool>, size_t> known;
    std::vector<bool> now(sets.size());
    uint32_t begin = 0;
    const auto fill = [&](uint32_t end) {
      if (begin == end) return;
      const auto [found, is_new] = known.try_emplace(now, known.size());
      if (is_new) has.push_back(now);
      if (has.size() > kMostClasses) throw TooLarge();
      std::fill(of_point.begin() + begin, of_point.begin() + end,
                static_cast<uint8_t>(found->second));
      begin = end;
    };
    for (const auto& [edge, set] : edges) {
      fill(edge);
      now[set] = !now[set];
    }
    fill(kCodePoints);
    has.emplace_back(sets.size());
    // Most pages of 256 code points equal another page, so equal pages are stored once.
    std::map<std::string, uint16_t> pages;
    for (auto first = of_point.begin(); first != of_point.end(); first += kPage) {
      const std::string page(first, first + kPage);
      const auto [found, is_new] = pages.try_emplace(page, pages.size());
      if (is_new) in_page_.insert(in_page_.end(), page.begin(), page.end());
      page_of_.push_back(found->second);
    }
  }
  size_t count() const { return has.size(); }
  size_t end() const { return has.size() - 1; }
  size_t of(uint32_t point) const {
    return in_page_[page_of_[point / kPage] * kPage + point % kPage];
  }

 private:
  static constexpr size_t kPage = 256;

  std::vector<uint16_t> page_of_;
  std::vector<uint8_t> in_page_;
};

struct Pattern::Automaton {
  static constexpr uint32_t kDead = 0;
  static constexpr uint32_t kStart = 1;

  PointClasses classes;
  // Indexed by state and class: the next state << 1 | whether a match ends before the character.
  std::vector<uint32_t> transitions;

  // A state is the list of threads that are still active, preferred ones first. A thread that
  // matches removes the threads after it.
  explicit Automaton(const RegexNode& tree) : Automaton(Threads(tree)) {}
  explicit Automaton(const Threads& threads) : classes(threads.sets()) {
    using State = std::vector<int>;
    std::map<State, uint32_t> known{{{}, kDead}, {{threads.first()}, kStart}};
    std::vector<State> states{{}, {threads.first()}};
    size_t steps = 0;
    std::vector<size_t> seen(threads.size()), taken(threads.size());
    size_t round = 0;
    for (size_t i = 0; i < states.size(); ++i) {
      const State from = states[i];
      for (size_t kind = 0; kind < classes.count(); ++kind) {
        ++round;
        State behind;
        bool matches = false;
        std::vector<int> pending(from.rbegin(), from.rend());
        while (!pending.empty() && !matches) {
          const int place = pending.back();
          pending.pop_back();
          if (++steps > kMostSteps) throw TooLarge();
          if (std::exchange(seen[static_cast<size_t>(place)], round) == round) continue;
          const Thread& thread = threads[place];
          const bool is_in = thread.set >= 0 && classes.has[kind][static_cast<size_t>(thread.set)];
          switch (thread.kind) {
            case Thread::Kind::match: matches = true; break;
            case Thread::Kind::look:
              if (is_in != thread.is_negative) pending.push_back(thread.next);
              break;
            case Thread::Kind::split:
              pending.push_back(thread.otherwise);
              pending.push_back(thread.next);
              break;
            case Thread::Kind::set:
              if (is_in && std::exchange(taken[static_cast<size_t>(thread.next)], round) != round)
                behind.push_back(thread.next);
              break;
          }
        }
        const auto [found, is_new] =
            known.try_emplace(behind, static_cast<uint32_t>(states.size()));
        if (is_new) states.push_back(behind);
        if (transitions.size() >= kMostTransitions) throw TooLarge();
        transitions.push_back(found->second << 1 | (matches ? 1 : 0));
      }
    }
  }

  bool matches_nothing() const {
    for (size_t kind = 0; kind < classes.count(); ++kind)
      if (transitions[kStart * classes.count() + kind] & 1) return true;
    return false;
  }
};

Pattern::Pattern(std::shared_ptr<const Automaton> automaton) : automaton_(std::move(automaton)) {}

Pattern Pattern::of_regex(std::string_view regex, const std::string& source) {
  const RegexNode tree = parse_regex(regex, source);
  std::shared_ptr<const Automaton> automaton;
  try {
    automaton = std::make_shared<const Automaton>(tree);
  } catch (const TooLarge&) {
    throw Error(source + ": the regular expression " + in_quotes(regex) +
                " cannot be matched in linear time: its automaton has too many states (give token "
                "ids made with Python's tokenizers)");
  }
  require(!automaton->matches_nothing(),
          source + ": the regular expression " + in_quotes(regex) +
              " matches the empty string, which is not supported (give token ids made with "
              "Python's tokenizers)");
  return Pattern(std::move(automaton));
}

Pattern Pattern::of_text(std::string_view text, const std::string& source) {
  require(!text.empty(), source + ": the text to look for is empty");
  RegexNode tree;
  for (size_t at = 0; at < text.size(); at += length_of(text[at]))
    tree.parts.push_back({.kind = RegexNode::Kind::set,
                          .set = PointSet::point(code_point(text.substr(at))),
                          .parts = {}});
  try {
    return Pattern(std::make_shared<const Automaton>(tree));
  } catch (const TooLarge&) {
    throw Error(source + ": the text to look for is longer than is supported: " + in_quotes(text));
  }
}

Pattern Pattern::of_digits(bool individual) {
  RegexNode tree{.kind = RegexNode::Kind::repeat,
                 .set = {},
                 .parts = {},
                 .least = 1,
                 .most = individual ? 1 : -1};
  tree.parts.push_back({.kind = RegexNode::Kind::set, .set = numeric_points(), .parts = {}});
  return Pattern(std::make_shared<const Automaton>(tree));
}

Matches::Matches(const Pattern& pattern, std::string_view text)
    : automaton_(pattern.automaton_), text_(text) {}

bool Matches::next(Range& match) {
  for (size_t begin = from_; begin < text_.size(); begin += length_of(text_[begin])) {
    const size_t end = match_at(begin);
    if (end == begin) continue;
    match = {begin, end};
    from_ = end;
    return true;
  }
  from_ = text_.size();
  return false;
}

size_t Matches::match_at(size_t begin) {
  const PointClasses& classes = automaton_->classes;
  const std::vector<uint32_t>& transitions = automaton_->transitions;
  const size_t states = transitions.size() / classes.count();
  size_t end = begin;
  uint32_t state = Pattern::Automaton::kStart;
  passed_.clear();
  for (size_t at = begin; state != Pattern::Automaton::kDead;) {
    const bool is_end = at == text_.size();
    const size_t kind = is_end ? classes.end() : classes.of(code_point(text_.substr(at)));
    const uint32_t transition = transitions[state * classes.count() + kind];
    state = transition >> 1;
    if (transition & 1) {
      end = at;
      passed_.clear();
    }
    if (is_end) break;
    const size_t block = at / kBlock;
    at += length_of(text_[at]);
    if (at / kBlock == block || state == Pattern::Automaton::kDead) continue;
    const uint64_t place = uint64_t{at} * states + state;
    if (!hopeless_.empty() && hopeless_.contains(place)) break;
    passed_.push_back(place);
  }
  hopeless_.insert(passed_.begin(), passed_.end());
  return end;
}

std::string replaced(const Pattern& pattern, std::string_view content, std::string_view text) {
  std::string result;
  size_t done = 0;
  Matches matches(pattern, text);
  for (Range match; matches.next(match); done = match.end)
    (result += text.substr(done, match.begin - done)) += content;
  return result += text.substr(done);
}

}  // namespace coda::tokenizer
