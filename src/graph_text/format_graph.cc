// SPDX-License-Identifier: Apache-2.0
// The layout of a graph's text, and what kind of text a file has.
#include <algorithm>

#include "coda/error.h"
#include "coda/graph_text.h"
#include "graph_text/graph_words.h"
#include "program/layout.h"

namespace coda {
bool is_graph_text(std::string_view text) {
  // Its first token: a file may be large.
  while (!text.empty()) {
    const size_t blank = std::min(text.find_first_not_of(" \t\r\n"), text.size());
    text.remove_prefix(blank);
    if (!text.starts_with('#')) break;
    text.remove_prefix(std::min(text.find('\n'), text.size()));
  }
  if (!text.starts_with("graph")) return false;
  return text.size() == 5 ||
         std::string_view(" \t\r\n\"{#").find(text[5]) != std::string_view::npos;
}

std::string format_graph(std::string_view text, std::string_view file) {
  const NamedGraph graph = parse_graph(text, file);
  std::string result = program::formatted(text, graph_text::is_size);
  invariant(coda::text(parse_graph(result)) == coda::text(graph), "a layout changed a graph");
  return result;
}

}  // namespace coda
