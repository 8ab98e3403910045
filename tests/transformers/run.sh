#!/usr/bin/env bash
# run.sh TEST.py ARGUMENT...: runs a test with transformers as tools/transformers.lock pins it, which lies beside the sources: it is
# found through the link of the test's file.
set -euo pipefail
test=$(readlink -f "$1")
shift
root=$(cd "$(dirname "$test")/../.." && pwd)
packages=$root/.transformers nvidia=$(readlink -f "$root/.deps")/nvidia
[ -d "$packages/transformers" ] || { echo "$packages is not there: run tools/fetch_deps transformers" >&2; exit 1; }
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
# Where libraries of NVIDIA lie that torch names, and what stands in for those that no CPU calls (make_torch).
export LD_LIBRARY_PATH=$packages/stubs:$nvidia/cu13/lib:$nvidia/nccl/lib
HOME=$home HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$packages /usr/bin/python3 "$test" "$@"
