# SPDX-License-Identifier: Apache-2.0
"""The document of the GPU tests' last run is made of ctest's report and of the test program's own
alike, names the device, counts what passed under each target, and is left alone where no test ran.
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

_SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "gpu_results.py"

_OF_CTEST = """<testsuite name="Linux">
<testcase name="gpu.Device.IsNamed" status="run"><system-out>device: NVIDIA H200, driver
</system-out></testcase>
<testcase name="gpu.Models/PlanPrograms.AgreeWithFloat64/llama" status="run"/>
<testcase name="gpu.Models/PlanPrograms.AgreeWithFloat64/gpt2" status="fail"><failure/></testcase>
<testcase name="gpu.SameBits.ForEveryTile" status="notrun"><skipped/></testcase>
</testsuite>"""

_OF_THE_PROGRAM = """<testsuites><testsuite name="Device">
<testcase name="IsNamed" classname="Device" status="run" result="completed">
<properties><property name="device" value="NVIDIA H200, driver"/></properties></testcase>
</testsuite><testsuite name="Models/PlanPrograms">
<testcase name="A/llama" classname="Models/PlanPrograms" status="run" result="completed"/>
<testcase name="A/gpt2" classname="Models/PlanPrograms" status="run" result="completed">
<failure/></testcase></testsuite><testsuite name="SameBits">
<testcase name="ForEveryTile" classname="SameBits" status="run" result="skipped"/>
</testsuite></testsuites>"""


class GpuResults(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.out = self.root / "results.md"

    def make(self, report, *arguments):
        path = self.root / "report.xml"
        path.write_text(report)
        self.run_script([str(path)], *arguments)

    def run_script(self, reports, *arguments):
        command = [sys.executable, str(_SCRIPT), *reports, "--out", str(self.out), "--commit",
                   "abc", "--date", "2026-01-02", *arguments]
        run = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(run.stdout, "")

    def test_both_reports_make_the_same_document(self):
        self.make(_OF_CTEST)
        text = self.out.read_text()
        for line in ("| device | NVIDIA H200, driver |", "| date | 2026-01-02 |",
                     "| commit | abc |", "| sm90 | 2 passed, 1 failed, 1 skipped |"):
            self.assertIn(line + "\n", text)
        self.assertRegex(text, r"\| PlanPrograms \| 1 passed, 1 failed \| each program of the")
        self.make(_OF_THE_PROGRAM)
        self.assertEqual(self.out.read_text(), text)

    def test_sanitizers_are_summed_up(self):
        memcheck = self.root / "memcheck.txt"
        memcheck.write_text("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n")
        racecheck = self.root / "racecheck.txt"
        racecheck.write_text("========= RACECHECK SUMMARY: 0 hazards displayed (0 errors)\n")
        self.make(_OF_CTEST, "--sanitizer", str(memcheck), str(racecheck))
        self.assertIn("| memcheck | 0 errors |\n| racecheck | 0 hazards displayed (0 errors) |\n",
                      self.out.read_text())

    def test_shards_are_added_up(self):
        reports = []
        for shard in range(2):
            path = self.root / f"shard{shard}.xml"
            status = ["run", "notrun"][shard], ["notrun", "run"][shard]
            path.write_text("<testsuites>" + "".join(
                f'<testcase name="{name}" classname="SameBits" status="{s}" result="completed"/>'
                for name, s in zip("AB", status)) + "</testsuites>")
            reports.append(str(path))
        self.run_script(reports)
        self.assertIn("| sm90 | 2 passed, 0 failed |\n", self.out.read_text())

    def test_each_target_has_a_column(self):
        (self.root / "sm90.xml").write_text(_OF_CTEST)
        (self.root / "sm80.xml").write_text(_OF_CTEST.replace("Models/", "").replace(
            "gpu.SameBits", "gpu.EightBits"))
        (self.root / "none.xml").write_text(
            '<testsuite><testcase name="gpu.A.B" status="notrun"/></testsuite>')
        self.run_script([f"{t}={self.root / t}.xml" for t in ("sm90", "sm80", "none")])
        text = self.out.read_text()
        for line in ("| tests | sm90 | sm80 | of |", "| sm80 | 2 passed, 1 failed, 1 skipped |",
                     "| Device | 1 passed | 1 passed | the GPU of the run |"):
            self.assertIn(line + "\n", text)
        self.assertRegex(text, r"\n\| SameBits \| 1 skipped \|  \| the same bits")
        self.assertRegex(text, r"\n\| EightBits \|  \| 1 skipped \| GEMMs with 8-bit operands")
        self.assertNotIn("none", text)

    def test_without_a_gpu_the_last_document_stays(self):
        self.out.write_text("last\n")
        self.make('<testsuite><testcase name="gpu.Device.IsNamed" status="notrun"/></testsuite>')
        self.assertEqual(self.out.read_text(), "last\n")


if __name__ == "__main__":
    unittest.main()
