//! `lmetric-epp`: arguments, configuration, run. Exit 2 for anything that a person must correct first.

use std::process::ExitCode;

use lmetric_api::ConfigError;
use lmetric_epp::{
    args::{Args, Ignored},
    load::{StartError, check, load},
    run::run,
};
use lmetric_telemetry::Logs;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Something in the configuration or the machine must be corrected first.
const BAD_CONFIGURATION: u8 = 2;

fn main() -> ExitCode {
    let (args, ignored) = match Args::read(std::env::args_os()) {
        Ok(read) => read,
        Err(code) => return code,
    };
    match start(&args, &ignored) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lmetric-epp: {error:#}");
            ExitCode::from(if error.is::<ConfigError>() || error.is::<StartError>() {
                BAD_CONFIGURATION
            } else {
                1
            })
        }
    }
}

/// Half of the cores: the tokenizer has threads of its own, and every thread that could take a message is woken for one that another
/// takes.
fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2))
}

fn start(args: &Args, ignored: &[Ignored]) -> anyhow::Result<()> {
    // kube takes the process's provider
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers())
        .enable_all()
        .build()?;
    runtime.block_on(async {
        if args.check {
            return Ok(check(args).await?);
        }
        // waiting for the configuration may have something to say
        let logs = Logs::install("info")?;
        for Ignored { flag, why } in ignored {
            tracing::info!(
                flag,
                why,
                "a flag of the Inference Extension's picker has no effect here"
            );
        }
        let loaded = load(args).await?;
        logs.set(&loaded.config.log)?;
        run(loaded, logs).await
    })
}
