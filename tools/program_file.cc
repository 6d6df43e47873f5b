// SPDX-License-Identifier: Apache-2.0
// Finds explicit f32 types in the text, because the parsed program does not distinguish them from
// the default.
#include "program_file.h"

#include <fstream>
#include <regex>

#include "coda/error.h"
#include "coda/run_graph.h"

namespace coda::tools {

std::set<std::string> symbols_of(const Program& program) {
  std::set<std::string> symbols;
  const auto add = [&](const auto&... dims) {
    for (const Dim& dim : {dims...}) {
      for (const auto& [symbol, factor] : dim.terms()) symbols.insert(symbol);
    }
  };
  for (const TensorDecl& decl : program.tensors) add(decl.shape.rows, decl.shape.cols);
  for (const Step& step : program.steps) add(step.shape.rows, step.shape.cols, step.size());
  return symbols;
}

namespace {

// Names of tensors with an explicit f32; a colon is used only before a type.
std::set<std::string> written_as_f32(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::set<std::string> names;
  // NAME or "NAME", an optional shape, then :f32.
  const std::regex typed(
      R"re((?:"([^"\n]*)"|([A-Za-z_][A-Za-z0-9_.]*))\s*(?:\[[^\]]*\])?\s*:\s*f32\b)re");
  std::string text;
  for (std::string line; std::getline(in, line);) text += line.substr(0, line.find('#')) + "\n";
  for (std::sregex_iterator match(text.begin(), text.end(), typed), end; match != end; ++match)
    names.insert((*match)[1].matched ? (*match)[1].str() : (*match)[2].str());
  return names;
}

DType type_of(const std::string& storage) { return storage == "f16" ? DType::f16 : DType::bf16; }

// Throws Error naming a size that is not one of the symbols.
void refuse_sizes_besides(const std::set<std::string>& symbols, const DimValues& sizes,
                          const std::string& owner) {
  std::string listed;
  for (const std::string& symbol : symbols) listed += (listed.empty() ? " " : ", ") + symbol;
  for (const auto& [name, value] : sizes) {
    require(symbols.contains(name), "--sizes: " + name + " is no size of the " + owner +
                                        (listed.empty() ? " none" : listed) + ": check the name");
  }
}

}  // namespace

std::vector<Program> read_programs_stored_as(const std::vector<std::string>& files,
                                             const std::string& storage) {
  std::vector<Program> programs;
  for (const std::string& file : files) {
    std::vector<Program> of_file = read_programs(file);
    const std::set<std::string> stays =
        storage.empty() ? std::set<std::string>() : written_as_f32(file);
    for (Program& program : of_file) {
      for (TensorDecl& decl : program.tensors) {
        const bool is_matrix = decl.kind == TensorKind::dense && !decl.shape.is_vector();
        if (!storage.empty() && is_matrix && decl.dtype == DType::f32 && !stays.contains(decl.name))
          decl.dtype = type_of(storage);
      }
      programs.push_back(std::move(program));
    }
  }
  return programs;
}

void require_sizes(const Program& program, const DimValues& sizes) {
  for (const std::string& symbol : symbols_of(program)) {
    require(sizes.contains(symbol), "the size " + symbol + " of program '" + program.name +
                                        "' is not known: give it, as in --sizes " + symbol +
                                        "=1024");
  }
}

void refuse_other_sizes(std::span<const Program> programs, const DimValues& sizes) {
  std::set<std::string> symbols;
  for (const Program& program : programs) symbols.merge(symbols_of(program));
  refuse_sizes_besides(symbols, sizes, "programs, they have");
}

std::optional<NamedGraph> read_lone_graph(const std::vector<std::string>& files,
                                          const std::string& storage) {
  for (const std::string& file : files) {
    if (!is_graph_text(read_program_text(file))) continue;
    require(files.size() == 1, file + " is a graph, which is taken by itself: give one file");
    NamedGraph named = read_graph(file);
    if (storage.empty()) return named;
    const std::set<std::string> stays = written_as_f32(file);
    return with_types(named, [&](const std::string& name, const Shape& shape, DType type) {
      const bool changes = type == DType::f32 && shape.is_tensor() && !stays.contains(name);
      return changes ? type_of(storage) : type;
    });
  }
  return std::nullopt;
}

void refuse_other_sizes(const NamedGraph& named, const DimValues& sizes) {
  refuse_sizes_besides(symbols_of(named), sizes, "graph, it has");
}

std::string text_of(const DimValues& sizes) {
  std::string text;
  for (const auto& [name, value] : sizes) text += " " + name + "=" + std::to_string(value);
  return text;
}

}  // namespace coda::tools
