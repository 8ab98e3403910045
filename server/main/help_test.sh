#!/usr/bin/env bash
# help_test.sh PROGRAM:FLAG:ADDRESS... ...: each program's --help lists its own flags with FLAG among them and nothing of
# libraries, its flags ADDRESS are loopback addresses where nobody gives others, its --version is the release, and a word too
# many, or a negative time for FLAG, is refused (exit code 2).
set -euo pipefail
failed() { echo "$1"; exit 1; }
for one in "$@"; do
  IFS=: read -r program flag addresses <<<"$one"
  help=$("$program" --help || true)
  grep -q -- "--$flag " <<<"$help" || failed "$program --help has no --$flag: $help"
  ! grep -qi "No flags matched\|absl/" <<<"$help" || failed "$program --help: $help"
  for address in ${addresses//:/ }; do
    tr -s '[:space:]' ' ' <<<"$help" | grep -qE -- "--$address \([^)]*\); default: \"127\.0\.0\.1:[0-9]+\";" ||
      failed "$program --$address is open to others unless it is told otherwise: $help"
  done
  version=$("$program" --version || true)
  grep -qx "$(cat VERSION)+[0-9a-f]*" <<<"$version" || failed "$program --version: $version"
  code=0
  "$program" word 2>/dev/null || code=$?
  [ "$code" -eq 2 ] || failed "$program word ended with $code"
  code=0
  refusal=$("$program" "--$flag=-1s" 2>&1) || code=$?
  [ "$code" -eq 2 ] && grep -q -- "--$flag = -1s: must" <<<"$refusal" || failed "$program --$flag=-1s ended with $code: $refusal"
done
