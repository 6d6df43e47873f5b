# SPDX-License-Identifier: Apache-2.0
# zlib for the members of .npz files.
find_library(CODA_ZLIB z REQUIRED)
target_link_libraries(coda_io PRIVATE ${CODA_ZLIB})
