#!/usr/bin/env bash
# `./quickstart --help` says what it does and does nothing; what it does not know is refused.
set -euo pipefail
folder=$TEST_TMPDIR/empty
mkdir -p "$folder"
cp -L quickstart "$folder"
for option in --help -h; do
  text=$("$folder/quickstart" "$option")
  for part in --once --fresh --stop --help 'From nothing to a trained model'; do
    grep -qF -- "$part" <<<"$text" || { echo "$option does not say $part: $text" >&2; exit 1; }
  done
  if grep -q 'set -euo' <<<"$text"; then echo "$option prints its code" >&2; exit 1; fi
done
if "$folder/quickstart" --hep 2>"$TEST_TMPDIR/error"; then echo "--hep is taken" >&2; exit 1; fi
grep -q -- '--hep is none of --once' "$TEST_TMPDIR/error"
[ "$(ls "$folder")" = quickstart ] || { echo "it did something: $(ls "$folder")" >&2; exit 1; }
