// SPDX-License-Identifier: Apache-2.0
// Builds CUDA text line by line.
#pragma once

#include <string>
#include <string_view>

#include "gpu/target/pattern.h"

namespace coda::gpu {

// The lines of a function body.
class Body {
 public:
  explicit Body(int indent) : indent_(indent) {}
  void line(std::string_view pattern, Parts parts = {}) {
    if (!pattern.empty()) text_ += std::string(indent_, ' ') + filled(pattern, parts);
    text_ += "\n";
  }
  bool mentions(const std::string& word) const {
    const auto is_word = [](char c) {
      return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    };
    for (size_t at = text_.find(word); at != std::string::npos; at = text_.find(word, at + 1)) {
      const bool begins = at == 0 || (!is_word(text_[at - 1]) && text_[at - 1] != '.');
      const size_t end = at + word.size();
      if (begins && (end == text_.size() || !is_word(text_[end]))) return true;
    }
    return false;
  }
  void add(const Body& lines) { text_ += lines.text_; }
  const std::string& text() const { return text_; }
  bool empty() const { return text_.empty(); }

 private:
  int indent_;
  std::string text_;
};

// `lines` must each end with a newline; `prefix` is a line before the signature, such as a template
// header.
inline std::string function(const std::string& type, const std::string& signature,
                            const std::string& lines, const std::string& prefix = "") {
  return "\n" + prefix + "  __device__ __forceinline__ static " + type + " " + signature +
         (lines.empty() ? " {}\n" : " {\n" + lines + "  }\n");
}

}  // namespace coda::gpu
