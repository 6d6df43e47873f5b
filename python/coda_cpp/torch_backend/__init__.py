# SPDX-License-Identifier: Apache-2.0
"""torch.compile(model, backend="coda"), stage by stage.

coda        the backend
options     what a user may ask for
report      what each region became, and what is left to PyTorch
explain     the same for a user who asks; logits: a model without them
verify      whether what it becomes is right
notices     what a user is told once
linears     the linear layers of a graph, for reports
normal      Dynamo's graph in aten before autograd, with layouts (trace, writes, autocast,
            higher_order, row_order; graph_edits inserts and replaces nodes)
attention   masks that are provably causal (mask_proof)
regions     which nodes become one region
importer    a region as a Graph of ours: rules/ has a rule for each operation, layout and values
            say how tensors lie in matrices
replace     a region as a module that calls its plan
inline      those calls in the graph that goes to the inner compiler
"""
