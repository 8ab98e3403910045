#!/usr/bin/env bash
# help_test.sh PROGRAM:FLAG ...: each program's --help lists its own flags with FLAG among them and nothing of libraries, its --version is
# the release, and a word too many is refused (exit code 2).
set -euo pipefail
failed() { echo "$1"; exit 1; }
for one in "$@"; do
  program=${one%%:*}
  help=$("$program" --help || true)
  grep -q -- "--${one#*:} " <<<"$help" || failed "$program --help has no --${one#*:}: $help"
  ! grep -qi "No flags matched\|absl/" <<<"$help" || failed "$program --help: $help"
  version=$("$program" --version || true)
  grep -qx "$(cat VERSION)+[0-9a-f]*" <<<"$version" || failed "$program --version: $version"
  code=0
  "$program" word 2>/dev/null || code=$?
  [ "$code" -eq 2 ] || failed "$program word ended with $code"
done
