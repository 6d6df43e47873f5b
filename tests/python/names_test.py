# SPDX-License-Identifier: Apache-2.0
"""The backend by its name, in processes that do not import coda_cpp: torch.compile, accelerate and
the Trainer find it by the entry points of the installed package. Wrong options are errors where
torch.compile is called."""

import importlib.metadata
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import tomllib
import unittest

import coda_cpp

_PACKAGES = str(pathlib.Path(coda_cpp.__file__).parents[1])
_PROJECT = pathlib.Path(__file__).parents[2] / "pyproject.toml"


def _entry_points() -> str:
    """As the installed package says them."""
    groups = tomllib.loads(_PROJECT.read_text())["project"]["entry-points"]
    return "".join(f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in names.items())
                   for group, names in groups.items())


class Names(unittest.TestCase):
    def _run(self, program, **environment):
        with tempfile.TemporaryDirectory() as folder:
            paths = [_PACKAGES, os.environ.get("PYTHONPATH", "")]
            if not importlib.metadata.entry_points(group="torch_dynamo_backends", name="coda"):
                facts = pathlib.Path(folder) / "coda_cpp-0.dist-info"
                facts.mkdir()
                (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: coda_cpp\n"
                                                "Version: 0\n")
                (facts / "entry_points.txt").write_text(_entry_points())
                paths.insert(0, folder)
            run = subprocess.run(
                [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True,
                cwd=folder, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths),
                                 "OMP_NUM_THREADS": "1", **environment})
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stdout

    def test_torch_compile_takes_the_name_and_checks_options_at_once(self):
        said = self._run("""
            import sys, torch
            assert "coda_cpp" not in sys.modules and "coda" in torch._dynamo.list_backends()
            model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.SiLU())
            for options in ({"fp8": True}, {"products": "fp9"}, {"strict": "yes"}):
                for compile in (lambda **n: torch.compile(model, **n), model.compile):
                    try:
                        compile(backend="coda", options=options)
                        print("nothing is wrong")
                    except ValueError as error:
                        print(error)
            compiled = torch.compile(model, backend="coda", options={"inner": "aot_eager"})
            x = torch.randn(3, 8)
            assert torch.allclose(compiled(x), model(x)) and "coda_cpp" in sys.modules
            """)
        lines = said.splitlines()
        self.assertEqual(len(lines), 6)
        for i, words in enumerate(("no option fp8", "'products' is 'fp9'", "'strict' is 'yes'")):
            for line in lines[2 * i:2 * i + 2]:
                self.assertIn(words, line)
                self.assertNotIn("report", line)

    def test_the_trainer_takes_the_name(self):
        said = self._run("""
            import sys, tempfile, torch
            from transformers import HfArgumentParser, Trainer, TrainingArguments

            class Model(torch.nn.Module):
                def __init__(self):
                    super().__init__()
                    self.embedding, self.head = torch.nn.Embedding(64, 32), torch.nn.Linear(32, 64)

                def forward(self, input_ids, labels):
                    logits = self.head(torch.nn.functional.silu(self.embedding(input_ids)))
                    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
                    return {"loss": loss}

            torch.manual_seed(0)
            model = Model()
            folder = tempfile.mkdtemp()
            arguments, = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses([
                "--output_dir", folder, "--torch_compile_backend", "coda", "--max_steps", "2",
                "--per_device_train_batch_size", "2", "--report_to", "none", "--use_cpu",
                "--save_strategy", "no", "--disable_tqdm", "True"])
            rows = torch.randint(0, 64, (8, 16))
            trainer = Trainer(model, arguments, train_dataset=[
                {"input_ids": row, "labels": row} for row in rows])
            trainer.train()
            print(trainer.accelerator.state.dynamo_plugin.to_kwargs()["backend"],
                  "coda_cpp" in sys.modules)
            """, PATH=os.defpath)  # Inductor, which the name chooses, needs a compiler on a CPU
        self.assertIn("coda True", said)

    def test_accelerate_refuses_other_names_as_before(self):
        said = self._run("""
            import copy, pickle, torch
            from accelerate.utils import DynamoBackend, TorchDynamoPlugin
            coda = DynamoBackend("CODA")
            assert DynamoBackend.list()[-1] == coda.value == "CODA"
            assert copy.deepcopy(coda) is pickle.loads(pickle.dumps(coda)) is coda
            try:
                TorchDynamoPlugin(backend="codas")
            except ValueError as error:
                print(error)
            """)
        self.assertIn("'CODAS' is not a valid DynamoBackend", said)

    def test_an_import_does_without_pytorchs_own_loading(self):
        self._run("""
            import coda_cpp, torch
            from accelerate.utils import TorchDynamoPlugin
            assert TorchDynamoPlugin(backend="coda").to_kwargs() == {"backend": "coda"}
            torch.compile(torch.nn.Linear(4, 4), backend="coda", options={"inner": "aot_eager"})(
                torch.randn(2, 4))
            """, TORCH_DEVICE_BACKEND_AUTOLOAD="0")


if __name__ == "__main__":
    unittest.main()
