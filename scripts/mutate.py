#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants the bugs of tests/mutants/ one at a time and prints the bugs that no test notices.

Usage: mutate.py [--check | --list] [--build FOLDER] [--jobs N] [WORD...]

With words, only mutants whose file or description contains one of the words. --check only checks
that every mutant still applies. A file of tests/mutants/ has entries as

    src/train/trainer.cc: clipping is ignored
    tests: tools_test Trajectory.*
    -              clip_scale(report.norm, settings_.clip));
    +              1.0);

The lines after "-" must occur once in the file, ignoring indentation and comments behind code; the
lines after "+" replace them. "tests:" names a test program and a GoogleTest filter;
several such lines are tried in order. Without a "tests:" line all tests of the folder's program
run. The program "python" is for a test in tests/python, by its unittest name. Such a test needs the
package's extension module built in this tree (README.md), and nothing is compiled for it.

The sources are copied to FOLDER/source, where bugs are planted, and built incrementally in
FOLDER/source/build. All tests must pass there before a bug is planted. A mutant is noticed if a
test fails, crashes, or takes more than five times as long as all tests of its program (at least a
minute). A mutant that does not compile is an error of the list. The exit status is 1 if a mutant
survives.
"""

import argparse
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

from sources import ROOT, all_files

LIST = ROOT / "tests/mutants"
TIMEOUT_S = 900
_COMMENT = re.compile(r"(?<=\S)\s+(?://|# ).*$")  # behind code
_ANY_COMMENT = r"(?:[ \t]+(?://|# )[^\n]*)?"
PYTHON = "python"


@dataclasses.dataclass
class Mutant:
    file: str
    breaks: str  # the description of the bug
    tests: list[tuple[str, str]]  # program, filter
    old: str
    new: str
    place: str  # of the entry, for messages

    def name(self) -> str:
        return f"{self.file}: {self.breaks}"


def parse(path: pathlib.Path) -> list[Mutant]:
    mutants = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        place = f"{path.relative_to(path.parents[2])}:{number}"
        if not line.strip() or line.startswith("#"):
            continue
        if line[0] in "-+":
            if not mutants:
                raise ValueError(f"{place}: a change before the first file")
            side = "old" if line[0] == "-" else "new"
            setattr(mutants[-1], side, getattr(mutants[-1], side) + line[1:].rstrip() + "\n")
        elif line.startswith("tests: "):
            program, _, tests = line.removeprefix("tests: ").partition(" ")
            mutants[-1].tests.append((program, tests.strip() or "*"))
        else:
            file, colon, breaks = line.partition(": ")
            if not colon or not breaks.strip():
                raise ValueError(f"{place}: not 'FILE: what breaks'")
            mutants.append(Mutant(file, breaks.strip(), [], "", "", place))
    for m in mutants:
        m.old, m.new = m.old.strip(), m.new.strip()
        if not m.tests:
            folder, name = m.file.split("/")[:2]
            m.tests = [("gpu_test" if folder == "device" else name + "_test", "*")]
    return mutants


def read_list(root: pathlib.Path = ROOT) -> list[Mutant]:
    return [m for path in sorted((root / "tests/mutants").glob("*.txt")) for m in parse(path)]


def apply(m: Mutant, root: pathlib.Path) -> str:
    """The file's text with the bug. Raises ValueError if its place cannot be found."""
    path = root / m.file
    if not path.is_file():
        raise ValueError(f"{m.place}: there is no {m.file}")
    text = path.read_text()
    # Whole lines, with any indentation and any comments at their ends.
    pattern = r"\s*\n\s*".join(
        re.escape(_COMMENT.sub("", line.strip())) + _ANY_COMMENT for line in m.old.splitlines())
    found = re.findall(pattern, text) if m.old else []
    if len(found) != 1:
        raise ValueError(
            f"{m.place}: its text stands {len(found)} times in {m.file}, not once: '{m.name()}'")
    if m.old == m.new:
        raise ValueError(f"{m.place}: nothing changes")
    return text.replace(found[0], m.new)


def problems_of(mutants: list[Mutant], root: pathlib.Path = ROOT) -> list[str]:
    problems = []
    for m in mutants:
        try:
            apply(m, root)
        except ValueError as error:
            problems.append(str(error))
    return problems


class Scratch:
    """A copy of the sources with its own build folder."""

    def __init__(self, folder: pathlib.Path, jobs: int):
        # As in the sources' own tree, so that ccache finds objects compiled there.
        self.source = folder / "source"
        self.build = self.source / "build"
        self.jobs = jobs
        self.environment = dict(os.environ, OMP_WAIT_POLICY="passive", CCACHE_IGNOREOPTIONS="-w",
                                VIRTUAL_ENV=str(self.source / ".venv"))  # where tests find NVRTC
        self.limits: dict[str, float] = {}  # time limit of each test program, once it has run
        self.forks: subprocess.Popen | None = None  # unittest_forks.py, once a test needs it

    def refresh(self) -> None:
        """Updates the copy from the sources. Unchanged files keep their modification time."""
        wanted = {path.relative_to(ROOT) for path in all_files()}
        for name in wanted:
            copy = self.source / name
            if copy.is_file() and copy.read_bytes() == (ROOT / name).read_bytes():
                continue
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy)
        for copy in self.source.rglob("*"):
            name = copy.relative_to(self.source)
            if copy.is_file() and name not in wanted and name.parts[0] not in (".venv", "build"):
                copy.unlink()
        venv = self.source / ".venv"
        if (ROOT / ".venv").exists() and not venv.is_symlink():
            venv.symlink_to((ROOT / ".venv").resolve())
        for module in (ROOT / "python/coda_cpp").glob("_core*.so"):
            link = self.source / module.relative_to(ROOT)
            link.unlink(missing_ok=True)
            link.symlink_to(module.resolve())

    def configure(self) -> None:
        # A planted bug may leave a parameter unused, which must not be an error.
        self.command(["cmake", "-G", "Ninja", "-S", str(self.source), "-B", str(self.build),
                      "-DCMAKE_CXX_FLAGS=-w"])

    def command(self, words: list[str],
                timeout: float | None = None) -> subprocess.CompletedProcess:
        """Runs a command and captures its output. Raises CalledProcessError or TimeoutExpired."""
        return subprocess.run(words, cwd=self.source, env=self.environment, timeout=timeout,
                              text=True, check=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)

    def compile(self, programs: set[str]) -> None:
        programs = programs - {PYTHON}
        if not programs:
            return
        if not (self.build / "build.ninja").is_file():
            self.configure()
        self.command(["ninja", "-C", str(self.build), "-j", str(self.jobs), *sorted(programs)])

    def path(self, program: str) -> str:
        return str(next(p for p in (self.build / program, self.build / "tools" / program)
                        if p.is_file()))

    def has_tests(self, program: str, tests: str) -> bool:
        if program == PYTHON:
            return True  # unittest fails for unknown names
        listed = self.command([self.path(program), "--gtest_filter=" + tests, "--gtest_list_tests"])
        return "\n  " in listed.stdout

    def test(self, program: str, tests: str, explain: bool = False) -> bool:
        """Whether the tests pass; skipped tests are an error."""
        if program == PYTHON:
            return self.test_python(tests, explain)
        try:
            said = self.command([self.path(program), "--gtest_filter=" + tests, "--gtest_brief=1",
                                 "--gtest_fail_fast"], self.limits.get(program, TIMEOUT_S)).stdout
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            if explain:
                print(error, error.stdout or "", sep="\n")
            return False
        if "[  SKIPPED ]" in said:
            raise ValueError(f"{program} {tests}: one was skipped")
        return True

    def test_python(self, tests: str, explain: bool) -> bool:
        said = self.build.parent / "unittest.out"
        if self.forks is None:
            paths = os.pathsep.join(str(self.source / name) for name in ("python", "tests/python"))
            self.forks = subprocess.Popen(
                [str(self.source / ".venv/bin/python"), str(ROOT / "scripts/unittest_forks.py"),
                 str(said)], cwd=self.source, text=True, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, env={**self.environment, "PYTHONPATH": paths,
                                             "PYTHONDONTWRITEBYTECODE": "1"})
        self.forks.stdin.write(f"{self.limits.get(PYTHON, TIMEOUT_S)} {tests}\n")
        self.forks.stdin.flush()
        passes = int(self.forks.stdout.readline()) == 0
        if explain and not passes:
            print(said.read_text())
        return passes


def run(mutants: list[Mutant], scratch: Scratch) -> int:
    print("mutate: building what is to be noticed by", flush=True)
    scratch.refresh()
    tests = sorted({test for m in mutants for test in m.tests})
    scratch.compile({program for program, _ in tests})
    for test in tests:
        if not scratch.has_tests(*test):
            sys.exit(f"mutate: {' '.join(test)}: there is no such test")
    for program in sorted({program for program, _ in tests}):
        together = (" " if program == PYTHON else ":").join(
            sorted({t for p, t in tests if p == program}))
        start = time.monotonic()
        if not scratch.test(program, together, explain=True):
            sys.exit(f"mutate: {program} {together} fails before anything is planted")
        scratch.limits[program] = max(60, 5 * (time.monotonic() - start))
    survivors, broken = [], []
    for count, m in enumerate(mutants, 1):
        path = scratch.source / m.file
        right = path.read_text()
        start = time.monotonic()
        try:
            path.write_text(apply(m, scratch.source))
            scratch.compile({program for program, _ in m.tests})
            noticed = next((" ".join(t) for t in m.tests if not scratch.test(*t)), None)
            verdict = f"noticed by {noticed}" if noticed else "SURVIVES"
            if not noticed:
                survivors.append(m)
        except subprocess.CalledProcessError as error:
            verdict = "DOES NOT COMPILE\n" + "\n".join(error.stdout.splitlines()[-20:])
            broken.append(m)
        finally:
            path.write_text(right)
        print(f"{count}/{len(mutants)} {m.name()}: {verdict} ({time.monotonic() - start:.0f} s)",
              flush=True)
    print(f"mutate: {len(mutants)} planted, {len(survivors)} survive"
          + (f", {len(broken)} do not compile" if broken else ""))
    for m in survivors:
        print(f"survives: {m.name()} ({m.place})")
    return 1 if survivors or broken else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only whether every mutant applies")
    parser.add_argument("--list", action="store_true", help="only print the mutants")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build-mutate")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("words", nargs="*", metavar="WORD")
    arguments = parser.parse_args()
    mutants = [m for m in read_list()
               if not arguments.words or any(word in m.name() for word in arguments.words)]
    problems = problems_of(mutants)
    if problems:
        print(*problems, sep="\n")
        print(f"mutate: {len(problems)} of {len(mutants)} mutants do not apply: the code moved, so "
              "plant the same bug where it stands now")
        return 1
    if arguments.check or arguments.list:
        if arguments.list:
            print(*(m.name() for m in mutants), sep="\n")
        print(f"mutate: {len(mutants)} mutants, each applies")
        return 0
    return run(mutants, Scratch(arguments.build.resolve(), arguments.jobs))


if __name__ == "__main__":
    sys.exit(main())
