// SPDX-License-Identifier: Apache-2.0
// A library is found where its variable says, and otherwise by the loader, in drivers' folders,
// toolkits and Python environments, in this order; a failure says what was looked for where, and
// what to do.
#include "gpu/jit/dynamic_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "coda/error.h"
#include "io/temp_folder.h"

namespace coda::gpu {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string message_of(const LibraryQuery& query) {
  try {
    const DynamicLibrary library(query);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

LibraryQuery missing() {
  return {.what = "a library of nobody",
          .variable = "CODA_TEST_LIBRARY",
          .names = {"libcoda-nobody.so.2", "libcoda-nobody.so.1"},
          .packages = {"nobody/lib"},
          .remedy = "write one"};
}

TEST(DynamicLibrary, OpensWhatTheLoaderKnows) {
  LibraryQuery query = missing();
  query.names = {"libcoda-nobody.so.2", "libm.so.6"};
  const DynamicLibrary library(query);
  EXPECT_EQ(library.location(), "libm.so.6");
  double (*cosine)(double) = nullptr;
  library.load(cosine, "cos");
  EXPECT_EQ(cosine(0), 1);
  library.load_optional(cosine, "coda_no_such_function");
  EXPECT_EQ(cosine, nullptr);
}

TEST(DynamicLibrary, SaysWhatWasLookedForWhereAndTheRemedy) {
  const std::string message = message_of(missing());
  EXPECT_THAT(message, HasSubstr("cannot find a library of nobody (libcoda-nobody.so.2, "
                                 "libcoda-nobody.so.1): looked in the system's library folders"));
  EXPECT_THAT(message, HasSubstr("LD_LIBRARY_PATH"));
  EXPECT_THAT(message, HasSubstr("CUDA_HOME"));
  EXPECT_THAT(message, HasSubstr("VIRTUAL_ENV"));
  EXPECT_THAT(message, HasSubstr("Remedy: write one"));
}

TEST(DynamicLibrary, ItsVariableNamesAFileOrAFolderAndNothingElseIsTried) {
  LibraryQuery query = missing();
  query.names = {"libm.so.6"};  // the loader would find it
  const TempFolder folder;
  std::ofstream(folder.path() / "libm.so.6") << "no library";
  for (const std::filesystem::path& named : {folder.path(), folder.path() / "libm.so.6"}) {
    setenv("CODA_TEST_LIBRARY", named.c_str(), 1);
    const std::string message = message_of(query);
    EXPECT_THAT(message, HasSubstr("looked in CODA_TEST_LIBRARY=" + named.string()));
    EXPECT_THAT(message, HasSubstr("libm.so.6"));
    EXPECT_THAT(message, Not(HasSubstr("LD_LIBRARY_PATH")));
  }
  unsetenv("CODA_TEST_LIBRARY");
}

TEST(DynamicLibrary, AMissingFunctionMeansThatItIsTooOld) {
  LibraryQuery query = missing();
  query.names = {"libm.so.6"};
  const DynamicLibrary library(query);
  void (*function)() = nullptr;
  try {
    library.load(function, "coda_no_such_function");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "a library of nobody at libm.so.6 is too old: it has no function "
                 "coda_no_such_function. Remedy: write one");
  }
}

TEST(DynamicLibrary, ToolkitsComeBeforePythonEnvironmentsAndWhatIsNotThereIsLeftOut) {
  const TempFolder folder;
  const std::filesystem::path root = folder.path();
  const std::filesystem::path packages = root / "env/lib/python3.11/site-packages";
  std::filesystem::create_directories(root / "cuda/lib64");
  std::filesystem::create_directories(packages / "nvidia/nobody/lib");
  SearchPlaces places;
  places.toolkits = {root / "cuda", root / "cuda-of-nobody"};
  places.site_packages = {root / "another", packages};
  places.drivers = {root};
  EXPECT_THAT(candidate_folders(missing(), places),
              ElementsAre(root / "cuda/lib64", packages / "nvidia/nobody/lib"));
  LibraryQuery newer_in_packages = missing();
  newer_in_packages.packages_first = true;
  EXPECT_THAT(candidate_folders(newer_in_packages, places),
              ElementsAre(packages / "nvidia/nobody/lib", root / "cuda/lib64"));
  // The driver comes with the system, never with a toolkit or a package.
  EXPECT_THAT(candidate_folders(driver_library(), places), ElementsAre(root));
}

TEST(DynamicLibrary, AVirtualEnvironmentIsSearchedBeforeOthers) {
  const TempFolder folder;
  const std::filesystem::path packages = folder.path() / "lib/python3.12/site-packages";
  std::filesystem::create_directories(packages);
  const char* old = std::getenv("VIRTUAL_ENV");
  const std::string before = old == nullptr ? "" : old;
  setenv("VIRTUAL_ENV", folder.path().c_str(), 1);
  const SearchPlaces places = search_places();
  setenv("VIRTUAL_ENV", before.c_str(), 1);
  ASSERT_FALSE(places.site_packages.empty());
  EXPECT_EQ(places.site_packages.front(), packages);
}

}  // namespace
}  // namespace coda::gpu
