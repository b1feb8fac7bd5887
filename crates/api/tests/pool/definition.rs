//! The definition of InferencePool has the form that the API server and people want.

use std::fs;

use lmetric_api::pool;
use serde_json::Value;

use crate::support::{self, package};

/// Paths of all fields that break `rule`, beside the top level, which is Kubernetes' own.
fn breaking(rule: impl Fn(&str, &Value) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for part in ["spec", "status"] {
        support::walk(&support::schema()["properties"][part], part, &mut |at, schema| {
            if !rule(at, schema) {
                found.push(at.to_owned());
            }
        });
    }
    found
}

#[test]
fn the_committed_definition_is_the_generated_one() {
    let path = package().join("../../crds/inferencepools.lmetric.io.yaml");
    let committed = fs::read_to_string(&path).expect("the definition is committed");
    assert!(
        committed == pool::definition_yaml(),
        "{} is stale; run: lmetric crds",
        path.display()
    );
}

#[test]
fn client_side_apply_has_room_for_the_definition() {
    // kubectl keeps the whole object as JSON in an annotation, and all annotations together have this limit
    const LIMIT: usize = 262_144;
    let size = serde_json::to_string(&pool::definition()).expect("JSON").len();
    assert!(size < LIMIT / 2, "{size} bytes of {LIMIT}");
}

#[test]
fn every_field_is_described() {
    let described = |at: &str, schema: &Value| {
        let nameless = at.ends_with("[]") || at.ends_with("{}");
        nameless || schema["description"].as_str().is_some_and(|text| text.len() > 3)
    };
    assert_eq!(breaking(described), Vec::<String>::new());
}

#[test]
fn every_list_map_and_text_is_bounded() {
    let bounded = |_: &str, schema: &Value| {
        let has = |limit: &str| schema[limit].is_u64();
        match schema["type"].as_str() {
            Some("array") => has("maxItems"),
            Some("string") => has("maxLength") || schema["enum"].is_array(),
            Some("object") => schema.get("additionalProperties").is_none() || has("maxProperties"),
            None => has("maxLength"),
            Some(_) => true,
        }
    };
    assert_eq!(breaking(bounded), Vec::<String>::new());
}

/// kubectl reads YAML 1.1, where these words are no text unless they are quoted.
#[test]
fn no_choice_is_a_word_that_yaml_reads_as_true_or_false() {
    let found = breaking(|_, schema| {
        let choices = schema["enum"].as_array().into_iter().flatten();
        choices.filter_map(Value::as_str).all(|choice| {
            !matches!(
                choice.to_lowercase().as_str(),
                "y" | "n" | "yes" | "no" | "on" | "off" | "true" | "false" | "null" | "~"
            )
        })
    });
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn whole_numbers_are_signed_and_ours_have_a_least_value() {
    let ours = |at: &str| {
        !(at.contains("tolerations[]")
            || at.contains("opologySpread")
            || at.contains("conditions[]")
            || at.contains("From[]"))
    };
    let signed = |at: &str, schema: &Value| {
        schema["type"] != "integer"
            || (matches!(schema["format"].as_str(), Some("int32" | "int64"))
                && (!ours(at) || schema["minimum"].is_i64())
                && schema.get("maximum").is_none_or(Value::is_i64))
    };
    assert_eq!(breaking(signed), Vec::<String>::new());
}

#[test]
fn objects_with_defaults_inside_have_an_empty_default() {
    // absent means something of its own for these
    let absent = [
        "spec",
        "spec.model",
        "spec.engine",
        "spec.model.secretRef",
        "spec.gateway.standalone",
    ];
    let whole = |at: &str, schema: &Value| {
        let inside = schema["properties"].as_object().into_iter().flatten();
        let defaulted = inside.clone().any(|(_, schema)| schema.get("default").is_some());
        !defaulted
            || at.contains("[]")
            || absent.contains(&at)
            || at.starts_with("status")
            || schema["default"]
                .as_object()
                .is_some_and(serde_json::Map::is_empty)
    };
    let in_matches = |at: &String| !at.starts_with("spec.gateway.matches[]");
    let found: Vec<_> = breaking(whole).into_iter().filter(in_matches).collect();
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn every_rule_tells_what_to_do() {
    let mut rules = 0;
    let mut mute = Vec::new();
    support::walk(&support::schema(), "", &mut |at, schema| {
        for rule in schema["x-kubernetes-validations"]
            .as_array()
            .into_iter()
            .flatten()
        {
            rules += 1;
            let text = rule["message"]
                .as_str()
                .or(rule["messageExpression"].as_str())
                .unwrap_or_default();
            if text.len() < 30 || text.contains('\n') {
                mute.push(format!("{at}: {}", rule["rule"]));
            }
        }
    });
    assert_eq!(mute, Vec::<String>::new());
    assert!(rules > 40, "{rules} rules");
}

#[test]
fn nothing_is_nullable() {
    assert_eq!(
        breaking(|_, schema| schema.get("nullable").is_none()),
        Vec::<String>::new()
    );
}

#[test]
fn people_find_and_scale_pools() {
    let definition = support::objects(&pool::definition_yaml()).remove(0);
    let (names, version) = (&definition["spec"]["names"], &definition["spec"]["versions"][0]);
    assert_eq!(definition["metadata"]["name"], "inferencepools.lmetric.io");
    assert_eq!(names["shortNames"], serde_json::json!(["lmpool"]));
    assert_eq!(names["categories"], serde_json::json!(["lmetric"]));
    assert_eq!(
        version["subresources"]["scale"],
        serde_json::json!({
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        })
    );
    assert!(version["subresources"]["status"].is_object());
    let columns: Vec<_> = version["additionalPrinterColumns"]
        .as_array()
        .expect("columns")
        .iter()
        .map(|column| {
            (
                column["name"].as_str().expect("a name"),
                column["priority"].as_i64().unwrap_or(0),
            )
        })
        .collect();
    assert_eq!(
        columns,
        [
            ("Model", 0),
            ("Ready", 0),
            ("Updated", 0),
            ("Policy", 0),
            ("GPUs", 0),
            ("Reason", 0),
            ("Age", 0),
            ("URL", 1),
            ("Image", 1),
        ]
    );
}
