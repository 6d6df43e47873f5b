# SPDX-License-Identifier: Apache-2.0
target_link_libraries(models_test PRIVATE coda_grad coda_io coda_train coda_cpu)
# Where parity tests find the judge's script and Python, and keep what it made.
target_compile_definitions(models_test PRIVATE
  CODA_SOURCE_DIR="${PROJECT_SOURCE_DIR}" CODA_BINARY_DIR="${PROJECT_BINARY_DIR}")
target_sources(models_test PRIVATE ${PROJECT_SOURCE_DIR}/tests/models/hf_reference.cc)
# A test picks instruction sets through Highway.
target_link_libraries(models_test PRIVATE ${CODA_HWY})
