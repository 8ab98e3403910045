#!/usr/bin/env bash
# run.sh TEST.py ARGUMENT...: runs a test with transformers as tools/transformers.lock pins it, which lies beside the sources: it is
# found through the link of the test's file.
set -euo pipefail
test=$(readlink -f "$1")
shift
packages="$(dirname "$test")/../../.transformers"
[ -d "$packages/transformers" ] || { echo "$packages is not there: run tools/fetch_deps transformers" >&2; exit 1; }
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
HOME=$home HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$packages /usr/bin/python3 "$test" "$@"
