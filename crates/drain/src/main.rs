//! `lmetric-drain`. Exit 1 when requests were left at the end, which makes an Event of the pod; 2 for a wrong call.

use std::{env, fs::OpenOptions, io::Write as _, process::ExitCode, time::Instant};

use lmetric_drain::{
    Ended, Pace,
    args::{self, Task, USAGE},
    engine, envoy, install,
};

const LEFT: u8 = 1;
const BAD_CALL: u8 = 2;

fn main() -> ExitCode {
    let task = match args::read(env::args().skip(1), |name| env::var(name).ok()) {
        Ok(task) => task,
        Err(error) => {
            eprintln!("lmetric-drain: {error}");
            return ExitCode::from(BAD_CALL);
        }
    };
    let started = Instant::now();
    let ended = match task {
        Task::Help => {
            eprintln!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Task::Install(folder) => {
            let copied = env::current_exe()
                .map_err(|error| error.to_string())
                .and_then(|program| install::install(&program, &folder).map_err(|error| error.to_string()));
            return match copied {
                Ok(_) => ExitCode::SUCCESS,
                Err(error) => {
                    eprintln!("lmetric-drain: {error}");
                    ExitCode::from(BAD_CALL)
                }
            };
        }
        Task::Engine(task) => {
            tell("draining: taking the engine out of all pickers");
            engine::drain(task, Pace::default())
        }
        Task::Envoy { admin, timeout } => {
            tell("draining: waiting for the last request");
            envoy::drain(admin, timeout, Pace::default())
        }
    };
    tell(&format!("{ended} after {:.1} s", started.elapsed().as_secs_f64()));
    match ended {
        Ended::Drained | Ended::Dead => ExitCode::SUCCESS,
        Ended::TimedOut(_) => ExitCode::from(LEFT),
    }
}

/// Nobody sees what a hook writes, unless it fails; the container's own log is that of its first process.
fn tell(text: &str) {
    eprintln!("lmetric-drain: {text}");
    if let Ok(mut log) = OpenOptions::new().append(true).open("/proc/1/fd/2") {
        let _ = writeln!(log, "lmetric-drain: {text}");
    }
}
