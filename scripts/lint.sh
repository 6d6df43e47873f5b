#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs all checks of the sources except tests. A failed check does not stop the others.
# Usage: lint.sh BUILD [JOBS]; BUILD must be configured.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
build=$1
jobs=${2:-$(nproc)}

status=0
python3 scripts/check_layers.py || status=1
python3 scripts/check_lengths.py || status=1
python3 scripts/check_text.py || status=1
python3 lab/tables.py --check || status=1
scripts/format.sh --check || status=1
python3 scripts/check_headers.py "$build" "$jobs" || status=1
python3 scripts/tidy.py "$build" "$jobs" || status=1
exit $status
