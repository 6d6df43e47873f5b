#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs ctest in a build folder and closes with why tests were skipped, each reason once, and "N
# passed, N failed[, N skipped]" from its counts. Fails if a test failed, or if there was none to
# run; where all are skipped with a reason (no GPU), that is no failure. With CODA_NO_SKIPS=1, as in
# CI, where all that tests need is installed, a skipped test is a failure.
# Usage: run_tests.sh BUILD [JOBS [CTEST ARGUMENTS...]]
set -euo pipefail
build=$1
jobs=${2:-$(nproc)}
shift $(($# < 2 ? $# : 2))

# Several tests run at once: threads that wait at a barrier must leave the processor to others.
export OMP_WAIT_POLICY=passive

report=$(cd "$build" && pwd)/test_report.xml
rm -f "$report"
ctest=$(ls .venv/bin/ctest 2>/dev/null || echo ctest)
# ctest's lines, without starts and without the dots that pad them.
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
