# Checks of files: image, compose file, manifests, unit, Prometheus. Sourced by ../check.

# The layout of the compose file's mounts, which prometheus.yml expects.
mkdir "$work/prometheus"
cp "$here/compose/prometheus.yml" "$here/prometheus/"*.yml "$work/prometheus/"

alerts() { (cd "$work/prometheus" && promtool test rules alerts-test.yml); }

# The unit with this binary instead of the installed one, which does not exist here.
unit() {
  mkdir -p "$work/unit"
  sed "s#^ExecStart=[^ ]*#ExecStart=$binary#" "$here/systemd/asynclane.service" \
    >"$work/unit/asynclane.service"
  systemd-analyze verify "$work/unit/asynclane.service"
}

# Writes the profiles of the endpoint picker's ConfigMap to files and checks them.
profiles() {
  mkdir -p "$work/profiles"
  python - "$here/kubernetes/gateway/profiles.yaml" "$work/profiles" <<'PYTHON'
import pathlib
import sys

import yaml

manifest = yaml.safe_load(pathlib.Path(sys.argv[1]).read_text())
for name, text in manifest["data"].items():
    pathlib.Path(sys.argv[2], name).write_text(text)
PYTHON
  schema endpoint-picker-config "$work/profiles/"*.yaml
}

schema() {
  local name="$1"
  shift
  check-jsonschema --schemafile "$here/checks/schemas/$name.json" "$@"
}

core=("$here"/kubernetes/*.yaml "$here"/kubernetes/gateway/{endpoint-picker,profiles}.yaml
  "$here/routers/kubernetes/gateway.yaml")

try 'Dockerfile: hadolint' hadolint "$root/Dockerfile"
try 'workflows' check-jsonschema --builtin-schema vendor.github-workflows \
  "$root"/.github/workflows/*.yml
try 'issue templates' check-jsonschema --builtin-schema vendor.github-issue-forms \
  "$root"/.github/ISSUE_TEMPLATE/{wrong,missing}.yml
try 'compose file: compose-spec' \
  check-jsonschema --builtin-schema vendor.compose-spec "$here/compose/compose.yaml"
try 'Kubernetes manifests: kubernetes-validate --strict' kubernetes-validate --strict "${core[@]}"
try 'PodMonitor' schema pod-monitor "$here/kubernetes/monitoring/pod-monitor.yaml"
try 'ScaledObject' schema scaled-object "$here/kubernetes/autoscaling/scaled-object.yaml"
try 'InferencePool' schema inference-pool "$here/kubernetes/gateway/inference-pool.yaml"
try 'HTTPRoute' schema http-route "$here/kubernetes/gateway/route.yaml"
try 'profiles of the endpoint picker' profiles
try 'Prometheus configuration' promtool check config "$work/prometheus/prometheus.yml"
try 'alert rules' promtool check rules "$work/prometheus/alerts.yml"
try 'alert rules: unit tests' alerts
try 'systemd unit: verify' unit
try 'systemd unit: exposure below 2.0' \
  systemd-analyze security --offline=true --threshold=20 "$here/systemd/asynclane.service"
