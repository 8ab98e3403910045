#!/usr/bin/env bash
# insecure_test.sh SERVER: a server that other machines would reach refuses to start (exit code 2) unless --insecure is given, for
# gRPC and for HTTP; with it, its log says so at the start and again and again. On loopback addresses it says nothing of it.
set -euo pipefail
server=$1
folder=$(mktemp -d)
pid=""
trap '[ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null || true; rm -rf "$folder"' EXIT
failed() { echo "$1"; cat "$folder/log" 2>/dev/null || true; exit 1; }

refused() {  # refused FLAG ADDRESS OTHER-ARGUMENTS...
  local code=0 flag=$1 address=$2
  shift 2
  timeout 60 "$server" "$flag=$address" "$@" --sim=/bin/true --data="$folder/data" >"$folder/log" 2>&1 || code=$?
  [ "$code" -eq 2 ] || failed "$flag=$address ended with $code"
  grep -qF -- "$flag = $address: can be reached" "$folder/log" || failed "$flag=$address: the message does not say what is wrong"
  grep -q -- "127\.0\.0\.1.*--insecure" "$folder/log" || failed "$flag=$address: the message has not both remedies"
  [ ! -e "$folder/data/legoai.db" ] || failed "$flag=$address: a store was made all the same"
}
for address in 0.0.0.0:0 '[::]:0' 192.0.2.7:0 '[::ffff:0.0.0.0]:0'; do
  refused --listen "$address" --http=
  refused --http "$address" --listen=127.0.0.1:0
done

start() { "$server" --sim=/bin/true --data="$folder/data" "$@" >"$folder/log" 2>&1 & pid=$!; }
stop() { kill -TERM "$pid"; wait "$pid" || failed "the server ended with an error"; pid=""; }
await() {  # await COUNT TEXT
  for _ in $(seq 600); do
    [ "$(grep -cF -- "$2" "$folder/log")" -lt "$1" ] || return 0
    kill -0 "$pid" 2>/dev/null || failed "the server ended"
    sleep 0.1
  done
  failed "'$2' is not $1 times in the log"
}
start --insecure --listen=0.0.0.0:0 --http=127.0.0.1:0 --insecure_reminder=100ms
await 1 '"message":"legoai-server'
await 4 'reached from other machines'
grep -F 'reached from other machines' "$folder/log" | grep -qF '0.0.0.0' || failed "the log does not say which address"
! grep -F 'reached from other machines' "$folder/log" | grep -F '127.0.0.1:0' || failed "the log blames a loopback address"
stop
start --listen=127.0.0.1:0 --http=127.0.0.2:0 --insecure_reminder=100ms
await 1 '"message":"legoai-server'
sleep 0.5
stop
! grep -F 'other machines' "$folder/log" || failed "the log warns of loopback addresses"
