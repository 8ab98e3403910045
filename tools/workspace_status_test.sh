#!/usr/bin/env bash
# workspace_status_test.sh WORKSPACE_STATUS: which files of a tree change the build version, and which do not.
set -euo pipefail
root=$TEST_TMPDIR/tree
mkdir -p "$root/tools"
cp "$1" "$root/tools/workspace_status"
cd "$root"
failed=0 written=0

digest() {
  local line
  line=$(tools/workspace_status)
  if [[ ! $line =~ ^STABLE_LEGOAI_SOURCES\ ([0-9a-f]{12})$ ]]; then echo "no digest: $line" >&2; exit 1; fi
  echo "${BASH_REMATCH[1]}"
}

# expect WHAT FILE: FILE, when it appears, and when its text changes.
expect() {
  local before after
  for when in new changed; do
    before=$(digest)
    mkdir -p "$(dirname "$2")"
    written=$((written + 1))
    echo "$written" > "$2"
    after=$(digest)
    if [ "$1" = other ] && [ "$before" = "$after" ]; then echo "FAILED: $2, $when, gives the same version"; failed=1; fi
    if [ "$1" = same ] && [ "$before" != "$after" ]; then echo "FAILED: $2, $when, gives another version"; failed=1; fi
  done
}

for file in core/recipe/recipe.cc core/mesh/mesh.h core/hardware/catalog/devices/h200.txtpb planner/plan.cc \
  planner/autosac/policy.h proto/legoai/v1/plan.proto proto/text.cc simulator/cost/roofline.cc worker/train/trainer.cc \
  worker/comm/cuda/dropout.cu; do
  expect other "$file"
done
for file in core/recipe/recipe_test.cc core/schedule/testdata/recorded.csv planner/testing/some_space.cc planner/plan_test.cc \
  planner/BUILD server/fleet/planning.cc docs/planner/plan.cc README.md; do
  expect same "$file"
done

before=$(digest)
mv planner/plan.cc planner/plans.cc
if [ "$before" = "$(digest)" ]; then echo "FAILED: a file that is renamed gives the same version"; failed=1; fi
exit "$failed"
