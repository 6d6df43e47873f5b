// SPDX-License-Identifier: Apache-2.0
// A shared library opened at run time, so that the program builds on a machine that has none of
// NVIDIA's software.
// Invariant: a symbol that is returned is never null.
#pragma once

#include <dlfcn.h>

#include <initializer_list>
#include <stdexcept>
#include <string>

namespace coda::hopper_table {

class LibraryMissing : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

class DynamicLibrary {
 public:
  explicit DynamicLibrary(std::initializer_list<const char*> names) {
    std::string tried;
    for (const char* name : names) {
      handle_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
      if (handle_ != nullptr) return;
      tried += std::string("\n  ") + dlerror();
    }
    throw LibraryMissing("cannot open a needed library; set LD_LIBRARY_PATH. Tried:" + tried);
  }

  template <class Function>
  void load(Function*& function, const char* name) const {
    void* symbol = dlsym(handle_, name);
    if (symbol == nullptr) throw std::runtime_error(std::string("library lacks ") + name);
    function = reinterpret_cast<Function*>(symbol);
  }

 private:
  void* handle_ = nullptr;
};

}  // namespace coda::hopper_table
