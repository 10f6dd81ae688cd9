//! The compose file, its mounts and its ports.

use serde_json::Value;

use crate::files::{json, list, read, text, yaml};

const FOLDER: &str = "deploy/compose";

fn services() -> serde_json::Map<String, Value> {
    let file = &yaml(&format!("{FOLDER}/compose.yaml"))[0];
    let services = file["services"].as_object().cloned();
    let mut services = services.expect("a compose file has services");
    // Readers of the file merge what `<<` names.
    for service in services.values_mut() {
        if let Some(Value::Object(base)) = service.get("<<").cloned() {
            for (key, value) in base {
                if service.get(&key).is_none() {
                    service[key] = value;
                }
            }
        }
    }
    services
}

#[test]
fn every_service_is_read_only_without_capabilities_on_loopback() {
    let services = services();
    assert_eq!(services.len(), 3);
    for (name, service) in services {
        assert_eq!(service["read_only"], true, "{name}");
        assert_eq!(service["cap_drop"][0], "ALL", "{name}");
        assert_eq!(service["security_opt"][0], "no-new-privileges:true");
        for port in list(&service, "/ports") {
            let port = port.as_str().expect("a text");
            assert!(port.starts_with("127.0.0.1:"), "{name}: {port}");
        }
    }
}

/// The port of `EXPOSE`.
fn exposed() -> String {
    let image = read("Dockerfile");
    let mut lines = image.lines();
    let port = lines.find_map(|line| line.strip_prefix("EXPOSE "));
    port.expect("the image names its port").to_owned()
}

#[test]
fn every_file_has_the_same_port() {
    let port = exposed();
    assert!(read("Dockerfile").contains(&format!("\"--listen\", \"0.0.0.0:{port}\"")));
    let services = services();
    let ports = &services["server"]["ports"];
    assert_eq!(ports[0], format!("127.0.0.1:{port}:{port}"));
    let scrape = &yaml(&format!("{FOLDER}/prometheus.yml"))[0]["scrape_configs"][0];
    let targets = &scrape["static_configs"][0]["targets"];
    assert_eq!(targets[0], format!("server:{port}"));
    // The alert about missing replicas selects by this name.
    assert_eq!(scrape["job_name"], "asynclane");
}

#[test]
fn the_target_is_the_last_stage_of_the_image() {
    let server = services()["server"].clone();
    let target = text(&server, "/build/target");
    let image = read("Dockerfile");
    let last = image.lines().rfind(|line| line.starts_with("FROM "));
    assert!(last.is_some_and(|line| line.ends_with(&format!(" AS {target}"))));
}

#[test]
fn mounts_exist_and_lead_to_the_paths_that_are_read() {
    let services = services();
    for service in services.values() {
        for mount in service["volumes"].as_array().into_iter().flatten() {
            let mount = mount.as_str().expect("a text");
            let (source, _) = mount.split_once(':').expect("from and to");
            if source.starts_with('.') {
                read(&format!("{FOLDER}/{source}"));
                assert!(mount.ends_with(":ro"), "{mount}");
            }
        }
    }
    let mounted = |service: &str, path: &str| {
        let mounts = list(&services[service], "/volumes").iter();
        let mut mounts = mounts.filter_map(Value::as_str);
        let is_mounted = mounts.any(|mount| mount.contains(&format!(":{path}:")));
        assert!(is_mounted, "{path}");
    };
    let prometheus = &yaml(&format!("{FOLDER}/prometheus.yml"))[0];
    let rules = text(prometheus, "/rule_files/0");
    mounted("prometheus", &format!("/etc/prometheus/{rules}"));
    let provider = &yaml(&format!("{FOLDER}/grafana/dashboards.yml"))[0];
    let folder = text(provider, "/providers/0/options/path");
    mounted("grafana", &format!("{folder}/asynclane.json"));
    let environment = &services["grafana"]["environment"];
    let home = text(environment, "/GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH");
    mounted("grafana", home);
    let source = &yaml(&format!("{FOLDER}/grafana/datasource.yml"))[0]["datasources"][0];
    assert_eq!(source["url"], "http://prometheus:9090");
    let of_dashboard = &json("deploy/grafana/asynclane.json")["templating"]["list"][0];
    assert_eq!(of_dashboard["query"], source["type"]);
}
