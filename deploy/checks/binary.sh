# Checks of the binary: linked libraries, metrics, health check in a sandbox. Sourced by ../check.

# The runtime image contains only these libraries.
libraries() {
  local strange
  strange="$(readelf --dynamic --wide "$binary" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
    grep --invert-match --line-regexp --extended-regexp \
      'libc\.so\.6|libm\.so\.6|libgcc_s\.so\.1|ld-linux[-_a-z0-9]*\.so\.[0-9]+' || true)"
  if [ -n "$strange" ]; then
    echo "not in the runtime image: $strange"
    return 1
  fi
}

# No symbol may be newer than the C library of Debian 12.
symbols() {
  local newest
  newest="$(readelf --version-info --wide "$binary" | grep --only-matching 'GLIBC_[0-9.]*' |
    sort --unique --version-sort | tail --lines=1)"
  echo "newest symbol version: $newest"
  [ "$(printf '%s\nGLIBC_2.36\n' "$newest" | sort --version-sort | tail --lines=1)" = GLIBC_2.36 ]
}

# run WRAPPER...: starts the server and sends one request. vLLM's metric names are off, because
# promtool reserves their colons for recording rules.
run() {
  printf '[server]\nlisten = "127.0.0.1:0"\nvllm_metrics = false\n' >"$work/server.toml"
  : >"$work/server.txt"
  "$@" "$binary" serve --config "$work/server.toml" 2>"$work/server.txt" &
  server=$!
  address=''
  for _ in $(seq 600); do
    address="$(sed -n 's#^ready on http://##p' "$work/server.txt")"
    if [ -n "$address" ] || ! kill -0 "$server" 2>/dev/null; then break; fi
    sleep 0.1
  done
  if [ -z "$address" ]; then
    cat "$work/server.txt"
    return 1
  fi
  curl --silent --show-error --fail "http://$address/v1/completions" \
    --header 'content-type: application/json' \
    --data '{"model": "demo", "prompt": "Mia has 12 eggs.", "max_tokens": 16}'
}

# The system call filter of the unit allows the server to start, answer and drain.
calls() {
  run strace --follow-forks --summary-only --output "$work/calls.txt" || return
  kill -TERM "$(pgrep --parent "$server")"
  wait "$server" || return
  server=''
  python "$here/checks/calls.py" "$here/systemd/asynclane.service" "$work/calls.txt"
}

# promtool may report only this gauge, whose established name has the suffix of counters.
metrics() {
  curl --silent --show-error --fail "http://$address/metrics" >"$work/metrics.txt"
  grep --quiet '^asynclane_build_info{' "$work/metrics.txt" || return
  local known='asynclane_kv_pages_total non-counter metrics should not have "_total" suffix'
  local found
  found="$(promtool check metrics <"$work/metrics.txt" 2>&1 || true)"
  echo "$found"
  [ "$found" = "$known" ]
}

# Like the image: the binary and the C library, read-only, no shell, user 65532.
sandbox() {
  bwrap --unshare-user --uid 65532 --gid 65532 --unshare-pid --unshare-ipc --unshare-uts \
    --cap-drop ALL --die-with-parent --clearenv \
    --ro-bind "$binary" /asynclane --ro-bind /lib /lib --ro-bind-try /lib64 /lib64 \
    --ro-bind /usr/lib /usr/lib --chdir / "$@"
}

probe() {
  sandbox /asynclane inspect health --address "$address"
}

# The health check fails if no server listens.
probe_without_server() {
  local status=0
  sandbox /asynclane inspect health --address 127.0.0.1:1 || status=$?
  [ "$status" -eq 69 ]
}

stop() {
  local status=0
  kill -TERM "$server"
  wait "$server" || status=$?
  server=''
  cat "$work/server.txt"
  return "$status"
}

try 'libraries of the binary' libraries
if grep --quiet '^VERSION_CODENAME=bookworm$' /etc/os-release; then
  try 'symbols of the binary: GLIBC_2.36 or older' symbols
else
  skip 'symbols of the binary' 'not built on Debian 12'
fi
try 'the server starts and answers' run env
try 'exported metrics: promtool check metrics' metrics
if sandbox /asynclane --version >"$work/bwrap.txt" 2>&1; then
  try 'health check, read-only and as user 65532' probe
  try 'health check of an address without a server' probe_without_server
else
  skip 'health check in a sandbox' "bubblewrap failed: $(head -1 "$work/bwrap.txt")"
fi
try 'the server ends with status 0 after SIGTERM' stop
if strace true 2>/dev/null; then
  try 'system calls of the server: allowed by the unit' calls
else
  skip 'system calls of the server' 'tracing processes is not permitted'
fi
