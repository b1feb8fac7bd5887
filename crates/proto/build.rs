//! Compiles `proto/` without protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Asked at run time: a target folder may be shared by checkouts.
    let root = format!("{}/../../proto", std::env::var("CARGO_MANIFEST_DIR")?);
    println!("cargo::rerun-if-changed={root}");
    let files = protox::compile(["envoy/service/ext_proc/v3/external_processor.proto"], [&root])?;
    tonic_prost_build::configure()
        .bytes(".envoy")
        .include_file("envoy.rs")
        .compile_fds(files)?;
    Ok(())
}
