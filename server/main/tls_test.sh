#!/usr/bin/env bash
# tls_test.sh SERVER LEGO AGENT: a server that other machines may reach, with tokens and TLS; agents with certificates of their
# own; new certificates without a new start. The certificates are made here, by openssl.
set -euo pipefail
server=$(realpath "$1") lego=$(realpath "$2") agent=$(realpath "$3")
folder=$(mktemp -d)
source "$(dirname "$0")/access_test_lib.sh"
cd "$folder"

# authority NAME; certificate NAME OF SUBJECT-ALTERNATIVE-NAME.
authority() {
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$1.key" -out "$1.pem" -days 2 \
    -subj "/CN=$1" 2>/dev/null
}
certificate() {
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$1.key" -out "$1.csr" -subj "/CN=$1" 2>/dev/null
  printf 'subjectAltName=%s\n' "$3" >"$1.ext"
  openssl x509 -req -in "$1.csr" -CA "$2.pem" -CAkey "$2.key" -CAcreateserial -out "$1.pem" -days 2 -extfile "$1.ext" 2>/dev/null
}
authority one
authority two
authority agents
certificate first one IP:127.0.0.1,DNS:localhost
certificate second two IP:127.0.0.1,DNS:localhost
certificate elsewhere one DNS:other.example
certificate worker agents DNS:worker
certificate stranger one DNS:stranger
cp first.pem server.pem
cp first.key server.key
tls=(--tls_cert="$folder/server.pem" --tls_key="$folder/server.key")

# What cannot be is said before anything begins.
refuses() {
  local code=0 text=$1
  shift
  timeout 60 "$server" --sim=/bin/true --data="$folder/data" --http= "$@" >"$folder/out" 2>&1 || code=$?
  [ "$code" -eq 2 ] || failed "ended with $code: $*"
  grep -qF -- "$text" "$folder/out" || failed "does not say '$text': $*"
  [ ! -e "$folder/data/legoai.db" ] || failed "a store was made all the same: $*"
}
refuses '--tls_key' --listen=127.0.0.1:0 --tls_cert="$folder/server.pem"
refuses '--tls_cert' --listen=127.0.0.1:0 --tls_key="$folder/server.key"
refuses '--tls_cert' --listen=127.0.0.1:0 --tls_cert="$folder/none.pem" --tls_key="$folder/server.key"
refuses '--tls_key' --listen=127.0.0.1:0 --tls_cert="$folder/server.pem" --tls_key="$folder/second.key"
refuses '--tls_client_ca' --listen=127.0.0.1:0 "${tls[@]}" --tls_client_ca="$folder/server.key"
refuses 'without tokens whoever reaches it' --listen=0.0.0.0:0 "${tls[@]}"
refuses 'without TLS whoever listens on the way' --listen=0.0.0.0:0 --tokens

# Reachable, since it is protected.
start --listen=0.0.0.0:0 --http=0.0.0.0:0 --tokens "${tls[@]}" --tls_client_ca="$folder/agents.pem"
! grep -qF 'other machines' server.log || failed "the log warns of a server that is protected"
export LEGOAI_TOKEN_FILE=$folder/data/first_operator.token
ok "$lego" list --tls-ca one.pem
ok env LEGOAI_TLS_CA="$folder/one.pem" "$lego" list
for wrong in "" "--tls-ca two.pem"; do refused 1 "server at $LEGOAI_SERVER" "$lego" list $wrong; done
refused 2 "--tls-ca = none.pem" "$lego" list --tls-ca none.pem
refused 1 "this server asks who calls" env -u LEGOAI_TOKEN_FILE "$lego" list --tls-ca one.pem
# A caller may have a certificate; one that is not of the right authority ends the connection.
ok "$lego" list --tls-ca one.pem --tls-cert worker.pem --tls-key worker.key
refused 1 "server at $LEGOAI_SERVER" "$lego" list --tls-ca one.pem --tls-cert stranger.pem --tls-key stranger.key
refused 2 "--tls-key" "$lego" list --tls-ca one.pem --tls-cert worker.pem

# HTTP speaks TLS as well, and nothing else.
https() {
  python3 - "$http" "$LEGOAI_TOKEN_FILE" "$@" <<'END'
import http.client, json, ssl, sys, urllib.error, urllib.request
port, file, ca = sys.argv[1:4]
secret = open(file).read().strip()
base, context = f"https://127.0.0.1:{port}", ssl.create_default_context(cafile=ca)
def ask(path, body=None, **headers):
    request = urllib.request.Request(base + path, data=body, headers=headers | {"Content-Type": "application/json"})
    try:
        answer = urllib.request.urlopen(request, context=context)
        return answer.status, answer.read(), answer.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read(), error.headers
assert ask("/healthz")[0] == 200
assert ask("/v1/workers")[0] == 401
assert ask("/v1/workers", Authorization="Bearer " + secret)[0] == 200
code, _, headers = ask("/session", json.dumps({"token": secret}).encode())
cookie = headers["Set-Cookie"]
assert code == 200 and cookie.startswith("__Host-") and cookie.endswith("; Secure"), cookie
assert ask("/v1/workers", Cookie=cookie.split(";")[0])[0] == 200
# Many requests over one connection, a large one, one that libevent refuses itself.
connection = http.client.HTTPSConnection("127.0.0.1", int(port), context=context)
for _ in range(50):
    connection.request("GET", "/v1/server", headers={"Authorization": "Bearer " + secret})
    answer = connection.getresponse()
    assert answer.status == 200 and b"build_version" in answer.read()
assert ask("/v1/plan", b" " * 3_000_000, Authorization="Bearer " + secret)[0] == 400
assert ask("/v1/plan", b" " * 5_000_000, Authorization="Bearer " + secret)[0] == 413
# A stream tells of itself at once.
request = urllib.request.Request(base + "/v1/events", headers={"Authorization": "Bearer " + secret})
stream = urllib.request.urlopen(request, context=context)
assert stream.read(12) == b": keep-alive"
stream.close()
try:
    http.client.HTTPConnection("127.0.0.1", int(port), timeout=30).request("GET", "/healthz")
    plain = http.client.HTTPConnection("127.0.0.1", int(port), timeout=30)
    plain.request("GET", "/healthz")
    sys.exit(f"it answers in clear: {plain.getresponse().status}")
except (http.client.HTTPException, OSError):
    pass
END
}
ok https one.pem
! https two.pem >out 2>&1 || failed "HTTP has another certificate than it should"

# Agents need both: a certificate of the right authority, and a token of their kind.
ok "$lego" token create --role agent --out worker.token --tls-ca one.pem
ok "$lego" token create --role editor --out editor.token --tls-ca one.pem
run_agent() {  # run_agent NAME ARGUMENTS...
  "$agent" --server="$LEGOAI_SERVER" --runs="$folder/runs" --trainer=/bin/true --device=cpu --slots=1 --name="$1" \
    "${@:2}" >"$1.log" 2>&1 &
  pids+=($!)
}
end_agent() {
  kill -TERM "${pids[-1]}"
  wait "${pids[-1]}" || true
  unset 'pids[-1]'
}
says() { grep -qF -- "$2" "$1.log"; }
run_agent bare --tls_ca=one.pem --token_file=worker.token
eventually says bare "takes agents with a certificate alone"
end_agent
run_agent user --tls_ca=one.pem --token_file=editor.token --tls_cert=worker.pem --tls_key=worker.key
eventually says user "has the role editor"
end_agent
run_agent worker --tls_ca=one.pem --token_file=worker.token --tls_cert=worker.pem --tls_key=worker.key
eventually says worker "is connected with"
ok "$lego" workers --tls-ca one.pem
grep -qF worker out || failed "the agent is not among the workers"

# A new certificate, of another authority: both ports take it, what is connected stays.
cp second.key server.key
cp second.pem server.pem
eventually "$lego" list --tls-ca two.pem
eventually https two.pem
refused 1 "server at $LEGOAI_SERVER" "$lego" list --tls-ca one.pem
# Files that do not fit together: HTTP keeps what it had, gRPC takes no connection until they do. What is open stays.
cp first.key server.key
eventually grep -qF 'keeps the certificate that it has' server.log
ok https two.pem
cp first.pem server.pem
eventually "$lego" list --tls-ca one.pem
eventually https one.pem

# Its token revoked, the agent is put off at once; with another one in the file it comes back by itself.
ok "$lego" token list --tls-ca one.pem -o json
name=$(python3 -c 'import json; print([t["name"] for t in json.load(open("out")) if t["role"] == "agent"][0])')
ok "$lego" token revoke "$name" --tls-ca one.pem
eventually says worker "was revoked"
ok "$lego" token create --role agent --out worker.token --tls-ca one.pem
eventually "$lego" workers worker --tls-ca one.pem
connected() { "$lego" workers worker --tls-ca one.pem -o json | grep -q '"connected": *true'; }
eventually connected
end_agent
# A certificate for another name is not the server's.
cp elsewhere.key server.key
cp elsewhere.pem server.pem
not_trusted() { ! "$lego" list --tls-ca one.pem; }
eventually not_trusted
stop

# Certificate and key in one file, which changes at once.
cat first.pem first.key >both.pem
start --tokens --tls_cert="$folder/both.pem" --tls_key="$folder/both.pem"
ok "$lego" list --tls-ca one.pem
ok https one.pem
cat second.pem second.key >both.new
mv both.new both.pem
eventually "$lego" list --tls-ca two.pem
eventually https two.pem
stop
