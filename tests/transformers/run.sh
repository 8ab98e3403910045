#!/usr/bin/env bash
# run.sh TEST.py ARGUMENT...: runs a test with transformers as tools/transformers.lock pins it, which lies beside the sources: it is
# found through the link of the test's file.
set -euo pipefail
test=$(readlink -f "$1")
shift
packages="$(cd "$(dirname "$test")/../.." && pwd)/.transformers"
[ -d "$packages/transformers" ] || { echo "$packages is not there: run tools/fetch_deps transformers" >&2; exit 1; }
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
# Where libraries of NVIDIA lie that torch names, and what stands in for those that no CPU calls (make_torch).
libraries=$packages/stubs:$(readlink -f "$packages/../.deps")/nvidia/cu13/lib:$(readlink -f "$packages/../.deps")/nvidia/nccl/lib
HOME=$home HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$packages LD_LIBRARY_PATH=$libraries /usr/bin/python3 "$test" "$@"
