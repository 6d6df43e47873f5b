// SPDX-License-Identifier: Apache-2.0
// Passes arrays to python3 through .npz files in a temporary folder.
#include "python_formula.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "coda/array_file.h"
#include "coda/messages.h"

extern char** environ;

namespace coda::tools {
namespace {

constexpr const char* kScript = R"python(
import importlib.util, inspect, sys
import numpy
file, name, given, results = sys.argv[1:]
spec = importlib.util.spec_from_file_location("formula", file)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
function = getattr(module, name)
inputs = dict(numpy.load(given))
parameters = inspect.signature(function).parameters.values()
named = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
if any(p.kind is p.VAR_KEYWORD for p in parameters):
    named = list(inputs)
missing = [p.name for p in parameters if p.name in named and p.default is p.empty
           and p.name not in inputs]
if missing:
    sys.exit(f"{name} asks for {', '.join(missing)}; there are {', '.join(sorted(inputs))}")
result = function(**{n: inputs[n] for n in named if n in inputs})
if not isinstance(result, dict):
    result = {name: result}
numpy.savez(results, **{k: numpy.asarray(v, dtype=numpy.float64) for k, v in result.items()})
)python";

// A temporary folder, removed with its contents.
class Scratch {
 public:
  Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "coda-formula-XXXXXX").string();
    require(mkdtemp(name.data()) != nullptr, "--formula: no temporary folder can be made");
    path_ = name;
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

std::string last_line(const std::string& file) {
  std::ifstream in(file);
  std::string last;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty()) last = line;
  }
  return last;
}

void write_inputs(const std::string& file, std::span<const Program> programs,
                  const Arrays& inputs) {
  std::set<std::string> whole;
  for (const Program& program : programs) {
    for (const TensorDecl& decl : program.tensors) {
      if (decl.dtype == DType::i32) whole.insert(decl.name);
      for (const Dim& dim : {decl.shape.rows, decl.shape.cols}) {
        for (const auto& [symbol, factor] : dim.terms()) whole.insert(symbol);
      }
    }
  }
  std::vector<ArrayToWrite> arrays;
  for (const auto& [name, array] : inputs)
    arrays.push_back({name, whole.contains(name) ? DType::i32 : DType::f64, array});
  write_arrays(file, arrays);
}

// The exit status of python3; its standard error is written to `errors`.
int run_python(std::vector<std::string> words, const std::string& errors) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, errors.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  pid_t child = 0;
  const int problem =
      posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  require(problem == 0,
          "--formula: python3 is not found: install it, or write the formula as text");
  int state = 0;
  waitpid(child, &state, 0);
  return WIFEXITED(state) ? WEXITSTATUS(state) : 128;
}

}  // namespace

std::optional<PythonFunction> python_function(const std::string& word) {
  const size_t colon = word.rfind(".py:");
  if (colon == std::string::npos || word.find('\n') != std::string::npos) return std::nullopt;
  const std::string name = word.substr(colon + 4);
  if (name.empty() || name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"
                                             "0123456789") != std::string::npos)
    return std::nullopt;
  return PythonFunction{word.substr(0, colon + 3), name};
}

Arrays call_python(const PythonFunction& function, std::span<const Program> programs,
                   const Arrays& inputs) {
  const Scratch folder;
  write_inputs(folder / "inputs.npz", programs, inputs);
  const int status = run_python({"python3", "-c", kScript, function.file, function.name,
                                 folder / "inputs.npz", folder / "results.npz"},
                                folder / "errors");
  if (status == 0) return read_arrays(folder / "results.npz");
  const std::string said = last_line(folder / "errors");
  const bool lacks_numpy = said.find("No module named 'numpy'") != std::string::npos;
  throw Error("--formula " + printable(function.file) + ":" + function.name + ": " +
              (said.empty() ? "python3 failed" : printable(said)) +
              (lacks_numpy ? " (pip install numpy)" : ""));
}

}  // namespace coda::tools
