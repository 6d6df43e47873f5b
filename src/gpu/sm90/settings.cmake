# SPDX-License-Identifier: Apache-2.0
# The measured configurations that are shipped.
coda_embed(gpu/sm90 sm90_measured src/gpu/sm90/tuned_rows*.txt)
