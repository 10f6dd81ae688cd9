# Sourced by the `run` of a router: its environment, the replicas behind it, and the end of all.
#
# Settings, from the environment:
#   ASYNCLANE  the binary; by default the one in PATH, else this repository's release build
#   PORT       the router's port (8000); replicas listen on the two ports behind it
#   WORKERS    addresses of replicas that run already, such as "http://a:8000 http://b:8000";
#              then none is started
#   ASYNCLANE_API_KEY  a key that the replicas ask for; the router is told it
#   VENV       folder of the router's Python environment; made and filled where it is missing
#   LOGS       folder of what replicas and router write; a new one under /tmp by default

PORT="${PORT:-8000}"
WORKERS="${WORKERS:-}"
LOGS="${LOGS:-$(mktemp --directory)}"
children=()

# Ends what was started, the router first, so that it loses no replica while it still answers.
end() {
  local index
  for ((index = ${#children[@]} - 1; index >= 0; index--)); do
    kill -TERM "${children[index]}" 2>/dev/null || true
    wait "${children[index]}" 2>/dev/null || true
  done
}
trap end EXIT
trap 'exit 0' TERM INT

# python_environment FOLDER: a virtual environment in $VENV with what FOLDER/requirements.lock
# names and nothing else; `pip check` shows that nothing is missing.
python_environment() {
  local name
  name="$(basename "$1")"
  VENV="${VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/asynclane-routers/$name}"
  if cmp --silent "$1/requirements.lock" "$VENV/installed"; then return; fi
  echo "installing $name in $VENV"
  python3 -m venv "$VENV"
  "$VENV/bin/pip" install --quiet --no-compile --no-deps --disable-pip-version-check \
    --requirement "$1/requirements.lock"
  "$VENV/bin/pip" check >/dev/null
  cp "$1/requirements.lock" "$VENV/installed"
}

# answers URL: whether it answers with a status below 400.
answers() { curl --silent --fail --max-time 5 --output /dev/null "$1"; }

# until_ready URL PID LOG: waits until URL answers; fails if the process ends before.
until_ready() {
  until answers "$1"; do
    if ! kill -0 "$2" 2>/dev/null; then
      echo "the process behind $1 has ended:" >&2
      tail --lines 20 "$3" >&2
      return 1
    fi
    sleep 0.2
  done
}

# start_replicas FLAGS...: two `asynclane serve FLAGS...`, and their addresses in WORKERS.
start_replicas() {
  local index address
  if [ -n "$WORKERS" ]; then return; fi
  local release="${CARGO_TARGET_DIR:-$here/../../../target}/release/asynclane"
  ASYNCLANE="${ASYNCLANE:-$(command -v asynclane || echo "$release")}"
  for index in 1 2; do
    address="127.0.0.1:$((PORT + index))"
    "$ASYNCLANE" serve --listen "$address" "$@" >"$LOGS/replica-$index.log" 2>&1 &
    children+=("$!")
    WORKERS+="${WORKERS:+ }http://$address"
    echo "replica $index (pid $!) on http://$address"
  done
  for index in 1 2; do
    until_ready "http://127.0.0.1:$((PORT + index))/ready" "${children[index - 1]}" \
      "$LOGS/replica-$index.log"
  done
}

# serve_router READY COMMAND...: runs the router until it ends or this script is told to;
# READY is the path that answers once the router does.
serve_router() {
  local ready="$1" status=0
  shift
  "$@" >"$LOGS/router.log" 2>&1 &
  children+=("$!")
  until_ready "http://127.0.0.1:$PORT$ready" "$!" "$LOGS/router.log"
  echo "ready on http://127.0.0.1:$PORT, logs in $LOGS"
  wait "$!" || status=$?
  return "$status"
}
