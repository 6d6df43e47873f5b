// SPDX-License-Identifier: Apache-2.0
// Opens NVIDIA's libraries at run time, so that the project builds and starts without them. The
// search order is: the path in the library's environment variable (if set, nothing else is
// searched), the system's loader (including libraries that the process has already loaded, for
// example through PyTorch), the driver's usual folders, CUDA toolkits, and packages of Python
// environments.
// Invariant: a loaded symbol is never null.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace coda::gpu {

struct LibraryQuery {
  std::string what;                   // for people: "NVRTC, NVIDIA's compiler"
  std::string variable;               // environment variable with a file or folder
  std::vector<std::string> names;     // file names, best first
  std::vector<std::string> packages;  // folders under site-packages/nvidia
  std::string remedy;                 // what the user can do if it is missing
  std::string companion{};            // prefix of a file in the same folder that the library loads
  // Prefer Python packages, which are usually newer than the system's libraries.
  bool packages_first = false;
};

LibraryQuery nvrtc_library();
LibraryQuery driver_library();
LibraryQuery management_library();  // NVML
LibraryQuery cublas_library();      // cuBLASLt
LibraryQuery cudnn_library();
LibraryQuery nccl_library();

// The value of an environment variable; empty if it is not set.
std::string environment(const char* name);

// Folders to search, derived from the environment.
struct SearchPlaces {
  std::vector<std::filesystem::path> toolkits;       // folders such as /usr/local/cuda
  std::vector<std::filesystem::path> site_packages;  // of Python environments
  std::vector<std::filesystem::path> drivers;        // folders of the driver's libraries
};
// From CUDA_HOME, CUDA_PATH and /usr/local/cuda*, and from VIRTUAL_ENV, CONDA_PREFIX, `python3` on
// PATH and the user's own packages.
SearchPlaces search_places();

// Folders to try after the loader's own, in order; folders that do not exist are left out.
std::vector<std::filesystem::path> candidate_folders(const LibraryQuery& query,
                                                     const SearchPlaces& places);

class DynamicLibrary {
 public:
  // Throws Error naming all places that were tried, and the remedy. A library stays open until the
  // process ends, because threads of its own may run its functions.
  explicit DynamicLibrary(const LibraryQuery& query);

  // A path, or the name by which the loader found it.
  const std::string& location() const { return location_; }

  // Throws Error if the library lacks the function because it is too old.
  template <class Function>
  void load(Function*& function, const char* name) const {
    function = reinterpret_cast<Function*>(symbol(name));
  }
  // Sets null if there is no such function.
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
