// SPDX-License-Identifier: Apache-2.0
// Searches folders for shared libraries without running any program: a Python environment is
// recognised by its folders.
#include "gpu/jit/dynamic_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <system_error>

#include "coda/error.h"

namespace coda::gpu {
namespace fs = std::filesystem;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

namespace {

bool is_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

// Entries of `folder` whose names start with `prefix`, in descending order (newest first).
std::vector<fs::path> entries(const fs::path& folder, const std::string& prefix) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (at->path().filename().string().starts_with(prefix)) found.push_back(at->path());
  }
  std::sort(found.rbegin(), found.rend());
  return found;
}

void add_unique(std::vector<fs::path>& paths, const fs::path& path) {
  if (!is_folder(path)) return;
  if (std::find(paths.begin(), paths.end(), path) == paths.end()) paths.push_back(path);
}

// Adds the packages of the environment installed at `prefix`.
void add_site_packages(std::vector<fs::path>& paths, const fs::path& prefix) {
  for (const fs::path& python : entries(prefix / "lib", "python3")) {
    add_unique(paths, python / "site-packages");
    add_unique(paths, python / "dist-packages");
  }
}

// The prefix of the `python3` on PATH; in a virtual environment, that environment.
fs::path python_prefix() {
  std::stringstream path(environment("PATH"));
  for (std::string folder; std::getline(path, folder, ':');) {
    std::error_code error;
    if (!folder.empty() && fs::exists(fs::path(folder) / "python3", error)) {
      return fs::path(folder).parent_path();
    }
  }
  return {};
}

}  // namespace

LibraryQuery nvrtc_library() {
  return {.what = "NVRTC, NVIDIA's run-time compiler",
          .variable = "CODA_NVRTC",
          .names = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"},
          .packages = {"cu13/lib", "cuda_nvrtc/lib"},
          .remedy =
              "install it with `pip install nvidia-cuda-nvrtc` or with a CUDA toolkit (12.4 "
              "or newer), or set CODA_NVRTC to the file",
          .companion = "libnvrtc-builtins.so"};
}

LibraryQuery driver_library() {
  return {.what = "the CUDA driver",
          .variable = "CODA_CUDA_DRIVER",
          .names = {"libcuda.so.1"},
          .packages = {},
          .remedy =
              "install NVIDIA's driver (525 or newer), which has it, or set CODA_CUDA_DRIVER "
              "to the file; in a container, start it with the GPU (--gpus all)"};
}

LibraryQuery management_library() {
  return {.what = "NVML, the driver's management library",
          .variable = "CODA_NVML",
          .names = {"libnvidia-ml.so.1"},
          .packages = {},
          .remedy = "install NVIDIA's driver, which has it, or set CODA_NVML to the file"};
}

LibraryQuery cublas_library() {
  return {.what = "cuBLASLt",
          .variable = "CODA_CUBLASLT",
          .names = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"},
          .packages = {"cu13/lib", "cublas/lib"},
          .remedy =
              "install it with `pip install nvidia-cublas` or with a CUDA toolkit, or set "
              "CODA_CUBLASLT to the file"};
}

LibraryQuery cudnn_library() {
  return {.what = "cuDNN",
          .variable = "CODA_CUDNN",
          .names = {"libcudnn.so.9"},
          .packages = {"cudnn/lib"},
          .remedy =
              "install it with `pip install nvidia-cudnn-cu13` (PyTorch brings it too), or set "
              "CODA_CUDNN to the file",
          .packages_first = true};
}

LibraryQuery nccl_library() {
  return {.what = "NCCL, which connects GPUs",
          .variable = "CODA_NCCL",
          .names = {"libnccl.so.2"},
          .packages = {"nccl/lib"},
          .remedy =
              "install it with `pip install nvidia-nccl-cu13` (PyTorch brings it too), or set "
              "CODA_NCCL to the file",
          .packages_first = true};
}

SearchPlaces search_places() {
  SearchPlaces places;
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const std::string home = environment(name); !home.empty())
      add_unique(places.toolkits, home);
  }
  add_unique(places.toolkits, "/usr/local/cuda");
  for (const fs::path& toolkit : entries("/usr/local", "cuda-"))
    add_unique(places.toolkits, toolkit);
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const std::string prefix = environment(name); !prefix.empty())
      add_site_packages(places.site_packages, prefix);
  }
  if (const fs::path prefix = python_prefix(); !prefix.empty())
    add_site_packages(places.site_packages, prefix);
  if (const std::string home = environment("HOME"); !home.empty())
    add_site_packages(places.site_packages, fs::path(home) / ".local");
  add_site_packages(places.site_packages, "/usr/local");
  add_site_packages(places.site_packages, "/usr");
  for (const char* folder : {"/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/nvidia/lib64",
                             "/usr/lib/wsl/lib", "/run/opengl-driver/lib"}) {
    add_unique(places.drivers, folder);
  }
  return places;
}

std::vector<fs::path> candidate_folders(const LibraryQuery& query, const SearchPlaces& places) {
  std::vector<fs::path> folders;
  if (query.packages.empty()) {
    for (const fs::path& folder : places.drivers) add_unique(folders, folder);
    return folders;
  }
  const auto add_packages = [&] {
    for (const fs::path& packages : places.site_packages) {
      for (const std::string& package : query.packages)
        add_unique(folders, packages / "nvidia" / package);
    }
  };
  if (query.packages_first) add_packages();
  for (const fs::path& toolkit : places.toolkits) {
    add_unique(folders, toolkit / "lib64");
    add_unique(folders, toolkit / "targets/x86_64-linux/lib");
  }
  add_packages();
  return folders;
}

DynamicLibrary::DynamicLibrary(const LibraryQuery& query)
    : what_(query.what), remedy_(query.remedy) {
  std::string problems;
  const auto open = [&](const std::string& file, int mode = 0) {
    handle_ = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | mode);
    if (handle_ == nullptr) return false;
    location_ = file;
    return true;
  };
  // Reports the loader's reason once if a file exists but cannot be opened.
  const auto open_file = [&](const fs::path& file) {
    std::error_code error;
    if (!fs::exists(file, error)) return false;
    // A library that the process has already opened is found by its name.
    if (!query.companion.empty()) {
      for (const fs::path& companion : entries(file.parent_path(), query.companion))
        dlopen(companion.c_str(), RTLD_NOW | RTLD_LOCAL);
    }
    if (open(file.string())) return true;
    const char* reason = dlerror();
    problems += "; " + std::string(reason == nullptr ? "cannot open " + file.string() : reason);
    return false;
  };
  std::string tried;
  if (const std::string named = environment(query.variable.c_str()); !named.empty()) {
    tried = query.variable + "=" + named;
    if (!is_folder(named) && open_file(named)) return;
    for (const std::string& name : query.names)
      if (is_folder(named) && open_file(fs::path(named) / name)) return;
  } else {
    tried = "the system's library folders and LD_LIBRARY_PATH";
    const auto open_named = [&](int mode) {
      return std::any_of(query.names.begin(), query.names.end(),
                         [&](const std::string& name) { return open(name, mode); });
    };
    if (open_named(query.packages_first ? RTLD_NOLOAD : 0)) return;  // already loaded
    for (const fs::path& folder : candidate_folders(query, search_places())) {
      for (const std::string& name : query.names)
        if (open_file(folder / name)) return;
      tried += ", " + folder.string();
    }
    if (query.packages_first && open_named(0)) return;
    if (!query.packages.empty())
      tried +=
          ", CUDA toolkits (CUDA_HOME, /usr/local/cuda*) and Python environments "
          "(VIRTUAL_ENV, python3)";
  }
  std::string names;
  for (const std::string& name : query.names) names += (names.empty() ? "" : ", ") + name;
  throw Error("cannot find " + query.what + " (" + names + "): looked in " + tried + problems +
              ". Remedy: " + query.remedy);
}

void* DynamicLibrary::find(const char* name) const { return dlsym(handle_, name); }

void* DynamicLibrary::symbol(const char* name) const {
  void* found = find(name);
  require(found != nullptr, what_ + " at " + location_ + " is too old: it has no function " + name +
                                ". Remedy: " + remedy_);
  return found;
}

}  // namespace coda::gpu
