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

# The deployment with the patch for a card, merged as `kubectl patch` does: containers by their names.
gpu() {
  python - "$here/kubernetes/deployment.yaml" "$here/kubernetes/gpu/patch.yaml" >"$work/gpu.yaml" <<'PYTHON'
import sys

import yaml


def merged(base, patch):
    if isinstance(base, dict) and isinstance(patch, dict):
        both = {key: merged(base[key], patch[key]) for key in base.keys() & patch.keys()}
        return base | patch | both
    if isinstance(base, list) and patch and isinstance(patch[0], dict) and "name" in patch[0]:
        named = {item["name"]: item for item in patch}
        return [merged(item, named.get(item["name"], {})) for item in base]
    return patch


base, patch = (list(yaml.safe_load_all(open(path))) for path in sys.argv[1:])
deployment = next(item for item in base if item["kind"] == "Deployment")
print(yaml.safe_dump(merged(deployment, patch[0])))
PYTHON
  grep --quiet 'nvidia.com/gpu: .1.' "$work/gpu.yaml"
  grep --quiet 'mountPath: /models' "$work/gpu.yaml"
  kubernetes-validate --strict "$work/gpu.yaml"
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
  check-jsonschema --builtin-schema vendor.compose-spec "$here"/compose/{compose,gpu}.yaml
try 'Kubernetes manifests: kubernetes-validate --strict' kubernetes-validate --strict "${core[@]}"
try 'Kubernetes with a card: the patched deployment' gpu
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
