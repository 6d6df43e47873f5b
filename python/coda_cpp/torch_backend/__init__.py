# SPDX-License-Identifier: Apache-2.0
"""torch.compile(model, backend="coda"), stage by stage.

coda        the backend: options, reports, what each region became
normal      Dynamo's graph in aten before autograd, with layouts (trace, autocast, checkpoint)
attention   masks that are provably causal
regions     which nodes become one region
importer    a region as a Graph of ours: rules/ has a rule for each operation, layout and values
            say how tensors lie in matrices
replace     a region as a module that calls its plan
inline      those calls in the graph that goes to the inner compiler
"""
