# SPDX-License-Identifier: Apache-2.0
target_link_libraries(train_test PRIVATE coda_cpu)
