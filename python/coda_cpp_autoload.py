# SPDX-License-Identifier: Apache-2.0
"""prepare(), which PyTorch runs at its own import, through the entry point `torch.backends`.

- torch.compile finds backends by the entry points of `torch_dynamo_backends`; options it hands
  over only when the model is called. Here its wrapper checks those of "coda" at once, keeps
  messages from ending the graph, and starts the processes that compile for a GPU.
- Hugging Face's accelerate has a fixed list of names, DynamoBackend, on which the Trainer's
  `--torch_compile_backend coda` fails. Here the list gets a name more when it is imported.

This module runs at each `import torch`, so it imports coda_cpp only when coda_cpp is used.
"""

import functools
import importlib.abc
import importlib.util
import sys

_MODULE = "accelerate.utils.dataclasses"


def _extend(module):
    """Adds the member CODA, in the same way as the enumeration creates its members. Unknown names
    stay errors."""
    backends = getattr(module, "DynamoBackend", None)
    if backends is None or "CODA" in backends.__members__:
        return
    member = str.__new__(backends, "CODA")
    member._name_, member._value_, member.__objclass__ = "CODA", "CODA", backends
    member._sort_order_ = len(backends.__members__)
    backends._member_map_["CODA"] = backends._value2member_map_["CODA"] = member
    backends._member_names_.append("CODA")
    type.__setattr__(backends, "CODA", member)


class _WhenImported(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_extend(module):
                run(module)
                _extend(module)

            spec.loader.exec_module = run_and_extend
        return spec


def _checking(make):
    @functools.wraps(make)
    def make_and_check(wrapper, *arguments, **named):
        make(wrapper, *arguments, **named)
        if wrapper.compiler_name == "coda":
            from coda_cpp.torch_backend import coda, messages, options

            messages.skip_messages()
            chosen = options.checked(wrapper.kwargs.get("options"), wrapper.kwargs.get("mode", ""))
            if sys.modules["torch"].cuda.is_initialized():
                coda.start_workers(chosen.inner)

    make_and_check.checks_coda = True
    return make_and_check


def prepare():
    """Prepares PyTorch and accelerate. May be called several times. Does nothing if their internals
    have changed."""
    wrapper = getattr(sys.modules.get("torch"), "_TorchCompileWrapper", None)
    if wrapper is not None and not hasattr(wrapper.__init__, "checks_coda"):
        wrapper.__init__ = _checking(wrapper.__init__)
    if _MODULE in sys.modules:
        _extend(sys.modules[_MODULE])
    elif not any(isinstance(finder, _WhenImported) for finder in sys.meta_path):
        sys.meta_path.insert(0, _WhenImported())
