// SPDX-License-Identifier: Apache-2.0
// Finds the line of each mistake and cuts long lines and messages.
#include "program/diagnostics.h"

#include <algorithm>

#include "coda/messages.h"

namespace coda {
namespace {

std::string text_of(std::string_view file, const std::vector<Diagnostic>& mistakes) {
  std::string text;
  for (const Diagnostic& mistake : mistakes) {
    text += (text.empty() ? "" : "\n") + printable(file) + ":" + std::to_string(mistake.line) +
            ":" + std::to_string(mistake.column) + ": error: " + mistake.message + "\n" +
            mistake.shown;
  }
  return text;
}

}  // namespace

ProgramError::ProgramError(std::string_view file, std::vector<Diagnostic> mistakes)
    : Error(text_of(file, mistakes)), mistakes_(std::move(mistakes)) {}

}  // namespace coda

namespace coda::program {
namespace {

constexpr size_t kMostMistakes = 20;
constexpr size_t kLongestMessage = 700;  // bytes: a name may be as long as the text
constexpr size_t kShown = 200;           // columns of a line

int64_t line_at(std::string_view text, size_t offset) {
  return 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(offset), '\n');
}

// The source line of a position, with a mark below it.
Diagnostic diagnosed(std::string_view text, const Mistake& mistake) {
  const size_t offset = std::min(mistake.place.offset, text.size());
  const size_t before = offset == 0 ? std::string_view::npos : text.rfind('\n', offset - 1);
  const size_t start = before == std::string_view::npos ? 0 : before + 1;
  const size_t stop = std::min(text.find('\n', offset), text.size());
  Diagnostic result;
  result.line = line_at(text, start);
  const size_t column = offset - start;
  result.column = static_cast<int64_t>(column) + 1;
  result.message = mistake.message.size() > kLongestMessage ? printable(mistake.message)
                                                            : without_escapes(mistake.message);
  std::string line(text.substr(start, std::min(stop - start, kShown)));
  // Characters that a terminal does not show as one column would misplace the mark.
  for (char& c : line) {
    if (c < ' ' || c > '~') c = ' ';
  }
  result.shown = "  " + line + (stop - start > kShown ? "..." : "");
  if (column > kShown) return result;
  const size_t last =
      std::min({offset + std::max<size_t>(mistake.place.length, 1), stop, start + kShown});
  result.shown += "\n  " + std::string(column, ' ') + "^" +
                  std::string(last > offset + 1 ? last - offset - 1 : 0, '~');
  return result;
}

}  // namespace

void Diagnostics::add(const Mistake& mistake) {
  if (!is_full()) mistakes_.push_back(mistake);
}

bool Diagnostics::is_full() const { return mistakes_.size() >= kMostMistakes; }

int64_t Diagnostics::line_of(Place place) const { return line_at(text_, place.offset); }

void Diagnostics::fail(std::string_view file) {
  std::stable_sort(mistakes_.begin(), mistakes_.end(), [](const Mistake& a, const Mistake& b) {
    return a.place.offset < b.place.offset;
  });
  std::vector<Diagnostic> all;
  for (const Mistake& mistake : mistakes_) all.push_back(diagnosed(text_, mistake));
  if (is_full()) all.back().message += " (there may be more: the rest was not read)";
  throw ProgramError(file, std::move(all));
}

}  // namespace coda::program
