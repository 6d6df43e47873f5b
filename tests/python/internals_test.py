# SPDX-License-Identifier: Apache-2.0
"""The internals of PyTorch that the package uses: each is in the oldest supported version, and each
call fits its parameters there. CI has one newer version only, where a call may take a parameter
that the oldest does not have; then nothing is fused there."""

import ast
import importlib
import inspect
import pathlib
import unittest

import torch

import coda_cpp

_OLDEST = "2.11."
_PACKAGE = pathlib.Path(coda_cpp.__file__).parent
# Modules without an underscore in their names that PyTorch changes like private ones.
_UNSTABLE = ("torch.fx.passes.", "torch.fx.experimental.", "torch.fx.traceback.")
_INTERNALS = """
torch._C.DisableTorchFunction
torch._C.DispatchKey
torch._C.DispatchKeySet
torch._C._AutoDispatchBelowAutograd
torch._C._DisableAutocast
torch._C._ExcludeDispatchKeyGuard
torch._C._after_autograd_keyset
torch._C._autograd._get_data_attr
torch._C._cuda_getCurrentRawStream
torch._C._cuda_isCurrentStreamCapturing
torch._C._dispatch_has_kernel_for_dispatch_key
torch._C._dynamo.guards._empty_strided_cpu
torch._C._dynamo.guards._empty_strided_cuda
torch._C._functorch.is_functorch_wrapped_tensor
torch._C._is_any_autocast_enabled
torch._C._log_api_usage_once
torch._C._set_grad_enabled
torch._assert_async
torch._dynamo.config.ignore_logging_functions
torch._dynamo.config.optimize_ddp
torch._dynamo.exc.RestartAnalysis (*args, restart_reason=None)
torch._dynamo.exc.ShortenTraceback (*args, first_useful_frame, **kwargs)
torch._dynamo.list_backends (exclude_tags=('debug', 'experimental'))
torch._dynamo.lookup_backend (compiler_fn)
torch._dynamo.register_backend (compiler_fn=None, name=None, tags=())
torch._dynamo.reset ()
torch._dynamo.source.ConstantSource (source_name)
torch._dynamo.utils._disable_saved_tensors_hooks_during_tracing ()
torch._dynamo.utils.counters
torch._functorch.config.patch (arg1=None, arg2=None, **kwargs)
torch._grouped_mm
torch._guards.TracingContext (fake_mode)
torch._guards.TracingContext.try_get ()
torch._guards.tracing (context)
torch._inductor.async_compile.maybe_warm_pool ()
torch._inductor.compile_fx.compile_fx (model_, example_inputs_, inner_compile=None, \
config_patches=None, decompositions=None, ignore_shape_env=False)
torch._inductor.config.triton
torch._inductor.config.triton.cudagraphs
torch._inductor.list_mode_options (mode=None, dynamic=None)
torch._ops.HigherOrderOperator (name, *, cacheable=False)
torch._ops.OpOverload (overloadpacket, op, op_dk, schema, tags)
torch._ops.OperatorBase ()
torch._subclasses.fake_tensor.FakeTensor (fake_mode, elem, device, constant=None, \
real_tensor=None, pytype=None, dispatch_keys=None)
torch.amp.autocast_mode._enter_autocast (*vals)
torch.amp.autocast_mode._exit_autocast (mode)
torch.autograd.Variable._execution_engine.run_backward
torch.autograd.forward_ad._current_level
torch.cuda._sleep (cycles)
torch.fx._lazy_graph_module._make_graph_module (*args, graph_module_cls=None, **kwargs)
torch.fx._lazy_graph_module._use_lazy_graph_module (should_use)
torch.fx.experimental.proxy_tensor.make_fx (f, decomposition_table=None, tracing_mode='real', \
_allow_non_fake_inputs=False, *, pre_dispatch=False, record_module_stack=False, \
_allow_fake_constant=False, _error_on_data_dependent_ops=True, record_stack_traces=False, \
proxy_module_inputs=False, _disable_torch_fn_metadata_mode=False)
torch.fx.passes.utils.fuser_utils.erase_nodes (gm, nodes)
torch.fx.passes.utils.fuser_utils.fuse_as_graphmodule (gm, nodes, module_name, \
partition_lookup_table=None, *, always_return_tuple=False)
torch.fx.traceback.preserve_node_meta (enable=True)
torch.nn.parallel.DistributedDataParallel._get_active_ddp_module ()
torch.utils._python_dispatch.TorchDispatchMode (_dispatch_key=None)
torch.utils._python_dispatch.is_traceable_wrapper_subclass (t)
torch.utils._pytree.tree_flatten (tree, is_leaf=None)
torch.utils._pytree.tree_leaves (tree, is_leaf=None)
torch.utils._pytree.tree_map (func, tree, *rests, is_leaf=None)
torch.utils._pytree.tree_unflatten (leaves, treespec)
"""


def _parameters(text):
    """The signature that the text describes."""
    made = {}
    exec(f"def function{text}: pass", made)
    return inspect.signature(made["function"])


_KNOWN = {name: _parameters(text) if text else None
          for name, _, text in (line.partition(" ") for line in _INTERNALS.strip().split("\n"))}


def _is_internal(name):
    return not name.startswith(("torch.ops.", "torch.__")) and (
        "._" in name or name.startswith(_UNSTABLE))


class _Uses(ast.NodeVisitor):
    """The internals that a file names, and its calls of them."""

    def __init__(self, tree):
        self._imported, self.names, self.calls = {}, set(), []
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                self._imported |= {alias.asname or alias.name.partition(".")[0]:
                                   alias.name if alias.asname else alias.name.partition(".")[0]
                                   for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found = {alias.asname or alias.name: f"{node.module}.{alias.name}"
                         for alias in node.names}
                self._imported |= found
                self.names |= set(filter(self._is_torchs, found.values()))
        self.visit(tree)

    @staticmethod
    def _is_torchs(name):
        return name.startswith("torch.") and _is_internal(name) and not inspect.ismodule(
            _object(name))

    def _name(self, node):
        if isinstance(node, ast.Attribute):
            return f"{self._name(node.value)}.{node.attr}"
        return self._imported.get(node.id, "") if isinstance(node, ast.Name) else ""

    def visit_Attribute(self, node):
        if self._is_torchs(name := self._name(node)):
            self.names.add(name)
        else:
            self.generic_visit(node)

    def visit_Call(self, node):
        if _is_internal(name := self._name(node.func)) and name.startswith("torch."):
            self.calls.append((name, node))
        self.generic_visit(node)


def _object(name):
    """What has the name; None if nothing has it."""
    found, path = torch, "torch"
    for part in name.split(".")[1:]:
        path += f".{part}"
        if not hasattr(found, part):
            try:
                importlib.import_module(path)
            except ImportError:
                return None
        found = getattr(found, part)
    return found


class Internals(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.uses = {path: _Uses(ast.parse(path.read_text())) for path in _PACKAGE.rglob("*.py")}

    def test_each_is_known(self):
        names = set().union(*(uses.names for uses in self.uses.values()))
        self.assertEqual(sorted(names - set(_KNOWN)), [], "look these up in the oldest PyTorch, "
                         "list them here, and run `make test-pytorch`")
        self.assertEqual(sorted(set(_KNOWN) - names), [], "these are not used any more")

    def test_each_call_fits_the_oldest_pytorch(self):
        calls = 0
        for path, uses in self.uses.items():
            for name, call in uses.calls:
                signature = _KNOWN.get(name)
                if signature is None or any(isinstance(a, ast.Starred) for a in call.args) or any(
                        keyword.arg is None for keyword in call.keywords):
                    continue
                calls += 1
                with self.subTest(f"{path.name}:{call.lineno}: {name}"):
                    signature.bind(*call.args, **{k.arg: k.value for k in call.keywords})
        self.assertGreater(calls, 20)

    def test_pytorch_has_each(self):
        for name, known in _KNOWN.items():
            if name.startswith("torch._C._cuda") and torch.version.cuda is None:
                continue
            with self.subTest(name):
                found = _object(name)
                self.assertIsNotNone(found)
                if known is not None and torch.__version__.startswith(_OLDEST):
                    self.assertEqual([(p.name, p.kind) for p in known.parameters.values()],
                                     [(p.name, p.kind)
                                      for p in inspect.signature(found).parameters.values()])


if __name__ == "__main__":
    unittest.main()
