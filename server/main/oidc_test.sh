#!/usr/bin/env bash
# oidc_test.sh SERVER LEGO: users of an OpenID provider at a real server. The provider is played here: keys and signatures are
# openssl's, and the keys come over HTTPS from python's server, with a certificate of an authority of its own.
set -euo pipefail
server=$(realpath "$1") lego=$(realpath "$2")
folder=$(mktemp -d)
source "$(dirname "$0")/access_test_lib.sh"
cd "$folder"

authority() {  # authority NAME: NAME.pem and NAME.key, for localhost
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$1.key" -out "$1.pem" -days 2 \
    -subj "/CN=$1" -addext subjectAltName=DNS:localhost 2>/dev/null
}
authority idp
for key in first second stranger; do openssl genrsa -out "$key.rsa" 2048 2>/dev/null; done
openssl ecparam -name prime256v1 -genkey -noout -out curve.ec 2>/dev/null

# jwt.py sign KEY KID CLAIM=JSON...: a token of an hour; jwt.py keys KID=KEY...: the set of their public halves.
cat >jwt.py <<'END'
import base64, json, re, subprocess, sys, time
def encode(data): return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
def openssl(*words, **options): return subprocess.run(["openssl", *words], check=True, stdout=subprocess.PIPE, **options).stdout
def raw(der):  # SEQUENCE of two INTEGERs -> two numbers of 32 bytes
    at, numbers = 2, []
    for _ in range(2):
        size = der[at + 1]
        numbers.append(int.from_bytes(der[at + 2:at + 2 + size], "big"))
        at += 2 + size
    return b"".join(number.to_bytes(32, "big") for number in numbers)
def sign(key, kid, claims):
    header = {"alg": "ES256" if key.endswith(".ec") else "RS256", "kid": kid, "typ": "JWT"}
    text = ".".join(encode(json.dumps(part).encode()) for part in (header, claims))
    signature = openssl("dgst", "-sha256", "-sign", key, input=text.encode())
    return text + "." + encode(raw(signature) if key.endswith(".ec") else signature)
def jwk(kid, key):
    if key.endswith(".ec"):
        point = openssl("ec", "-in", key, "-pubout", "-outform", "DER", stderr=subprocess.DEVNULL)[-64:]
        return {"kid": kid, "kty": "EC", "crv": "P-256", "x": encode(point[:32]), "y": encode(point[32:])}
    modulus = re.search(rb"Modulus=(\w+)", openssl("rsa", "-in", key, "-noout", "-modulus", stderr=subprocess.DEVNULL))
    return {"kid": kid, "kty": "RSA", "use": "sig", "alg": "RS256", "n": encode(bytes.fromhex(modulus[1].decode())), "e": "AQAB"}
if sys.argv[1] == "keys":
    print(json.dumps({"keys": [jwk(*one.split("=")) for one in sys.argv[2:]]}))
else:
    now = int(time.time())
    claims = {"iss": "https://localhost/realms/lego", "aud": ["account", "legoai"], "sub": "f3a1", "email": "anna@example.org",
              "iat": now, "exp": now + 3600, "groups": ["/vision"]}
    for one in sys.argv[4:]:
        name, value = one.split("=", 1)
        claims[name] = json.loads(value)
    print(sign(sys.argv[2], sys.argv[3], claims))
END
token() {  # token FILE KEY KID CLAIM=JSON...
  python3 jwt.py sign "${@:2}" >"$1"
  chmod 600 "$1"
}
keys() { python3 jwt.py keys "$@" >certs.new && mv certs.new www/certs; }

mkdir www
keys first=first.rsa curve=curve.ec
cat >serve.py <<'END'
import functools, http.server, ssl
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory="www")
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("idp.pem", "idp.key")
server.socket = context.wrap_socket(server.socket, server_side=True)
open("port.new", "w").write(str(server.server_port))
__import__("os").rename("port.new", "port")
server.serve_forever()
END
python3 serve.py >serve.log 2>&1 &
pids=($! "${pids[@]}")
eventually test -s port
url=https://localhost:$(cat port)/certs
cat >roles.toml <<'END'
[[grant]]
group = "/vision"
role = "editor"
project = "vision"

[[grant]]
group = "/vision"
role = "viewer"
project = "default"

[[grant]]
group = "ops"
role = "operator"
END
oidc=(--oidc_issuer=https://localhost/realms/lego --oidc_audience=legoai --oidc_jwks="$url" --oidc_tls_ca="$folder/idp.pem"
  --oidc_roles="$folder/roles.toml" --oidc_name_claim=email)

# What cannot be is said before anything begins.
refuses() {
  local code=0 text=$1
  shift
  timeout 60 "$server" --sim=/bin/true --data="$folder/data" --listen=127.0.0.1:0 --http= "$@" >"$folder/out" 2>&1 || code=$?
  [ "$code" -eq 2 ] || failed "ended with $code: $*"
  grep -qF -- "$text" "$folder/out" || failed "does not say '$text': $*"
  [ ! -e "$folder/data/legoai.db" ] || failed "a store was made all the same: $*"
}
refuses 'needs --tokens' "${oidc[@]}"
refuses '--oidc_audience = legoai: needs --oidc_issuer' --tokens --oidc_audience=legoai
refuses '--oidc_jwks = http://idp.example/certs: is in clear' --tokens "${oidc[@]}" --oidc_jwks=http://idp.example/certs \
  --oidc_tls_ca=

start --tokens "${oidc[@]}"
token anna first.rsa first
token curve curve.ec curve
eventually "$lego" list --token-file anna
ok "$lego" list --token-file curve
ok env LEGOAI_TOKEN="$(cat anna)" "$lego" list
# A viewer in one project is an editor in the other.
refused 1 "has the role viewer" "$lego" cancel 01ARZ3NDEKTSV4RRFFQ69G5FAV --token-file anna
refused 2 "01ARZ3NDEKTSV4RRFFQ69G5FAV" "$lego" cancel 01ARZ3NDEKTSV4RRFFQ69G5FAV --project vision --token-file anna
refused 1 "needs operator" "$lego" audit --token-file anna
token ops curve.ec curve 'groups="ops"' 'sub="0001"' 'email="ops@example.org"'
ok "$lego" token create --role viewer --out made --token-file ops
ok "$lego" list --token-file made
# What is wrong is named, and the token is not repeated.
token late first.rsa first "exp=$(($(date +%s) - 120))"
token early first.rsa first "nbf=$(($(date +%s) + 600))"
token elsewhere first.rsa first 'aud="other"'
token issuer first.rsa first 'iss="https://localhost/realms/other"'
token nameless first.rsa first 'sub=""'
token forged stranger.rsa first
token unknown stranger.rsa stranger
token nobody first.rsa first 'groups=[]'
for case in late:exp early:nbf elsewhere:aud issuer:iss nameless:sub forged:signature; do
  refused 1 "token: ${case#*:}" "$lego" list --token-file "${case%:*}"
  ! grep -qF "$(cut -c1-40 "${case%:*}")" out || failed "the token is repeated"
done
refused 1 "none of whose groups has a role" "$lego" list --token-file nobody
eventually grep -qF '"grpc"' server.log
# Of a key that is not there the keys are read again; then the token is refused.
code=0
"$lego" list --token-file unknown >out 2>&1 || code=$?
[ "$code" -ne 0 ] && grep -qE "names no key of|keys are read again" out || failed "a stranger's key"
# Over HTTP it is the same door.
python3 - "$http" <<'END' || failed "HTTP"
import json, sys, urllib.error, urllib.request
def ask(path, body=None, **headers):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{sys.argv[1]}{path}", data=data,
                                     headers={"Content-Type": "application/json", **headers})
    try:
        answer = urllib.request.urlopen(request)
        return answer.status, answer.read(), answer.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read(), error.headers
def expect(code, what):
    if what[0] != code: sys.exit(f"{what[0]} instead of {code}: {what[1]}")
    return what
token = lambda name: open(name).read().strip()
jobs = "/v1/projects/{}/jobs"
expect(401, ask(jobs.format("default")))
expect(200, ask(jobs.format("default"), Authorization="Bearer " + token("anna")))
expect(404, ask(jobs.format("other"), Authorization="Bearer " + token("anna")))
expect(401, ask(jobs.format("default"), Authorization="Bearer " + token("late")))
expect(403, ask(jobs.format("default"), Authorization="Bearer " + token("nobody")))
cookie = expect(200, ask("/session", {"token": token("curve")}))[2]["Set-Cookie"].split(";")[0]
who = json.loads(expect(200, ask("/session", Cookie=cookie))[1])
assert who["name"] == "users/anna@example.org", who
roles = {(one["role"], one["project"]) for one in who["roles"]}
assert roles == {("editor", "projects/vision"), ("viewer", "projects/default")}, who
expect(401, ask("/session", {"token": token("forged")}))
END
# Who did what is on record, by issuer and subject.
ok "$lego" audit --limit 1000 --token-file ops -o json
python3 - out <<'END' || failed "the audit log"
import json, sys
records = json.load(open(sys.argv[1]))
seen = {(r["call"].rsplit("/", 1)[-1], r["subject"], r["user"], r["role"], r["outcome"]) for r in records}
for call in [("CancelJob", "f3a1", "anna@example.org", "viewer", "PERMISSION_DENIED"),
             ("CancelJob", "f3a1", "anna@example.org", "editor", "NOT_FOUND"),
             ("CreateToken", "0001", "ops@example.org", "operator", "OK"),
             ("session", "f3a1", "anna@example.org", "editor", "OK")]:
    if call not in seen: sys.exit(f"{call} is not among {sorted(seen, key=str)}")
for record in records:
    if record["subject"] and (record["issuer"] != "https://localhost/realms/lego" or record["token"]):
        sys.exit(f"whose: {record}")
if not any(r["outcome"] == "UNAUTHENTICATED" and not r["subject"] and not r["token"] for r in records): sys.exit("strangers")
if not any(r["outcome"] == "PERMISSION_DENIED" and r["subject"] == "f3a1" and not r["role"] for r in records): sys.exit("no role")
END
ok "$lego" audit --token-file ops
grep -qF anna@example.org out || failed "the table does not say who"
for one in anna late forged; do
  ! grep -rqF "$(cut -d. -f3 "$one")" server.log data/ || failed "the token of $one is written down"
done
stop

# The provider changes its key: who comes with the new one is let in when the keys have been read again, at most half a minute
# after the last time; a key that is gone counts no more.
start --tokens "${oidc[@]}"
eventually "$lego" list --token-file anna
keys second=second.rsa
token rotated second.rsa second
eventually "$lego" list --token-file rotated
refused 1 "token: kid" "$lego" list --token-file anna
stop

# Of another authority than the one that is trusted nothing is taken: nobody comes in by the provider, and the log says why.
authority other
start --tokens "${oidc[@]}" --oidc_tls_ca="$folder/other.pem"
eventually grep -F "the identity provider's keys cannot be read: " server.log
grep -qF certificate server.log || failed "the log does not say that it is the certificate"
refused 1 "has not read yet which keys the identity provider signs with" "$lego" list --token-file rotated
ok "$lego" list --token-file data/first_operator.token
stop
