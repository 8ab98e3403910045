# Sourced by the scripts: messages with the time since the start, and long commands that say how far they are. The start is that
# of the first script: those that it calls go on with its clock.
export progress_since=${progress_since:-$(date +%s)}
progress_ticker=""

say() { printf '[%4d s] %s\n' $(($(date +%s) - progress_since)) "$*" >&2; }

die() {
  stop_ticker
  printf '%s failed: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

stop_ticker() {
  if [ -n "$progress_ticker" ]; then kill "$progress_ticker" 2>/dev/null || true; fi
  progress_ticker=""
}

# with_progress STATE COMMAND...: runs the command with its output in $progress_log, and meanwhile prints every five seconds what
# the function STATE says. Gives the command's exit code.
with_progress() {
  local state=$1 code=0
  shift
  while sleep 5 >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do say "$($state)"; done 9>&- &  # 9: a lock is not for it to keep
  progress_ticker=$!
  disown
  "$@" >>"$progress_log" 2>&1 </dev/null || code=$?
  stop_ticker
  return "$code"
}

# die_with_log LOG WHAT: ends with the usual reason that the log gives away, or with its last lines and WHAT.
die_with_log() {
  local reason
  reason=$(reason_in "$1")
  [ -n "$reason" ] || tail -n 5 "$1" >&2
  die "${reason:-$2; the last lines are above} (the whole log: $1)"
}

# is_locked LOG: whether apt-get or dpkg ended because another installation goes on.
is_locked() { grep -qiE 'could not get lock|unable to (acquire the dpkg|lock directory)|locked by another process' "$1"; }

no_network='could not resolve|temporary failure|could not connect|unable to connect|network is unreachable'
no_network+='|newconnectionerror|connection (refused|timed out|broken)|read timed out|proxyerror'

# reason_in LOG: what of the usual has gone wrong, in words that say what to do; nothing where it is something else.
reason_in() {
  if grep -qiE 'no space left|enough free space|disk full' "$1"; then
    echo "the disk is full: free some space and run again"
  elif grep -qiE "$no_network" "$1"; then
    echo "the network cannot be reached: check the connection (and http_proxy, https_proxy) and run again"
  elif is_locked "$1"; then
    echo "another installation is running: wait for it and run again"
  elif grep -qiE 'do not match the hashes' "$1"; then
    echo "what was fetched is not what the lock in tools/ says: check the package index (pip config list) and run again"
  elif grep -qiE 'unable to locate package|has no installation candidate' "$1"; then
    echo "the package sources lack a package: enable Debian 12's main archive in /etc/apt and run again"
  elif grep -qiE 'no matching distribution' "$1"; then
    echo "the package index lacks a wheel of the locks in tools/: use one that mirrors pypi.org (pip config list) and run again"
  fi
}
