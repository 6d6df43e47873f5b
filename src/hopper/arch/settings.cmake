# SPDX-License-Identifier: Apache-2.0
# Host code of the Hopper backend includes files of device/: the index mathematics.
target_include_directories(coda_hopper_arch PUBLIC ${PROJECT_SOURCE_DIR})
