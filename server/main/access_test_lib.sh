# Sourced by tokens_test.sh and tls_test.sh: a real server, and `lego` as its users have it. Needs $server, $lego and $folder.
pids=()
trap 'for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done; rm -rf "$folder"' EXIT
unset LEGOAI_TOKEN LEGOAI_TOKEN_FILE LEGOAI_TLS_CA
failed() {
  echo "$1"
  for file in "$folder"/*.log "$folder/out"; do
    [ ! -e "$file" ] || { echo "-- $file"; cat "$file"; }
  done
  exit 1
}

# start ARGUMENTS...: $grpc and $http are where it listens then; its log is server.log.
start() {
  : >"$folder/server.log"  # of the server before
  "$server" --sim=/bin/true --data="$folder/data" --listen=127.0.0.1:0 --http=127.0.0.1:0 "$@" >"$folder/server.log" 2>&1 &
  pids+=($!)
  local line
  for _ in $(seq 600); do
    kill -0 "${pids[-1]}" 2>/dev/null || failed "the server ended"
    if line=$(grep -F '"grpc":' "$folder/server.log"); then
      grpc=$(sed 's/.*"grpc":"\([^"]*\)".*/\1/' <<<"$line")
      http=$(sed 's/.*"http_port":\([0-9]*\).*/\1/' <<<"$line")
      export LEGOAI_SERVER=127.0.0.1:${grpc##*:}
      return 0
    fi
    sleep 0.1
  done
  failed "the server does not come"
}
stop() {
  kill -TERM "${pids[-1]}"
  wait "${pids[-1]}" || failed "the server ended with an error"
  unset 'pids[-1]'
}

# ok COMMAND...: it succeeds; what it prints is in `out`. refused CODE TEXT COMMAND...: it fails so, and says so.
ok() { "$@" >"$folder/out" 2>&1 || failed "failed: $*"; }
refused() {
  local code=0 expected=$1 text=$2
  shift 2
  "$@" >"$folder/out" 2>&1 || code=$?
  [ "$code" -eq "$expected" ] || failed "ended with $code and not $expected: $*"
  grep -qF -- "$text" "$folder/out" || failed "does not say '$text': $*"
}
# eventually COMMAND...: it succeeds within a minute.
eventually() {
  for _ in $(seq 600); do
    if "$@" >"$folder/out" 2>&1; then return 0; fi
    sleep 0.1
  done
  failed "never succeeds: $*"
}
