#!/usr/bin/env bash
# damage_test.sh SERVER: a store that is damaged while the server runs ends it with the reason; it refuses to start with it (exit
# code 1) and leaves its files alone; --repair says what it saves and how that is put in place, and then the server starts.
set -euo pipefail
server=$1
folder=$(mktemp -d)
store=$folder/data/legoai.db
pid=""
trap '[ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null || true; rm -rf "$folder"' EXIT
failed() { echo "$1"; cat "$folder/log" 2>/dev/null || true; exit 1; }

start() {
  "$server" --sim=/bin/true --data="$folder/data" --listen=127.0.0.1:0 --http=127.0.0.1:0 >"$folder/log" 2>&1 & pid=$!
  for _ in $(seq 600); do
    ! grep -q '"http_port":' "$folder/log" || break
    kill -0 "$pid" 2>/dev/null || failed "the server ended"
    sleep 0.1
  done
  port=$(sed -n 's/.*"http_port":\([0-9]*\).*/\1/p' "$folder/log")
}
jobs() {  # a request to which the server reads its store
  exec 3<>"/dev/tcp/127.0.0.1/$port" || return 0
  printf 'GET /v1/projects/default/jobs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
  cat <&3 || true
  exec 3>&-
}
code_of() { local code=0; "$@" >"$folder/log" 2>&1 || code=$?; echo "$code"; }

start
jobs | grep -q "^HTTP/1.1 200" || failed "the jobs are not listed"
kill -TERM "$pid"
wait "$pid" || failed "the server ended with an error"
start
# All pages but the first.
dd if=/dev/urandom of="$store" bs=4096 seek=1 count=$(($(stat -c %s "$store") / 4096 - 1)) conv=notrunc status=none
jobs >/dev/null
code=0
wait "$pid" || code=$?
pid=""
[ "$code" -eq 1 ] || failed "the server whose store was damaged ended with $code"
grep -q '"level":"error".*it is damaged.*--repair' "$folder/log" || failed "the log does not say why the server ended"

before=$(sha256sum "$folder"/data/legoai.db "$folder"/data/legoai.db-wal 2>/dev/null || true)
[ "$(code_of timeout 60 "$server" --sim=/bin/true --data="$folder/data" --listen=127.0.0.1:0 --http=)" -eq 1 ] ||
  failed "a server with a damaged store does not end with 1"
grep -q 'it is damaged.*--repair' "$folder/log" || failed "the message does not say what to do"
[ "$(code_of timeout 60 "$server" --data="$folder/data" --repair)" -eq 0 ] || failed "--repair failed"
after=$(sha256sum "$folder"/data/legoai.db "$folder"/data/legoai.db-wal 2>/dev/null || true)
[ "$before" = "$after" ] || failed "the damaged files were changed"
grep '^  mv ' "$folder/log" >"$folder/swap" || failed "--repair does not say how to go on"
bash -e "$folder/swap"
start
jobs | grep -q "^HTTP/1.1 200" || failed "what was saved does not serve"
kill -TERM "$pid"
wait "$pid" || failed "the server with the saved store ended with an error"
pid=""
