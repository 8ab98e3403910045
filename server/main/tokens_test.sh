#!/usr/bin/env bash
# tokens_test.sh SERVER LEGO JOB: a server that asks for tokens, and what `lego` may do with each.
set -euo pipefail
server=$1 lego=$2 job=$3
folder=$(mktemp -d)
source "$(dirname "$0")/access_test_lib.sh"

start --tokens
first=$folder/data/first_operator.token
[ "$(stat -c %a "$first")" = 600 ] || failed "the first token's file has the mode $(stat -c %a "$first")"
grep -qF "$first" "$folder/server.log" || failed "the log does not say where the first token is"

refused 1 --token-file "$lego" list
refused 1 "not known to this server" env LEGOAI_TOKEN=lego_0123456789012345678901234567890123456789abc "$lego" list
refused 1 "not known to this server" env LEGOAI_TOKEN=nonsense "$lego" list
cp "$first" "$folder/open.token"
chmod 644 "$folder/open.token"
refused 1 "chmod 600" "$lego" list --token-file "$folder/open.token"

for role in viewer editor admin; do
  ok "$lego" token create --role $role --name $role --out "$folder/$role" --token-file "$first"
done
ok "$lego" token create --role admin --project other --out "$folder/other" --token-file "$first"
ok "$lego" token create --role agent --out "$folder/agent" --token-file "$first"

# A viewer sees and changes nothing; an editor submits.
ok "$lego" list --token-file "$folder/viewer"
refused 1 "has the role viewer, and legoai.v1.ControlPlane/CreateJob needs editor" \
  "$lego" submit "$job" --token-file "$folder/viewer"
ok env LEGOAI_TOKEN_FILE="$folder/editor" "$lego" submit "$job" --name mine -o json
id=$(grep -o '[0-9A-HJKMNP-TV-Z]\{26\}' "$folder/out" | head -1)
ok "$lego" get "$id" --token-file "$folder/viewer"
grep -qF mine "$folder/out" || failed "the viewer does not see the job"
refused 1 "needs editor" "$lego" cancel "$id" --token-file "$folder/viewer"
refused 1 "needs operator" "$lego" workers none --drain --token-file "$folder/admin"
# Of another project it is not there, and an agent has no business here.
refused 2 "is not there, or not in a project of yours" "$lego" get "$id" --token-file "$folder/other"
refused 2 "is not there, or not in a project of yours" "$lego" cancel "$id" --token-file "$folder/other"
refused 1 "has the role agent" "$lego" list --token-file "$folder/agent"
# In its own project it may.
ok "$lego" token create --role editor --project other --out "$folder/other_editor" --token-file "$folder/other"
ok "$lego" submit "$job" --name elsewhere --project other --token-file "$folder/other_editor"
refused 2 "not in a project of yours" "$lego" submit "$job" --token-file "$folder/other_editor"
ok env LEGOAI_PROJECT=other "$lego" list --token-file "$folder/other"
grep -qF elsewhere "$folder/out" && ! grep -qF mine "$folder/out" || failed "the list is not of the project"
ok env LEGOAI_PROJECT=projects/other "$lego" get elsewhere --token-file "$folder/other"
ok env LEGOAI_PROJECT=other "$lego" token create --role viewer --out "$folder/other_viewer" --token-file "$folder/other"
refused 2 "LEGOAI_PROJECT = No/Project" \
  env LEGOAI_PROJECT=No/Project "$lego" token create --role viewer --token-file "$folder/other"
refused 2 "--project = No/Project" "$lego" list --project No/Project --token-file "$folder/other"
# Admins make tokens of their project, not more.
ok "$lego" token create --role viewer --out "$folder/second" --token-file "$folder/admin"
refused 1 "may do more than admin" "$lego" token create --role operator --token-file "$folder/admin"
refused 2 "not in your hands" "$lego" token create --role viewer --project other --token-file "$folder/admin"
refused 1 "needs admin" "$lego" token list --token-file "$folder/editor"

# One that is revoked ends at once.
ok "$lego" token list --token-file "$folder/admin" -o json
name=$(python3 -c 'import json,sys
print(max(t["name"] for t in json.load(open(sys.argv[1])) if t["role"] == "viewer"))' "$folder/out")
ok "$lego" token revoke "$name" --token-file "$folder/admin"
refused 1 "was revoked" "$lego" list --token-file "$folder/second"

# HTTP asks as well; the page itself, and whether the server lives, are everybody's.
python3 - "$http" "$folder" <<'END' || failed "HTTP"
import json, sys, urllib.error, urllib.request
base, folder = f"http://127.0.0.1:{sys.argv[1]}", sys.argv[2]
secret = lambda who: open(f"{folder}/{who}").read().strip()
def ask(path, body=None, **headers):
    request = urllib.request.Request(base + path, data=None if body is None else json.dumps(body).encode(),
                                     headers={"Content-Type": "application/json", **headers})
    try:
        answer = urllib.request.urlopen(request)
        return answer.status, answer.read(), answer.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read(), error.headers
def expect(code, what):
    if what[0] != code: sys.exit(f"{what[0]} instead of {code}: {what[1]}")
    return what
jobs = "/v1/projects/default/jobs"
expect(200, ask("/healthz"))
assert expect(401, ask(jobs))[2]["WWW-Authenticate"] == "Bearer"
for path in ("/v1/events", "/metrics", "/v1/server"): expect(401, ask(path))
expect(401, ask(jobs, Authorization="Bearer none"))
expect(200, ask(jobs, Authorization="Bearer " + secret("viewer")))
expect(404, ask(jobs, Authorization="Bearer " + secret("other")))
expect(403, ask("/metrics", Authorization="Bearer " + secret("agent")))
expect(401, ask("/session", {"token": "wrong"}))
cookie = expect(200, ask("/session", {"token": secret("viewer")}))[2]["Set-Cookie"]
for part in ("HttpOnly", "SameSite=Strict", "Path=/"): assert part in cookie, cookie
expect(200, ask(jobs, Cookie=cookie.split(";")[0]))
assert json.loads(expect(200, ask("/session", Cookie=cookie.split(";")[0]))[1])["roles"][0]["role"] == "viewer"
# Signed in or not, a page of another site does nothing.
expect(403, ask("/session", {"token": secret("viewer")}, Origin="http://evil.example"))
expect(403, ask("/v1/plan", {}, Cookie=cookie.split(";")[0], Origin="http://evil.example"))
expect(403, ask(jobs, Cookie=cookie.split(";")[0], Host="evil.example"))
assert "Max-Age=0" in expect(200, ask("/session", {"token": ""}))[2]["Set-Cookie"]
END

# What was done and what was refused is on record, for operators.
refused 1 "needs operator" "$lego" audit --token-file "$folder/admin"
ok "$lego" audit --limit 1000 --token-file "$first" -o json
python3 - "$folder/out" "$id" <<'END' || failed "the audit log"
import json, sys
records = json.load(open(sys.argv[1]))
seen = {(r["call"].rsplit("/", 1)[-1], r["role"], r["outcome"]) for r in records}
for call in [("CreateJob", "viewer", "PERMISSION_DENIED"), ("CreateJob", "editor", "OK"),
             ("CancelJob", "viewer", "PERMISSION_DENIED"), ("CancelJob", "admin", "NOT_FOUND"),
             ("CreateToken", "operator", "OK"), ("CreateToken", "admin", "PERMISSION_DENIED"),
             ("RevokeToken", "admin", "OK"), ("session", "viewer", "OK")]:
    if call not in seen: sys.exit(f"{call} is not among {sorted(seen, key=str)}")
for record in records:
    if not record["remote"] or not record["time_us"]: sys.exit(f"incomplete: {record}")
if not any(r["resource"].endswith(sys.argv[2]) for r in records): sys.exit("no record is about the job")
if not any(r["outcome"] == "UNAUTHENTICATED" and not r["token"] for r in records): sys.exit("strangers are not on record")
if any(r["call"].endswith(("ListJobs", "GetJob")) and r["outcome"] == "OK" for r in records): sys.exit("looks are on record")
END
[ "$(stat -c %a "$folder/data/audit.jsonl")" = 600 ] || failed "the audit log is open to others"

# No secret is in the log or in the store.
for who in viewer editor admin other agent; do
  secret=$(cat "$folder/$who")
  ! grep -rqF -- "${secret#lego_}" "$folder/server.log" "$folder/data/audit.jsonl" "$folder/data/legoai.db"* ||
    failed "the secret of $who is written down"
done
# The tokens outlive the server; another first one is not made.
before=$(cat "$first")
stop
start --tokens
ok "$lego" list --token-file "$folder/viewer"
[ "$(cat "$first")" = "$before" ] || failed "another first token was made"
stop
# Without --tokens it asks nobody, and says so.
start
ok "$lego" list
grep -qF 'give --tokens' "$folder/server.log" || failed "the log does not warn of tokens that nobody asks for"
stop
