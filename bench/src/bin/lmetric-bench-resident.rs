//! What a picker's process takes that has heard the events of every figure: itself, the index, the ledger and the
//! books of 64 sources, with the allocator of the shipped programs.
//!
//! The messages are made in one process and heard in another, which so has no memory but its own.

use std::{
    fs,
    io::{self, BufReader, BufWriter, ErrorKind, Read, Write},
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context, ensure};
use clap::Parser;
use lmetric_bench::{
    fleet::{self, Fleet},
    results::{self, Figure},
    workload::Workload,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ENDPOINTS: u16 = 64;

/// Measures the memory of a process with 64 endpoints and 2.4 million (endpoint, block) pairs.
#[derive(Parser)]
struct Args {
    /// Where the figure goes; others that are there stay
    #[arg(long, default_value = "target/bench/results.json")]
    out: PathBuf,
    /// Hear messages from standard input and say at its end what memory is taken
    #[arg(long, hide = true)]
    hear: bool,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if args.hear {
        let bytes = hear(BufReader::new(io::stdin().lock()))?;
        return write!(io::stdout(), "{bytes}").context("standard output cannot be written");
    }
    results::check(&args.out)?;
    let workload = Workload::new(1_000, 320, u64::from(ENDPOINTS), 1);
    let program = std::env::current_exe().context("this program's own path")?;
    let mut hearer = Command::new(&program)
        .arg("--hear")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("{}: cannot be started", program.display()))?;
    let messages = hearer.stdin.take().context("the second process has no input")?;
    tell(&workload, BufWriter::new(messages)).context("the second process does not listen")?;
    let said = hearer.wait_with_output()?;
    ensure!(
        said.status.success(),
        "the second process failed: {}",
        said.status
    );
    let bytes: f64 = String::from_utf8(said.stdout)?.parse()?;
    let figure = Figure::value("memory/2.4M_pairs", "MB", vec![bytes / 1e6]);
    eprintln!("{} pairs", workload.pairs);
    eprintln!("{}", results::line(&figure));
    results::merge(&args.out, &[figure])
}

/// Each message with its endpoint and length before it.
fn tell(workload: &Workload, mut out: impl Write) -> io::Result<()> {
    for event in &workload.events {
        let payload = fleet::payload(workload, event);
        out.write_all(&event.endpoint.to_le_bytes())?;
        out.write_all(&(payload.len() as u32).to_le_bytes())?;
        out.write_all(&payload)?;
    }
    out.flush()
}

/// Bytes taken when all was heard.
fn hear(mut messages: impl Read) -> anyhow::Result<u64> {
    let fleet = Fleet::new(ENDPOINTS);
    let mut feeds: Vec<_> = (0..ENDPOINTS).map(|_| fleet.source()).collect();
    let mut payload = Vec::new();
    loop {
        let (mut endpoint, mut length) = ([0; 2], [0; 4]);
        match messages.read_exact(&mut endpoint) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return resident(),
            read => read?,
        }
        messages.read_exact(&mut length)?;
        payload.resize(u32::from_le_bytes(length) as usize, 0);
        messages.read_exact(&mut payload)?;
        let endpoint = u16::from_le_bytes(endpoint);
        let feed = feeds
            .get_mut(usize::from(endpoint))
            .with_context(|| format!("endpoint {endpoint}: there are {ENDPOINTS}"))?;
        fleet.receive(endpoint, feed, &payload);
    }
}

/// Bytes of memory that this process takes.
fn resident() -> anyhow::Result<u64> {
    const FILE: &str = "/proc/self/status";
    let status = fs::read_to_string(FILE).with_context(|| format!("{FILE}: cannot be read"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let kilobytes = kilobytes.with_context(|| format!("{FILE}: no VmRSS; run on Linux"))?;
    Ok(kilobytes.parse::<u64>()? * 1024)
}
