//! The command line.

use std::path::PathBuf;

use clap::Parser;

/// The endpoint picker: tells an Envoy, over ext-proc, which engine should serve each request.
#[derive(Clone, Debug, Parser)]
#[command(name = "lmetric-epp", version)]
pub struct Args {
    /// Configuration, YAML.
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Check the configuration and all files that it names, bind nothing, and exit with 0 or 2.
    #[arg(long)]
    pub check: bool,
    /// Log filter instead of the configuration's.
    #[arg(long, value_name = "FILTER", env = "LMETRIC_LOG")]
    pub log: Option<String>,
}
