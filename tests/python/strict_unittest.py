# SPDX-License-Identifier: Apache-2.0
"""unittest's command line, which also prints why tests were skipped. With CODA_NO_SKIPS=1, as in
CI, a skipped test fails, unless it needs a package that only `make test-loops` installs."""

import os
import sys
import unittest

if __name__ == "__main__":
    result = unittest.main(module=None, exit=False).result
    reasons = {why for _, why in result.skipped}
    for why in sorted(reasons):
        print("skipped:", why)
    forbidden = os.environ.get("CODA_NO_SKIPS") and any(
        not why.startswith("not installed: ") for why in reasons)
    sys.exit(not result.wasSuccessful() or bool(forbidden))
