# SPDX-License-Identifier: Apache-2.0
# Failures show the graph as text.
target_link_libraries(${target} PRIVATE coda_graph_text)
