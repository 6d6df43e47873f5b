// SPDX-License-Identifier: Apache-2.0
// A net of one's own: y = relu(x · W1ᵀ) · W2ᵀ / 2.
#pragma once

#include <coda/graph.h>

struct Net {
  coda::Graph graph;
  coda::Value x, w1, w2, y;
};

Net make_net(int64_t in, int64_t hidden, int64_t out);
