# SPDX-License-Identifier: Apache-2.0
# coda_library(folder deps...): the library of src/<folder>, the .cc files that lie in it; a folder
# may add its own settings in src/<folder>/settings.cmake. coda_tests(): one GoogleTest program for
# each tests/<folder>, linked with that folder's library; that of tests may add more.
set(CODA_FOLDERS "")
# GCC 12 sees overlaps where strings are joined that are not there (its bug 105651).
set(CODA_WARNINGS -Wall -Wextra -Wno-restrict)
if(PROJECT_IS_TOP_LEVEL)
  list(APPEND CODA_WARNINGS -Werror)  # not where another compiler may warn of something new
endif()
if(CODA_SANITIZE OR CODA_FUZZ)
  set(CODA_WARNINGS -w)  # see sanitize.cmake
endif()
# For programs (tests, the command, examples, what measures): what runs long is in the libraries.
# -O3 takes almost twice as long to compile. So it is with the libraries that make kernels' texts
# and find their cubins (in milliseconds, before the compiler takes a second), describe graphs to
# cuDNN once, or measure. A launch is in gpu/launch, which is not among them.
set(CODA_QUICK_COMPILE -Og)
set(CODA_QUICK_FOLDERS gpu/legalise gpu/configure gpu/codegen gpu/jit gpu/cudnn
    gpu measure)
# The compiler of plans takes as long with -O1 as with -O3 (lab/plan), and is built in three fifths
# of the time. The float64 evaluators (ir, program) do not.
set(CODA_O1_FOLDERS grad rewrite plan/after plan/partition plan/write plan/search plan)
# Headers are half of the time to compile a source, so several sources are compiled as one where all
# are compiled once: on a fresh machine, and in CI. Where ccache is, a developer compiles again and
# again what changed, and each source stays by itself. One compilation of a folder of 36 to 39
# sources takes 30 % less time than three. The largest one needs 1.4 GB, under the sanitizers.
set(unity ON)
if(CODA_CCACHE)
  set(unity OFF)
endif()
option(CODA_UNITY "Compile the sources of a folder together" ${unity})
# The folders whose tests run under the sanitizers: the compiler, the runtime, which places tensors
# in one arena of memory, and the parsers of files. CI runs these tests only under the sanitizers,
# except CODA_LONG_TESTS, which are too slow there and run without. The sanitizers need only the
# paths of these: of a test over all kinds of models they run two kinds, and shorter tests take the
# paths of the tests that search all choices or compute whole plans.
set(CODA_SANITIZED_FOLDERS base ir grad rewrite program plan runtime io tokenizer)
set(CODA_LONG_FOLDERS plan)
string(JOIN ":" CODA_LONG_TESTS Models/*.*/sandwich* Models/*.*/gpt2* Models/*.*/post_norm*
  EightBitPlan.ModelsCompute* RunSomeAgain* SavedSets.NoOtherChoice*)
option(CODA_SANITIZED_TESTS "Build also the tests that run under the sanitizers" ON)

# Sources that Highway compiles once per instruction set include themselves, and stay alone.
function(coda_unity target)
  if(NOT CODA_UNITY)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  foreach(source ${sources})
    file(STRINGS ${source} of_each_set REGEX "foreach_target" LIMIT_COUNT 1)
    if(of_each_set)
      set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 48)
endfunction()

# The target of a folder: coda_cpu, and coda_gpu_jit of src/gpu/jit.
function(coda_target result folder)
  string(REPLACE "/" "_" name ${folder})
  set(${result} coda_${name} PARENT_SCOPE)
endfunction()

function(coda_library folder)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${folder}/*.cc)
  coda_target(target ${folder})
  set(deps "")
  foreach(used ${ARGN})
    coda_target(dep ${used})
    list(APPEND deps ${dep})
  endforeach()
  if(sources)
    add_library(${target} STATIC ${sources})
    target_include_directories(${target}
      PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
    target_compile_features(${target} PUBLIC cxx_std_20)
    target_compile_options(${target} PRIVATE ${CODA_WARNINGS})
    if(folder IN_LIST CODA_QUICK_FOLDERS)
      target_compile_options(${target} PRIVATE ${CODA_QUICK_COMPILE})
    elseif(folder IN_LIST CODA_O1_FOLDERS AND NOT CODA_SANITIZE)
      target_compile_options(${target} PRIVATE -O1)
    endif()
    target_link_libraries(${target} PUBLIC ${deps})
    set_target_properties(${target} PROPERTIES
      CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)  # see coda/api.h
    coda_unity(${target})
  else()
    add_library(${target} INTERFACE)
    target_include_directories(${target}
      INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(${target} INTERFACE ${deps})
  endif()
  if(EXISTS ${PROJECT_SOURCE_DIR}/src/${folder}/settings.cmake)
    include(${PROJECT_SOURCE_DIR}/src/${folder}/settings.cmake)
  endif()
  set(CODA_FOLDERS ${CODA_FOLDERS} ${folder} PARENT_SCOPE)
endfunction()

# The files that match `pattern` as text in a folder's library: what the function
# std::span<const EmbeddedText> coda::gpu::<function>() returns.
function(coda_embed folder function pattern)
  coda_target(target ${folder})
  file(GLOB_RECURSE files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${pattern})
  set(script ${PROJECT_SOURCE_DIR}/cmake/embed_texts.cmake)
  set(output ${PROJECT_BINARY_DIR}/embedded/${function}.cc)
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR} -DPATTERN=${pattern}
            -DFUNCTION=${function} -DOUTPUT=${output} -P ${script}
    DEPENDS ${files} ${script} COMMENT "Embedding ${pattern}" VERBATIM)
  # By itself: clang-tidy reads what is compiled together before anything is built.
  set_source_files_properties(${output} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_sources(${target} PRIVATE ${output})
endfunction()

# A build in which a folder includes what it may not fails. The check takes a tenth of a second, and
# runs only when a source or CMakeLists.txt has changed.
function(coda_check_layers)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS
    ${PROJECT_SOURCE_DIR}/include/*.h ${PROJECT_SOURCE_DIR}/src/*.h ${PROJECT_SOURCE_DIR}/src/*.cc)
  set(script ${PROJECT_SOURCE_DIR}/scripts/check_layers.py)
  set(stamp ${PROJECT_BINARY_DIR}/layers.checked)
  add_custom_command(OUTPUT ${stamp}
    COMMAND ${Python3_EXECUTABLE} ${script}
    COMMAND ${CMAKE_COMMAND} -E touch ${stamp}
    DEPENDS ${script} ${PROJECT_SOURCE_DIR}/CMakeLists.txt ${sources}
    COMMENT "Checking which folder includes which")
  add_custom_target(check_layers ALL DEPENDS ${stamp})
endfunction()

# What all test programs share.
function(coda_test_settings target)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${target}
    PRIVATE GTest::gmock GTest::gtest GTest::gtest_main OpenMP::OpenMP_CXX)
endfunction()

# GoogleTest's headers are a third of the time to compile a test, so they are compiled once. What
# uses that must have the same flags (hence OpenMP's for all), and ccache does not keep it.
function(coda_test_headers)
  set(main ${PROJECT_BINARY_DIR}/test_headers.cc)
  file(CONFIGURE OUTPUT ${main} CONTENT "int main() {}\n")
  add_executable(test_headers EXCLUDE_FROM_ALL ${main})
  coda_test_settings(test_headers)
  target_precompile_headers(test_headers PRIVATE <gmock/gmock.h> <gtest/gtest.h>)
endfunction()

function(coda_test_program target)
  coda_test_settings(${target})
  if(TARGET test_headers)
    target_precompile_headers(${target} REUSE_FROM test_headers)
  endif()
  coda_unity(${target})
endfunction()

function(coda_tests)
  include(GoogleTest)
  add_custom_target(all_tests)
  set(folders ${CODA_FOLDERS})
  if(CODA_SANITIZE)
    set(folders ${CODA_SANITIZED_FOLDERS})
  endif()
  foreach(folder ${folders})
    file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${folder}/*_test.cc)
    set(filter "")  # all
    if(CODA_SANITIZE)
      set(filter TEST_FILTER "-${CODA_LONG_TESTS}")
    elseif(NOT CODA_SANITIZED_TESTS AND folder IN_LIST CODA_LONG_FOLDERS)
      set(filter TEST_FILTER "${CODA_LONG_TESTS}")
    elseif(NOT CODA_SANITIZED_TESTS AND folder IN_LIST CODA_SANITIZED_FOLDERS)
      continue()
    endif()
    if(sources)
      set(target ${folder}_test)
      add_executable(${target} ${sources})
      target_link_libraries(${target} PRIVATE coda_${folder})
      coda_test_program(${target})
      set(discover_arguments "")  # a folder's settings may add some
      if(EXISTS ${PROJECT_SOURCE_DIR}/tests/${folder}/settings.cmake)
        include(${PROJECT_SOURCE_DIR}/tests/${folder}/settings.cmake)
      endif()
      gtest_discover_tests(${target} DISCOVERY_MODE PRE_TEST ${filter} ${discover_arguments})
      add_dependencies(all_tests ${target})
    endif()
  endforeach()
endfunction()
