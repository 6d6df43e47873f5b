// SPDX-License-Identifier: Apache-2.0
// NVIDIA's libraries are opened at run time, so that the project builds and starts where there are
// none. Each is looked for in the place that its environment variable names (nowhere else, if it is
// set), where the system's loader looks (and where the process has it already: PyTorch's), in the
// usual folders of drivers, in CUDA toolkits, and in the packages of Python environments.
// Invariant: a symbol that is returned is never null.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace coda::gpu {

struct LibraryQuery {
  std::string what;                   // for people: "NVRTC, NVIDIA's compiler"
  std::string variable;               // names a file or a folder
  std::vector<std::string> names;     // file names, best first
  std::vector<std::string> packages;  // folders under site-packages/nvidia
  std::string remedy;                 // what to do where there is none
  std::string companion{};  // how the name starts of a file beside it that it will ask for
  // What Python environments have is usually newer than what the system has.
  bool packages_first = false;
};

LibraryQuery nvrtc_library();
LibraryQuery driver_library();
LibraryQuery management_library();  // NVML
LibraryQuery cublas_library();      // cuBLASLt
LibraryQuery cudnn_library();
LibraryQuery nccl_library();

// A variable of the environment; empty where it is not set.
std::string environment(const char* name);

// The environment that the search depends on.
struct SearchPlaces {
  std::vector<std::filesystem::path> toolkits;       // folders such as /usr/local/cuda
  std::vector<std::filesystem::path> site_packages;  // of Python environments
  std::vector<std::filesystem::path> drivers;        // folders of the driver's libraries
};
// From CUDA_HOME, CUDA_PATH, /usr/local/cuda*; VIRTUAL_ENV, CONDA_PREFIX, `python3` on PATH and the
// user's own packages.
SearchPlaces search_places();

// Folders that are tried behind the loader's own, in order; those that do not exist are left out.
std::vector<std::filesystem::path> candidate_folders(const LibraryQuery& query,
                                                     const SearchPlaces& places);

class DynamicLibrary {
 public:
  // Throws Error naming all places that were tried, and the remedy. A library stays open until the
  // process ends: its functions may be running in threads of its own.
  explicit DynamicLibrary(const LibraryQuery& query);

  // Where it was found: a path, or the name that the loader knew.
  const std::string& location() const { return location_; }

  // Throws Error if the library has no such function: it is too old.
  template <class Function>
  void load(Function*& function, const char* name) const {
    function = reinterpret_cast<Function*>(symbol(name));
  }
  // Null if there is none.
  template <class Function>
  void load_optional(Function*& function, const char* name) const {
    function = reinterpret_cast<Function*>(find(name));
  }

 private:
  void* symbol(const char* name) const;
  void* find(const char* name) const;

  std::string what_;
  std::string remedy_;
  std::string location_;
  void* handle_ = nullptr;
};

}  // namespace coda::gpu
