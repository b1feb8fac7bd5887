//! Compiles `proto/` without protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../proto");
    println!("cargo::rerun-if-changed={root}");
    let files = protox::compile(["envoy/service/ext_proc/v3/external_processor.proto"], [root])?;
    tonic_prost_build::configure()
        .bytes(".envoy")
        .include_file("envoy.rs")
        .compile_fds(files)?;
    Ok(())
}
