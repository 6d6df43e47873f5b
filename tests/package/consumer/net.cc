// SPDX-License-Identifier: Apache-2.0
#include "net.h"

Net make_net(int64_t in, int64_t hidden, int64_t out) {
  Net net;
  net.x = net.graph.input("x", {"M", in});
  net.w1 = net.graph.parameter("w1", {hidden, in});
  net.w2 = net.graph.parameter("w2", {out, hidden});
  net.y = coda::linear(coda::maximum(coda::linear(net.x, net.w1), 0.0), net.w2) / 2.0;
  return net;
}
