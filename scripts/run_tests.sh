#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs ctest in a build folder. At the end prints each reason for skipped tests once, and "N passed,
# N failed[, N skipped]". Fails if a test failed, or if there was no test to run. Skipped tests (no
# GPU) are not a failure, except with CODA_NO_SKIPS=1, as in CI, where everything is installed.
# Usage: run_tests.sh BUILD [JOBS [CTEST ARGUMENTS...]]
set -euo pipefail
build=$1
jobs=${2:-$(nproc)}
shift $(($# < 2 ? $# : 2))

# Several tests run at once, so threads that wait at a barrier must yield the processor.
export OMP_WAIT_POLICY=passive
# AddressSanitizer walks 30 frames at each allocation, which is a fifth of the time of its tests. It
# reports where memory was allocated with two frames; run the failed test alone to see all.
export ASAN_OPTIONS=${ASAN_OPTIONS:-malloc_context_size=2}

report=$(cd "$build" && pwd)/test_report.xml
rm -f "$report"
ctest=$(ls .venv/bin/ctest 2>/dev/null || echo ctest)
# ctest's lines, without the lines of starts and without padding dots.
shorten() { sed -u '/^ *Start *[0-9]*: /d; s/ \.\.\.\.*/ .../; s/\.\.\.\*/... */'; }

status=0
"$ctest" --test-dir "$build" -j "$jobs" --timeout 300 --output-on-failure --no-tests=error \
  --output-junit "$report" "$@" | shorten || status=$?

python3 - "$report" "$status" <<'PY'
import os
import re
import sys
import xml.etree.ElementTree as ElementTree

report, status = sys.argv[1], int(sys.argv[2])
try:
    suite = ElementTree.parse(report).getroot()
except (OSError, ElementTree.ParseError) as error:
    sys.exit(f"run_tests: ctest left no report: {error}")
cases = [case.get("status") for case in suite.iter("testcase")]
passed, failed = cases.count("run"), cases.count("fail")
others = len(cases) - passed - failed
reasons = set()
for case in suite.iter("testcase"):
    if case.get("status") not in ("run", "fail"):
        said = re.search(r": Skipped\n(.+)", case.findtext("system-out", ""))
        reasons.add(said[1] if said else "a test that gives no reason: " + case.get("name"))
for reason in sorted(reasons):
    print("skipped:", reason)
print(f"{passed} passed, {failed} failed" + (f", {others} skipped" if others else ""))
if others and os.environ.get("CODA_NO_SKIPS"):
    sys.exit("run_tests: skipped tests fail here (CODA_NO_SKIPS): " + ", ".join(
        case.get("name") for case in suite.iter("testcase")
        if case.get("status") not in ("run", "fail")))
sys.exit(status or (1 if failed or not (passed or reasons) else 0))
PY
