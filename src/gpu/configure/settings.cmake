# SPDX-License-Identifier: Apache-2.0
# The measured configurations that are shipped.
coda_embed(gpu/configure tuned_rows_texts src/gpu/configure/tuned_rows*.txt)
