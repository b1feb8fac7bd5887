//! The trimmed definitions say nothing that Envoy's do not.

use std::{collections::BTreeSet, path::PathBuf};

use prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorSet};

/// This package's folder. Asked at run time: checkouts that share a target folder may share this program.
fn package() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from)
}

fn ours() -> BTreeSet<String> {
    let root = package().join("../../proto");
    let file = "envoy/service/ext_proc/v3/external_processor.proto";
    lines(&protox::compile([file], [root]).expect("proto/ compiles"))
}

fn envoys() -> BTreeSet<&'static str> {
    include_str!("../testdata/envoy-fields.txt").lines().collect()
}

fn lines(files: &FileDescriptorSet) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for file in files
        .file
        .iter()
        .filter(|file| file.package().starts_with("envoy."))
    {
        let package = file.package();
        for service in &file.service {
            for method in &service.method {
                let streams = [
                    (method.client_streaming(), " in-stream"),
                    (method.server_streaming(), " out-stream"),
                ];
                let streams = streams.map(|(is, name)| if is { name } else { "" }).concat();
                let (service, method, input, output) = (
                    service.name(),
                    method.name(),
                    method.input_type(),
                    method.output_type(),
                );
                lines.insert(format!(
                    "rpc {package}.{service}/{method} {input} {output}{streams}"
                ));
            }
        }
        for message in &file.message_type {
            add_message(package, message, &mut lines);
        }
        for values in &file.enum_type {
            add_enum(package, values, &mut lines);
        }
    }
    lines
}

fn add_message(scope: &str, message: &DescriptorProto, lines: &mut BTreeSet<String>) {
    let name = format!("{scope}.{}", message.name());
    for field in &message.field {
        let oneof = field
            .oneof_index
            .map(|at| format!(" in {}", message.oneof_decl[at as usize].name()))
            .unwrap_or_default();
        lines.insert(format!(
            "field {name}.{} {} {} {} {}{oneof}",
            field.name(),
            field.number(),
            field.label().as_str_name(),
            field.r#type().as_str_name(),
            field.type_name(),
        ));
    }
    for inner in &message.nested_type {
        add_message(&name, inner, lines);
    }
    for values in &message.enum_type {
        add_enum(&name, values, lines);
    }
}

fn add_enum(scope: &str, values: &EnumDescriptorProto, lines: &mut BTreeSet<String>) {
    for value in &values.value {
        lines.insert(format!(
            "value {scope}.{}.{} {}",
            values.name(),
            value.name(),
            value.number()
        ));
    }
}

#[test]
fn every_field_value_and_method_is_envoys() {
    let envoys = envoys();
    let ours = ours();
    assert!(ours.len() > 80, "{} lines", ours.len());
    let foreign: Vec<_> = ours
        .iter()
        .filter(|line| !envoys.contains(line.as_str()))
        .collect();
    assert!(foreign.is_empty(), "not Envoy's: {foreign:#?}");
}

#[test]
fn every_message_that_envoy_may_send_is_known() {
    let ours = ours();
    let steps = "field envoy.service.ext_proc.v3.ProcessingRequest.";
    for line in envoys() {
        if line.starts_with(steps) && line.ends_with(" in request") {
            assert!(ours.contains(line), "{line}");
        }
        if line.contains("ProcessingMode.BodySendMode.") {
            assert!(ours.contains(line), "{line}");
        }
    }
}
