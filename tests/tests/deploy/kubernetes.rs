//! Kubernetes manifests agree with each other and with the routes of the server.

use serde_json::Value;

use crate::files::{list, manifests, parse, read, text, yaml};
use crate::served;

const FOLDER: &str = "deploy/kubernetes";
const PROBES: [&str; 3] = ["startupProbe", "readinessProbe", "livenessProbe"];
/// The label by which our objects select each other.
const NAME: &str = "app.kubernetes.io/name";
const PICKER: &str = "asynclane-endpoint-picker";

/// Every object of every manifest. A patch is no object of its own.
fn objects() -> Vec<Value> {
    let files = manifests(FOLDER).into_iter();
    let files: Vec<_> = files.filter(|file| !file.ends_with("patch.yaml")).collect();
    files.iter().flat_map(|file| yaml(file)).collect()
}

/// The only object of a kind with this name.
fn object(kind: &str, name: &str) -> Value {
    let mut found = objects();
    found.retain(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    assert_eq!(found.len(), 1, "{kind} {name}");
    found.remove(0)
}

fn pod(name: &str) -> Value {
    object("Deployment", name)["spec"]["template"].clone()
}

fn container(name: &str) -> Value {
    let pod = pod(name);
    let containers = list(&pod, "/spec/containers");
    assert_eq!(containers.len(), 1);
    containers[0].clone()
}

/// The number of a container's port, by its name.
fn port(container: &Value, name: &str) -> Value {
    let ports = list(container, "/ports").iter();
    let mut found = ports.filter(|port| port["name"] == name);
    let port = found.next().unwrap_or_else(|| panic!("no port {name}"));
    port["containerPort"].clone()
}

#[test]
fn probes_and_scrapes_ask_for_routes_of_the_server() {
    let server = container("asynclane");
    let mut paths = Vec::new();
    for probe in PROBES {
        let probe = &server[probe];
        assert_eq!(probe["httpGet"]["port"], "http");
        paths.push(text(probe, "/httpGet/path").to_owned());
    }
    assert_eq!(paths, ["/ready", "/ready", "/health"]);
    let monitor = object("PodMonitor", "asynclane");
    for endpoint in list(&monitor, "/spec/podMetricsEndpoints") {
        port(&server, text(endpoint, "/port"));
        paths.push(text(endpoint, "/path").to_owned());
    }
    let client = served();
    for path in paths {
        let answer = client.client().get(&path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    }
}

#[test]
fn routes_lead_to_the_pool_and_the_pool_to_pods_and_picker() {
    let route = object("HTTPRoute", "asynclane");
    let backend = &list(&route, "/spec/rules")[0]["backendRefs"][0];
    assert_eq!(backend["kind"], "InferencePool");
    let pool = object("InferencePool", text(backend, "/name"));
    let version = text(&pool, "/apiVersion");
    assert_eq!(version.split('/').next(), backend["group"].as_str());
    let target = &list(&pool, "/spec/targetPorts")[0]["number"];
    assert_eq!(*target, port(&container("asynclane"), "http"));

    let picker = &pool["spec"]["endpointPickerRef"];
    let service = object("Service", text(picker, "/name"));
    let ports = list(&service, "/spec/ports").iter();
    let mut ports = ports.filter(|port| port["port"] == picker["port"]["number"]);
    let service_port = ports.next().expect("the service has the pool's port");
    let container = container(PICKER);
    let number = port(&container, text(service_port, "/targetPort"));
    let flag = |name: &str| {
        let prefix = format!("--{name}=");
        let arguments = list(&container, "/args").iter().filter_map(Value::as_str);
        let flag = arguments.filter_map(|argument| argument.strip_prefix(&prefix)).next();
        flag.unwrap_or_else(|| panic!("no --{name}")).to_owned()
    };
    assert_eq!(flag("grpc-port"), number.to_string());
    let health = port(&container, "grpc-health");
    assert_eq!(flag("grpc-health-port"), health.to_string());
    assert_eq!(container["readinessProbe"]["grpc"]["port"], health);
    assert_eq!(flag("pool-name"), pool["metadata"]["name"]);
    assert_eq!(Some(&*flag("pool-group")), version.split('/').next());

    let profiles = object("ConfigMap", PICKER);
    let mounted = text(&container, "/volumeMounts/0/mountPath");
    let file = flag("config-file");
    let file = file.strip_prefix(&format!("{mounted}/"));
    let file = file.expect("a mounted file");
    assert!(profiles["data"].get(file).is_some(), "{file}");
}

#[test]
fn selectors_match_the_labels_of_the_pods() {
    let mut selectors = 0;
    for object in objects() {
        let name = object["metadata"]["labels"][NAME].as_str();
        let name = name.unwrap_or_else(|| panic!("no label {NAME} on {object}"));
        let spec = &object["spec"];
        let labels = match object["kind"].as_str() {
            Some("Service") => &spec["selector"],
            _ => &spec["selector"]["matchLabels"],
        };
        let Some(labels) = labels.as_object() else {
            continue;
        };
        let pod = pod(name);
        for (label, value) in labels {
            assert_eq!(pod["metadata"]["labels"][label], *value, "{object}");
        }
        selectors += 1;
    }
    // Two deployments, two services, disruption budget, monitor, pool.
    assert_eq!(selectors, 7);
    let spread = &pod("asynclane")["spec"]["topologySpreadConstraints"][0];
    assert_eq!(spread["labelSelector"]["matchLabels"][NAME], "asynclane");
}

#[test]
fn services_and_the_autoscaler_name_existing_objects() {
    let service = object("Service", "asynclane");
    let target = text(&service, "/spec/ports/0/targetPort");
    port(&container("asynclane"), target);
    let scaled = object("ScaledObject", "asynclane");
    let target = &scaled["spec"]["scaleTargetRef"];
    let deployment = object(text(target, "/kind"), text(target, "/name"));
    assert_eq!(deployment["apiVersion"], target["apiVersion"]);
    let replicas = deployment["spec"].get("replicas");
    assert_eq!(replicas, None, "the autoscaler's");
    for name in ["asynclane", PICKER] {
        let account = pod(name)["spec"]["serviceAccountName"].clone();
        object("ServiceAccount", account.as_str().expect("a name"));
    }
    let binding = object("RoleBinding", PICKER);
    object("Role", text(&binding, "/roleRef/name"));
    object("ServiceAccount", text(&binding, "/subjects/0/name"));
}

#[test]
fn a_rollout_removes_no_replica_before_another_is_ready() {
    let deployment = object("Deployment", "asynclane");
    let rolling = &deployment["spec"]["strategy"]["rollingUpdate"];
    let steps = (&rolling["maxSurge"], &rolling["maxUnavailable"]);
    assert_eq!(steps, (&1.into(), &0.into()));
    let server = container("asynclane");
    let startup = &server["startupProbe"];
    let number = |key: &str| startup[key].as_u64().expect("a number");
    let patience = number("periodSeconds") * number("failureThreshold");
    let deadline = deployment["spec"]["progressDeadlineSeconds"].as_u64();
    assert!(deadline.is_some_and(|deadline| deadline > patience));
}

#[test]
fn pods_have_no_rights() {
    for name in ["asynclane", PICKER] {
        let pod = pod(name);
        let of_pod = &pod["spec"]["securityContext"];
        assert_eq!(of_pod["runAsNonRoot"], true);
        assert_eq!(of_pod["runAsUser"], 65532);
        assert_eq!(of_pod["seccompProfile"]["type"], "RuntimeDefault");
        let container = container(name);
        let of_container = &container["securityContext"];
        assert_eq!(of_container["readOnlyRootFilesystem"], true);
        assert_eq!(of_container["allowPrivilegeEscalation"], false);
        assert_eq!(of_container["capabilities"]["drop"][0], "ALL");
        assert!(container["resources"]["limits"].get("memory").is_some());
    }
    let pod = pod("asynclane");
    assert_eq!(pod["spec"]["automountServiceAccountToken"], false);
    // The variables that Kubernetes injects for a Service look like settings.
    assert_eq!(pod["spec"]["enableServiceLinks"], false);
}

#[test]
fn mounts_are_volumes_and_volumes_are_objects() {
    for name in ["asynclane", PICKER] {
        let (pod, container) = (pod(name), container(name));
        let volumes = list(&pod, "/spec/volumes");
        let mounts = list(&container, "/volumeMounts");
        for mount in mounts {
            assert!(volumes.iter().any(|volume| volume["name"] == mount["name"]));
        }
        assert_eq!(mounts.len(), volumes.len());
        for volume in volumes {
            if let Some(map) = volume["configMap"]["name"].as_str() {
                object("ConfigMap", map);
            }
        }
    }
}

#[test]
fn the_profiles_score_prefixes_where_they_can_be_shared_and_nowhere_else() {
    let map = object("ConfigMap", PICKER);
    let label = "llm-d.ai/engine-type";
    let engine = pod("asynclane")["metadata"]["labels"][label].clone();
    let weight = |file: &str| {
        let profile = &parse(file, text(&map["data"], &format!("/{file}")))[0];
        let plugins = list(profile, "/plugins");
        let declared = |name: &Value| plugins.iter().any(|plugin| plugin["type"] == *name);
        for name in ["single-profile-handler", "metrics-data-source"] {
            assert!(declared(&name.into()), "{file}: {name}");
        }
        let of_type = |name: &str| plugins.iter().find(|plugin| plugin["type"] == name);
        let extractor = of_type("core-metrics-extractor").expect("the picker reads metrics");
        let engines = &extractor["parameters"]["engineConfigs"];
        assert_eq!(engines[0]["name"], engine);
        let mut used = list(&profile["schedulingProfiles"][0], "/plugins").iter();
        let all = used.clone().all(|plugin| declared(&plugin["pluginRef"]));
        assert!(all, "{file}");
        let prefix = used.find(|plugin| plugin["pluginRef"] == "prefix-cache-scorer");
        prefix.map_or(0, |plugin| plugin["weight"].as_u64().expect("a weight"))
    };
    assert_eq!(weight("full-attention.yaml"), 0);
    assert!(weight("causal.yaml") > 0);
}

#[test]
fn every_manifest_is_in_the_readme() {
    let readme = read("deploy/README.md");
    for path in manifests(FOLDER) {
        let name = path.strip_prefix("deploy/").expect("below the folder");
        assert!(readme.contains(&format!("`{name}`")), "{name}");
    }
}
