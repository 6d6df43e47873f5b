# SPDX-License-Identifier: Apache-2.0
"""Groups of operations that become one: graphs made by chance, and what holds for each."""

import graphlib
import operator
import random
import unittest

import torch
from torch import fx

from coda_cpp.torch_backend import regions
from coda_cpp.torch_backend.layout import KEY


def graph_by_chance(seed):
    chance, graph, nodes = random.Random(seed), fx.Graph(), []
    for i in range(chance.randint(1, 3)):
        nodes.append(graph.placeholder(f"x{i}"))
    for _ in range(chance.randint(2, 30)):
        near = nodes[-chance.choice((2, 6, 30)):]
        nodes.append(graph.call_function(
            operator.add, (chance.choice(near), chance.choice(near))))
    for node in nodes:
        node.meta["val"] = torch.empty(chance.choice((3, 3, 3, 4)), 2, device="meta")
        if node.op != "placeholder" and chance.random() < 0.7:
            node.meta[KEY] = "rc"
    graph.output(nodes[-1])
    return graph


def can_be_run(graph, groups):
    """Whether there is an order for the groups and the nodes of none."""
    of = {node: i for i, group in enumerate(groups) for node in group}
    behind = {}
    for node in graph.nodes:
        one = of.get(node, node)
        behind.setdefault(one, set()).update(
            of.get(used, used) for used in node.all_input_nodes)
        behind[one].discard(one)
    try:
        graphlib.TopologicalSorter(behind).prepare()
    except graphlib.CycleError:
        return False
    return True


class Regions(unittest.TestCase):
    def test_groups_can_be_run_at_once(self):
        several = 0
        for seed in range(300):
            graph = graph_by_chance(seed)
            groups = regions.propose(graph, ())
            found = [node for group in groups for node in group]
            self.assertEqual(set(found), {node for node in graph.nodes if KEY in node.meta})
            self.assertEqual(len(found), len(set(found)))
            self.assertTrue(can_be_run(graph, groups), seed)
            for group in groups:
                several += len(group) > 1
                self.assertEqual(group, [node for node in graph.nodes if node in group])
                self.assertEqual(len({len(node.meta["val"]) for node in group}), 1)
        self.assertGreater(several, 300)

    def test_what_stands_between_keeps_nodes_apart(self):
        graph = fx.Graph()
        x = graph.placeholder("x")
        first = graph.call_function(operator.neg, (x,))
        between = graph.call_function(operator.inv, (first,))
        last = graph.call_function(operator.add, (first, between))
        beside = graph.call_function(operator.add, (first, first))
        graph.output((last, beside))
        for node in graph.nodes:
            node.meta["val"] = torch.empty(3, 2, device="meta")
        for node in (first, last, beside):
            node.meta[KEY] = "rc"
        self.assertCountEqual(regions.propose(graph, ()), [[first, beside], [last]])
        between.meta[KEY] = "rc"
        self.assertCountEqual(regions.propose(graph, ()), [[first, between, last, beside]])
        self.assertCountEqual(regions.propose(graph, {(last, first), (beside, first)}),
                              [[first, between, last], [beside]])


if __name__ == "__main__":
    unittest.main()
