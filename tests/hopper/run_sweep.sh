#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the compile sweep with NVRTC from the Python package nvidia-cuda-nvrtc, which is installed
# after the build was configured, or from wherever the loader finds it.
# Usage: run_sweep.sh SWEEP SOURCE_FOLDER
for folder in "$2"/.venv/lib/python3*/site-packages/nvidia/cu13/lib \
  "$2"/.venv/lib/python3*/site-packages/nvidia/cuda_nvrtc/lib; do
  [ ! -d "$folder" ] || LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
done
export LD_LIBRARY_PATH
exec "$1" "$2"
