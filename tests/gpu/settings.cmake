# SPDX-License-Identifier: Apache-2.0
# Tests of the GPU backend that need no GPU. NVRTC comes from the Python package
# nvidia-cuda-nvrtc, which is installed in .venv after the build was configured, or from wherever
# the library finds it; tests that need it are skipped without it.
target_include_directories(gpu_test PRIVATE ${PROJECT_SOURCE_DIR})
target_compile_definitions(gpu_test PRIVATE CODA_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
set(nvrtc_environment "VIRTUAL_ENV=${PROJECT_SOURCE_DIR}/.venv")
set(discover_arguments PROPERTIES ENVIRONMENT "${nvrtc_environment}")
# These tests run the same kernels, which one process compiles once. The longest test starts first.
set(filter TEST_FILTER "-AttentionOnHost.*")
add_test(NAME AttentionOnHost COMMAND gpu_test --gtest_brief=1 --gtest_filter=AttentionOnHost.*)
set_tests_properties(AttentionOnHost PROPERTIES
  ENVIRONMENT "${nvrtc_environment}" COST 100 TIMEOUT 900)

target_link_libraries(gpu_test PRIVATE hopper_table_variants)

# Emitted kernels are compiled for the CPU too, by this command and a kernel's own words. GCC reads
# what they include once, here: half of the time that a kernel takes. It looks for a header's
# compiled form in the first folder, which has nothing else; other compilers read the header.
# A kernel runs shorter than it compiles, so -Og; the libraries that it needs are the program's.
set(host_device ${PROJECT_SOURCE_DIR}/tests/gpu/host_device)
set(compiled_headers ${PROJECT_BINARY_DIR}/host_kernels)
set(host_kernel_compiler ${CMAKE_CXX_COMPILER} -std=c++20 -Og -w -fPIC -fno-gnu-unique
  -nodefaultlibs -I${compiled_headers} -I${host_device} -I${PROJECT_SOURCE_DIR}/include
  -I${PROJECT_SOURCE_DIR} -I${PROJECT_SOURCE_DIR}/src)
string(JOIN " " host_kernel_command ${host_kernel_compiler})
target_compile_definitions(gpu_test PRIVATE CODA_HOST_KERNEL_COMPILER="${host_kernel_command}")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  file(MAKE_DIRECTORY ${compiled_headers})
  foreach(header product_kernel.cuh plain_kernel.cuh)
    add_custom_command(OUTPUT ${compiled_headers}/${header}.gch
      COMMAND ${host_kernel_compiler} -MD -MF ${compiled_headers}/${header}.d -x c++-header
        ${host_device}/${header} -o ${compiled_headers}/${header}.gch
      DEPENDS ${host_device}/${header}
      DEPFILE ${compiled_headers}/${header}.d
      VERBATIM)
    list(APPEND host_kernel_headers ${compiled_headers}/${header}.gch)
  endforeach()
  add_custom_target(host_kernel_headers DEPENDS ${host_kernel_headers})
  add_dependencies(gpu_test host_kernel_headers)
endif()

# A driver without a GPU, which tests of the backend open as they would open NVIDIA's.
add_library(fake_cuda SHARED ${PROJECT_SOURCE_DIR}/tests/gpu/fake_cuda.cc)
target_include_directories(fake_cuda PRIVATE
  ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR}/src)
target_compile_definitions(gpu_test PRIVATE CODA_FAKE_CUDA="$<TARGET_FILE:fake_cuda>")
add_dependencies(gpu_test fake_cuda)
