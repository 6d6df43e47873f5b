# SPDX-License-Identifier: Apache-2.0
# The measured configurations that are shipped.
coda_embed(hopper/configure tuned_rows_texts src/hopper/configure/tuned_rows*.txt)
