//! The files that are shipped beside the programs agree with each other and with the programs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

/// The checkout. Asked at run time: those that share a target folder may share this program.
fn root() -> PathBuf {
    let package: PathBuf = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    package.join("..")
}

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn yaml(path: &str) -> Value {
    serde_yaml::from_str(&text(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Names of the files of a folder that end so.
fn files(folder: &str, ending: &str) -> Vec<String> {
    let entries = fs::read_dir(root().join(folder)).unwrap_or_else(|error| panic!("{folder}: {error}"));
    let mut names: Vec<_> = entries
        .map(|entry| {
            entry
                .expect("an entry can be read")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .filter(|name| name.ends_with(ending))
        .collect();
    names.sort();
    names
}

/// Every value of the chart by its path, as the schema has them: a value is what is no further described.
fn values(schema: &Value, defaults: &Value, path: &str, into: &mut BTreeMap<String, (String, Value)>) {
    let properties = schema["properties"].as_object();
    for (key, schema) in properties
        .into_iter()
        .flatten()
        .filter(|(key, _)| *key != "global")
    {
        let path = if path.is_empty() {
            key.clone()
        } else {
            format!("{path}.{key}")
        };
        let default = &defaults[key];
        assert!(!default.is_null(), "values.yaml has no {path}");
        let description = schema["description"].as_str().unwrap_or_default();
        assert!(
            description.ends_with('.'),
            "{path} is not described in values.schema.json"
        );
        if schema["properties"].is_object() {
            assert_eq!(
                schema["additionalProperties"], false,
                "{path} takes what it does not know"
            );
            let known: BTreeSet<_> = schema["properties"]
                .as_object()
                .expect("an object")
                .keys()
                .collect();
            let given: BTreeSet<_> = default.as_object().expect("an object").keys().collect();
            assert_eq!(known, given, "{path}: schema and values.yaml");
            values(schema, default, &path, into);
        } else {
            into.insert(path, (description.to_owned(), default.clone()));
        }
    }
}

#[test]
fn each_value_of_the_chart_has_a_default_a_schema_and_a_line_in_the_readme() {
    let schema: Value = serde_json::from_str(&text("charts/lmetric/values.schema.json")).expect("JSON");
    let defaults = yaml("charts/lmetric/values.yaml");
    assert_eq!(schema["additionalProperties"], false);
    let known = schema["properties"].as_object().expect("an object");
    for key in defaults.as_object().expect("an object").keys() {
        assert!(known.contains_key(key), "values.schema.json has no {key}");
    }
    let mut all = BTreeMap::new();
    values(&schema, &defaults, "", &mut all);
    let readme = text("charts/lmetric/README.md");
    let commented = text("charts/lmetric/values.yaml");
    for (path, (description, default)) in all {
        let line = readme
            .lines()
            .find(|line| line.starts_with(&format!("| `{path}` |")));
        let line = line.unwrap_or_else(|| panic!("README.md of the chart lacks {path}"));
        assert!(
            line.ends_with(&format!("| {description} |")),
            "README.md and the schema differ about {path}"
        );
        assert!(
            commented.contains(&format!("# -- {description}\n")),
            "values.yaml and the schema differ about {path}"
        );
        let shown = line.split('`').nth(3);
        if let Some(shown) = shown.filter(|_| !line.contains("| see values.yaml |")) {
            let shown: Value = serde_json::from_str(shown).unwrap_or_else(|error| panic!("{path}: {error}"));
            assert_eq!(shown, default, "README.md's default of {path}");
        }
    }
}

#[test]
fn the_chart_and_the_manifests_hold_the_generated_definitions() {
    let names = files("crds", ".yaml");
    assert!(!names.is_empty(), "crds/ is empty; run: lmetric crds");
    assert_eq!(
        files("charts/lmetric/files/crds", ".yaml"),
        names,
        "run: scripts/render-manifests.sh"
    );
    for name in &names {
        let (ours, charts) = (
            format!("crds/{name}"),
            format!("charts/lmetric/files/crds/{name}"),
        );
        assert!(
            text(&ours) == text(&charts),
            "{charts} is stale; run: scripts/render-manifests.sh"
        );
        for rendered in ["manifests/crd/crds.yaml", "manifests/install.yaml"] {
            let spec = &yaml(&ours)["spec"];
            let found = documents(rendered)
                .into_iter()
                .any(|object| &object["spec"] == spec);
            assert!(
                found,
                "{rendered} holds another {name}; run: scripts/render-manifests.sh"
            );
        }
    }
}

/// A file of a packaged chart.
fn packaged(archive: &str, file: &str) -> Value {
    let output = Command::new("tar")
        .args(["-xzOf", archive, file])
        .current_dir(root())
        .output()
        .expect("tar runs");
    assert!(output.status.success(), "{archive} holds no {file}");
    serde_yaml::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{archive}: {file}: {error}"))
}

#[test]
fn each_released_chart_is_the_version_of_its_name_and_an_older_one_than_the_trees() {
    let numbers = |version: &str| -> Vec<u64> {
        let parts = version.split('.');
        parts.map(|part| part.parse().expect("a number")).collect()
    };
    let tree = yaml("charts/lmetric/Chart.yaml");
    let tree = numbers(tree["version"].as_str().expect("a version"));
    let folder = "e2e/testdata/charts";
    let archives = files(folder, ".tgz");
    assert_eq!(archives.first().map(String::as_str), Some("lmetric-0.1.0.tgz"));
    for archive in archives {
        let path = format!("{folder}/{archive}");
        let chart = packaged(&path, "lmetric/Chart.yaml");
        let version = chart["version"].as_str().expect("a version");
        assert_eq!(archive, format!("lmetric-{version}.tgz"));
        assert!(
            numbers(version) < tree,
            "{archive} is not older than charts/lmetric"
        );
        let definition = packaged(&path, "lmetric/files/crds/inferencepools.lmetric.io.yaml");
        assert_eq!(definition["metadata"]["name"], "inferencepools.lmetric.io");
    }
}

#[test]
fn the_chart_names_the_version_that_the_programs_say() {
    let chart = yaml("charts/lmetric/Chart.yaml");
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
}

fn documents(path: &str) -> Vec<Value> {
    text(path)
        .split("\n---\n")
        .map(|document| serde_yaml::from_str(document).unwrap_or_else(|error| panic!("{path}: {error}")))
        .filter(|object: &Value| !object.is_null())
        .collect()
}

#[test]
fn what_is_installed_without_helm_says_nothing_of_helm_and_is_restricted() {
    let objects = documents("manifests/install.yaml");
    assert!(
        objects
            .iter()
            .all(|object| !object.to_string().contains("helm.sh/"))
    );
    let namespace = &objects[0]["metadata"];
    assert_eq!(
        namespace["labels"]["pod-security.kubernetes.io/enforce"],
        "restricted"
    );
    let roles = objects
        .iter()
        .filter(|object| object["kind"] == "ClusterRole" || object["kind"] == "Role");
    for rule in roles.flat_map(|role| role["rules"].as_array().cloned().unwrap_or_default()) {
        let text = rule.to_string();
        assert!(!text.contains("\"*\"") && !text.contains("secrets"), "{text}");
    }
    let operator = objects
        .iter()
        .find(|object| object["kind"] == "Deployment")
        .expect("the operator");
    let pod = &operator["spec"]["template"]["spec"];
    let container = &pod["containers"][0]["securityContext"];
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    assert_eq!(container["capabilities"]["drop"][0], "ALL");
    assert_eq!(container["allowPrivilegeEscalation"], false);
    assert_eq!(container["readOnlyRootFilesystem"], true);
    assert!(
        pod["securityContext"]["runAsUser"].is_null(),
        "OpenShift chooses the user"
    );
}

/// What our metrics are registered under, without prefix and suffix.
fn registered() -> String {
    fn read(folder: &Path, into: &mut String) {
        for entry in fs::read_dir(folder).expect("a folder of sources") {
            let path = entry.expect("an entry can be read").path();
            if path.is_dir() {
                read(&path, into);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                into.push_str(&fs::read_to_string(&path).expect("a source can be read"));
            }
        }
    }
    let mut sources = String::new();
    for member in ["crates/epp/src", "crates/operator/src"] {
        read(&root().join(member), &mut sources);
    }
    sources
}

#[test]
fn dashboards_and_alerts_ask_for_metrics_that_exist() {
    let sources = registered();
    let mut asked = text("charts/lmetric/files/alerts.yaml");
    for name in files("charts/lmetric/files/dashboards", ".json") {
        let dashboard: Value =
            serde_json::from_str(&text(&format!("charts/lmetric/files/dashboards/{name}"))).expect("JSON");
        let panels = dashboard["panels"].as_array().expect("panels");
        for query in panels
            .iter()
            .flat_map(|panel| panel["targets"].as_array().into_iter().flatten())
        {
            asked.push_str(query["expr"].as_str().expect("a query"));
            asked.push('\n');
        }
    }
    let is_part = |letter: char| letter.is_ascii_lowercase() || letter == '_';
    let mut count = 0;
    for (at, _) in asked.match_indices("lmetric_") {
        let name = asked[at..]
            .split(|letter| !is_part(letter))
            .next()
            .unwrap_or_default();
        let follows = asked[at + name.len()..].chars().next();
        if asked[..at].ends_with(is_part) || follows != Some('{') {
            continue;
        }
        let base = name
            .trim_start_matches("lmetric_")
            .trim_end_matches("_bucket")
            .trim_end_matches("_total");
        let bare = base.trim_end_matches("_seconds").trim_end_matches("_tokens");
        let known = [base, bare]
            .iter()
            .any(|name| sources.contains(&format!("\"{name}\"")));
        assert!(known, "nothing registers {name}");
        count += 1;
    }
    assert!(count > 40, "{count} metrics asked for");
}

#[test]
fn each_alert_tells_a_person_what_to_do() {
    let alerts = yaml("charts/lmetric/files/alerts.yaml");
    let mut names = BTreeSet::new();
    for rule in alerts["groups"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|group| group["rules"].as_array().into_iter().flatten())
    {
        let name = rule["alert"].as_str().expect("a name");
        assert!(names.insert(name.to_owned()), "{name} is there twice");
        assert!(
            ["warning", "critical"].contains(&rule["labels"]["severity"].as_str().expect("a severity")),
            "{name}"
        );
        for annotation in ["summary", "description", "runbook"] {
            assert!(
                rule["annotations"][annotation]
                    .as_str()
                    .is_some_and(|text| text.len() > 20),
                "{name} lacks {annotation}"
            );
        }
    }
    assert!(names.len() >= 5, "{names:?}");
}
