//! Objects that people write: good ones are complete after reading, bad ones are refused with a remedy.
//!
//! The same folders are applied to a real API server in the end-to-end tests.

use lmetric_api::pool::{self, InferencePool};
use serde_json::{Value, json};

use crate::support;

fn read(object: &Value) -> InferencePool {
    serde_json::from_value(object.clone()).expect("a pool")
}

#[test]
fn bad_pools_are_refused_with_a_remedy() {
    let schema = support::schema();
    let mut table = 0;
    for (name, text) in support::files("bad-pools") {
        let expected = text
            .lines()
            .next()
            .and_then(|line| line.strip_prefix("# expect: "))
            .unwrap_or_else(|| panic!("{name}: the first line tells no expectation"));
        let objects = support::objects(&text);
        let (last, before) = objects.split_last().expect("an object");
        let old = before.first().map(|object| {
            support::admit(&schema, object, None)
                .unwrap_or_else(|said| panic!("{name}: the first is refused: {said:?}"))
        });
        let said = support::admit(&schema, last, old.as_ref()).expect_err(&name);
        assert!(
            said.iter().any(|said| said.contains(expected)),
            "{name}: {expected:?} is not in {said:#?}"
        );
        table += 1;
    }
    assert!(table >= 40, "{table} bad pools");
}

#[test]
fn every_rule_has_a_bad_pool_that_breaks_it() {
    let schema = support::schema();
    let mut said = Vec::new();
    for (name, text) in support::files("bad-pools") {
        let objects = support::objects(&text);
        let (last, before) = objects.split_last().expect(&name);
        said.extend(support::admit(&schema, last, before.first()).expect_err(&name));
    }
    let mut unbroken = Vec::new();
    support::walk(&schema, "", &mut |at, schema| {
        for rule in schema["x-kubernetes-validations"]
            .as_array()
            .into_iter()
            .flatten()
        {
            // a message that is computed is looked for by the table itself
            let message = rule["message"]
                .as_str()
                .unwrap_or("is a flag that the operator sets");
            if !said.iter().any(|said| said.contains(message)) {
                unbroken.push(format!("{at}: {message}"));
            }
        }
    });
    assert_eq!(unbroken, Vec::<String>::new());
}

#[test]
fn good_pools_are_taken_and_can_be_built() {
    let schema = support::schema();
    for (name, text) in support::files("good-pools") {
        for object in support::objects(&text) {
            let stored =
                support::admit(&schema, &object, None).unwrap_or_else(|said| panic!("{name}: {said:#?}"));
            assert_eq!(pool::validate(&read(&stored)), Ok(()), "{name}");
        }
    }
}

#[test]
fn a_file_reads_like_the_object_that_the_api_server_completed() {
    let schema = support::schema();
    for (name, text) in support::files("good-pools") {
        for object in support::objects(&text) {
            let stored = support::admit(&schema, &object, None).expect(&name);
            assert_eq!(
                read(&object),
                read(&stored),
                "{name}: a default differs between type and schema"
            );
        }
    }
}

#[test]
fn reading_loses_no_field() {
    let (name, text) = support::files("good-pools").remove(0);
    assert_eq!(name, "every-field");
    let object = support::objects(&text).remove(0);
    let written = serde_json::to_value(read(&object)).expect("JSON");
    for (path, value) in leaves(&object["spec"]) {
        let kept = written["spec"].pointer(&path);
        // a quantity may be written as a number and is kept as text
        let as_text = value.as_i64().map(|number| json!(number.to_string()));
        assert!(
            kept == Some(value) || kept == as_text.as_ref(),
            "{path}: {value} became {kept:?}"
        );
    }
}

#[test]
fn the_full_example_sets_every_field() {
    let (_, text) = support::files("good-pools").remove(0);
    let object = support::objects(&text).remove(0);
    let mut unset = Vec::new();
    fields(
        &support::schema()["properties"]["spec"],
        &object["spec"],
        "spec",
        &mut unset,
    );
    // the one that goes with type PVC, and those of ExistingClaim
    unset.retain(|field| !field.starts_with("spec.cache.") && field != "spec.picker.placement.affinity");
    unset.retain(|field| !field.starts_with("spec.picker.placement.") && !field.starts_with("spec.probes."));
    unset.retain(|field| !field.starts_with("spec.gateway.standalone.resources"));
    assert_eq!(unset, Vec::<String>::new());
}

/// Fields of `schema` that `value` does not set.
fn fields(schema: &Value, value: &Value, at: &str, unset: &mut Vec<String>) {
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        let at = format!("{at}.{name}");
        match value.get(name) {
            Some(value) => fields(schema, value, &at, unset),
            None => unset.push(at),
        }
    }
}

fn leaves(value: &Value) -> Vec<(String, &Value)> {
    let below = |key: String, value| {
        leaves(value)
            .into_iter()
            .map(move |(path, leaf)| (format!("/{key}{path}"), leaf))
    };
    match value {
        Value::Object(fields) => fields
            .iter()
            .flat_map(|(key, value)| below(key.replace('~', "~0").replace('/', "~1"), value))
            .collect(),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .flat_map(|(at, value)| below(at.to_string(), value))
            .collect(),
        leaf => vec![(String::new(), leaf)],
    }
}
