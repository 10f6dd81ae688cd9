# Sourced by the `run` of a router: its Python environment, its replicas, and their shutdown.
#
# Environment variables:
#   ASYNCLANE  the binary; default: the one in PATH, otherwise this repository's release build
#   PORT       the router's port (8000); replicas listen on the ports after it
#   REPLICAS   how many replicas are started (2), at most 8
#   WORKERS    addresses of running replicas, such as "http://a:8000 http://b:8000"; then none is
#              started
#   ASYNCLANE_API_KEY  the key of the replicas, passed to the router
#   VENV       folder of the router's Python environment; created if missing
#   LOGS       folder of the logs of replicas and router; default: a new one under /tmp

PORT="${PORT:-8000}"
WORKERS="${WORKERS:-}"
REPLICAS="${REPLICAS:-2}"
LOGS="${LOGS:-$(mktemp --directory)}"
children=()

# Ends all started processes, the router first, so that it does not lose replicas while it answers.
end() {
  local index
  for ((index = ${#children[@]} - 1; index >= 0; index--)); do
    kill -TERM "${children[index]}" 2>/dev/null || true
    wait "${children[index]}" 2>/dev/null || true
  done
}
trap end EXIT
trap 'exit 0' TERM INT

# python_environment FOLDER: creates a virtual environment in $VENV with exactly the packages of
# FOLDER/requirements.lock; `pip check` verifies that they are complete.
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

# answers URL: succeeds if the status is below 400.
answers() { curl --silent --fail --max-time 5 --output /dev/null "$1"; }

# until_ready URL PID LOG: waits until URL answers; fails if the process ends first.
until_ready() {
  until answers "$1"; do
    if ! kill -0 "$2" 2>/dev/null; then
      echo "the process of $1 has ended:" >&2
      tail --lines 20 "$3" >&2
      return 1
    fi
    sleep 0.2
  done
}

# start_replicas FLAGS...: starts REPLICAS times `asynclane serve FLAGS...` and sets WORKERS to their
# addresses.
start_replicas() {
  local index address
  if [ -n "$WORKERS" ]; then return; fi
  if ! [[ "$REPLICAS" =~ ^[1-8]$ ]]; then
    echo "REPLICAS: expected 1 to 8, found $REPLICAS" >&2
    return 1
  fi
  local release="${CARGO_TARGET_DIR:-$here/../../../target}/release/asynclane"
  ASYNCLANE="${ASYNCLANE:-$(command -v asynclane || echo "$release")}"
  for ((index = 1; index <= REPLICAS; index++)); do
    address="127.0.0.1:$((PORT + index))"
    "$ASYNCLANE" serve --listen "$address" "$@" >"$LOGS/replica-$index.log" 2>&1 &
    children+=("$!")
    WORKERS+="${WORKERS:+ }http://$address"
    echo "replica $index (pid $!) on http://$address"
  done
  for ((index = 1; index <= REPLICAS; index++)); do
    until_ready "http://127.0.0.1:$((PORT + index))/ready" "${children[index - 1]}" \
      "$LOGS/replica-$index.log"
  done
}

# serve_router READY COMMAND...: runs the router until it or this script is ended. READY is the path
# that answers when the router is ready.
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
