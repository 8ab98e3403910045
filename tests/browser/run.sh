#!/usr/bin/env bash
# run.sh TEST.mjs PROGRAM...: runs a test of the page with node's own runner; the programs are SERVER, and all of them PROGRAMS.
# The built page and its packages lie beside the sources, linked by tools/build_web: they are found through the links of the
# test's files.
set -euo pipefail
test=$(readlink -f "$1")
shift
page="$(dirname "$test")/../../dashboards/web"
for needed in "$page/dist/index.html" "$page/node_modules/playwright-core/package.json"; do
  [ -e "$needed" ] || { echo "$needed is not there: run tools/build_web" >&2; exit 1; }
done
command -v chromium >/dev/null || { echo "chromium is missing: run tools/setup" >&2; exit 1; }
programs=$(readlink -f "$@" | paste -sd:)
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
HOME=$home SERVER=${programs%%:*} PROGRAMS=$programs PAGE=$(readlink -f "$page") node --test --test-reporter=spec "$test"
