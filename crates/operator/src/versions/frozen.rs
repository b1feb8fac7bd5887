//! What each builder has ever made of a pool, it makes for ever: a template that differs by one byte replaces every
//! engine of a running fleet when its operator is upgraded.
//!
//! Each file of `testdata/engine-v1` is a pool's specification and, after `---`, what builder 1 makes of it: the engines'
//! selector, which never changes, their pod template, and the template's hash, by which a running fleet is compared. A
//! file is never written twice.

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use lmetric_api::pool::Component;
use serde_json::{Value, json};

use super::{TEMPLATE, note, with};
use crate::{
    testing,
    validate::validate,
    validated::{Cluster, Versions},
};

const BUILDER: i32 = 1;
const MARK: &str = "---\n";

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/engine-v1");
    let mut files: Vec<_> = fs::read_dir(folder)
        .expect("the folder is there")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    files
}

/// What builder 1 makes of the specification, by the whole way that a pool of the API server takes.
fn made(spec: &Value) -> String {
    let mut facts = testing::facts(&json!({}));
    let pool = json!({
        "apiVersion": "lmetric.io/v1alpha1",
        "kind": "InferencePool",
        "metadata": {"name": "frozen", "namespace": "models", "uid": "f", "generation": 1},
        "spec": spec,
    });
    facts.pool = Arc::new(serde_json::from_value(pool).expect("a pool"));
    let validated = validate(&facts, &Cluster::default()).expect("a good pool");
    let versions = Versions {
        template_revision: BUILDER,
        tool_image: "lmetric/lmetric:0.1.0".to_owned(),
    };
    let built = with(&validated, &testing::images(), versions).expect("builds");
    let name = Component::Engine.object_name("frozen");
    let engines = built
        .resources
        .deployments
        .iter()
        .find(|deployment| deployment.metadata.name.as_ref() == Some(&name))
        .expect("engines are built");
    let kept = json!({
        "hash": note(engines, TEMPLATE),
        "selector": engines.spec.selector,
        "template": engines.spec.template,
    });
    serde_yaml::to_string(&kept).expect("is YAML")
}

#[test]
fn builder_one_makes_of_each_pool_what_it_always_made() {
    let cases = cases();
    assert!(cases.len() >= 8, "cases are lost: {cases:?}");
    for file in cases {
        let text = fs::read_to_string(&file).expect("a case can be read");
        let (spec, kept) = text.split_once(MARK).unwrap_or((&text, ""));
        let made = made(&serde_yaml::from_str(spec).expect("a specification"));
        if kept.is_empty() && std::env::var_os("LMETRIC_FREEZE").is_some() {
            let mut file = OpenOptions::new()
                .append(true)
                .open(&file)
                .expect("can be written");
            file.write_all(format!("{MARK}{made}").as_bytes())
                .expect("can be written");
            continue;
        }
        assert!(
            made == kept,
            "{}: the engines' template would change, and with it every running engine would be replaced. What should be different comes \
             as a builder of the next number (testdata/README.md). It makes now:\n{made}",
            file.display()
        );
    }
}
