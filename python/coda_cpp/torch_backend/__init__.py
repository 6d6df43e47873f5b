# SPDX-License-Identifier: Apache-2.0
"""torch.compile(model, backend="coda"), stage by stage.

coda        the backend
options     the options of the backend
report      the outcome of each region, and the operations that are left to PyTorch
explain     the report for users; logits: models that return no logits
verify      checks the results of a compiled model
notices     warnings that are given once
messages    messages of transformers that would end the graph
linears     the linear layers of a graph, for reports
normal      Dynamo's graph in aten before autograd, with layouts (trace, writes, autocast,
            higher_order, row_order; graph_edits inserts and replaces nodes)
attention   masks that are provably causal (mask_proof)
regions     which nodes become one region
importer    a region as a Graph of coda-cpp: rules/ has a rule for each operation, layout and
            values map tensors to matrices
replace     a region as a module that calls its plan
inline      inlines the calls of regions into the graph for the inner compiler
equal_layers  compiles equal parts of that graph once
"""
