#!/usr/bin/env bash
# check_test.sh CHECK_TEST.py: the interpreter of the machine runs it.
set -euo pipefail
exec env PYTHONDONTWRITEBYTECODE=1 python3 "$1"
