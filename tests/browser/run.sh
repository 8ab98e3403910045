#!/usr/bin/env bash
# run.sh SERVER TEST.mjs: runs a test of the page with node's own runner. The built page and its packages lie beside the sources,
# linked by tools/build_web: this script is found there through the links of the test's run files.
set -euo pipefail
server=$(readlink -f "$1")
test=$(readlink -f "$2")
page="$(dirname "$test")/../../dashboards/web"
for needed in "$page/dist/index.html" "$page/node_modules/playwright-core/package.json"; do
  [ -e "$needed" ] || { echo "$needed is not there: run tools/build_web" >&2; exit 1; }
done
command -v chromium >/dev/null || { echo "chromium is missing: run tools/setup" >&2; exit 1; }
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
HOME=$home SERVER=$server PAGE=$(readlink -f "$page") node --test --test-reporter=spec "$test"
