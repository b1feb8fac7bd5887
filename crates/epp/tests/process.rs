//! The program itself: what it says about bad configurations, and how it starts and ends.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

fn picker(folder: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lmetric-epp"));
    command.arg("--config").arg(folder.join("picker.yaml")).args(more);
    command.env_remove("LMETRIC_LOG");
    command
}

fn folder(config: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("picker.yaml"), config).expect("writes");
    fs::write(folder.path().join("endpoints.yaml"), "endpoints: []\n").expect("writes");
    folder
}

fn run(config: &str, more: &[&str]) -> Output {
    let folder = folder(config);
    picker(folder.path(), more).output().expect("runs")
}

const ANY_PORT: &str = "endpoints: {file: endpoints.yaml}\nlisten: {extProc: \"127.0.0.1:0\", health: \"127.0.0.1:0\", admin: \"127.0.0.1:0\"}\n";

#[test]
fn a_bad_configuration_is_one_line_and_exit_2() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = taken.local_addr().expect("an address");
    let busy = format!(
        "endpoints: {{file: endpoints.yaml}}\nlisten: {{extProc: \"127.0.0.1:0\", health: \"127.0.0.1:0\", admin: \"{taken}\"}}\n"
    );
    let holder = TcpListener::bind(taken).ok();
    for (config, more, words) in [
        (
            "endpoints: {file: endpoints.yaml}\npolicy: best\n",
            &["--check"][..],
            ["policy", "write one of lmetric"],
        ),
        (
            "endpoints: {file: nowhere.yaml}\n",
            &["--check"],
            ["nowhere.yaml", "give the path"],
        ),
        (
            "endpoints: {file: picker.yaml}\n",
            &["--check"],
            ["picker.yaml", "endpoints"],
        ),
        (
            "endpoints: {file: endpoints.yaml}\nmodels: [{names: [m], tokenizer: nowhere}]\n",
            &["--check"],
            ["nowhere", "tokenizer"],
        ),
        (
            "endpoints: {file: endpoints.yaml}\ntls: {mode: Files, certFile: c.pem, keyFile: k.pem}\n",
            &["--check"],
            ["c.pem", "tls.certFile"],
        ),
        (
            "endpoints: {file: endpoints.yaml}\nlog: a=loud\n",
            &["--check"],
            ["log", "write a level"],
        ),
        (
            ANY_PORT,
            &["--check", "--log", "a=loud"],
            ["--log", "write a level"],
        ),
        (&busy, &[], ["listen.admin", "another ip:port"]),
    ] {
        let output = run(config, more);
        let said = String::from_utf8(output.stderr).expect("text");
        let line = said
            .lines()
            .find(|line| line.starts_with("lmetric-epp: "))
            .unwrap_or_default();
        assert_eq!(output.status.code(), Some(2), "{config}: {said}");
        for word in words {
            assert!(line.contains(word), "{config}: {word} is not in {said}");
        }
        if more.contains(&"--check") {
            assert_eq!(said.lines().count(), 1, "{config}: {said}");
        }
    }
    drop(holder);
}

#[test]
fn a_good_configuration_passes_the_check_silently() {
    let output = run(ANY_PORT, &["--check"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty() && output.stdout.is_empty());
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("connects");
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    )
    .expect("writes");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("reads");
    answer
}

#[test]
fn a_site_out_of_reach_keeps_nothing_from_being_ready_and_is_told_of() {
    let config = format!(
        "{ANY_PORT}models: [{{names: [m], tokenizer: \"hf://org/name\", endpoint: \"http://127.0.0.1:9\"}}]\ntokenizerCache: cache\n"
    );
    let folder = folder(&config);
    let mut running = Running(
        picker(folder.path(), &[])
            .stderr(Stdio::piped())
            .spawn()
            .expect("runs"),
    );
    let logs = BufReader::new(running.0.stderr.take().expect("piped"));
    let mut admin = None;
    let mut warned = None;
    for line in logs.lines().map(|line| line.expect("text")) {
        let said: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        if let Some(address) = said["admin"].as_str() {
            admin = Some(address.to_owned());
        }
        if line.contains("no tokenizer yet") {
            warned = Some(line);
        }
        if admin.is_some() && warned.is_some() {
            break;
        }
    }
    let (admin, warned) = (admin.expect("it serves"), warned.expect("it warns"));
    let url = "http://127.0.0.1:9/org/name/resolve/main/tokenizer.json";
    assert!(
        warned.contains(url) && warned.contains("model.endpoint"),
        "{warned}"
    );
    let deadline = Instant::now() + Duration::from_secs(10);
    while !get(&admin, "/readyz").starts_with("HTTP/1.1 200") {
        assert!(Instant::now() < deadline, "not ready: {}", get(&admin, "/readyz"));
        std::thread::sleep(Duration::from_millis(20));
    }
    let page = get(&admin, "/debug/models");
    assert!(
        page.contains("\"state\":\"waiting\"") && page.contains(url),
        "{page}"
    );
    assert!(get(&admin, "/metrics").contains("lmetric_tokenizer_loaded{model=\"m\"} 0"));
    let page = get(&admin, "/debug/config");
    assert!(
        page.contains("\"followed\":false") && page.contains("picker.yaml"),
        "{page}"
    );
}

#[test]
fn it_serves_until_it_is_told_to_stop_and_then_exits_with_0() {
    let folder = folder(ANY_PORT);
    let mut running = Running(
        picker(folder.path(), &[])
            .stderr(Stdio::piped())
            .spawn()
            .expect("runs"),
    );
    let logs = BufReader::new(running.0.stderr.take().expect("piped"));
    let mut lines = logs.lines().map(|line| line.expect("text"));
    let line = lines
        .find(|line| line.contains("the picker serves"))
        .expect("it says where it listens");
    let serves: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    let admin = serves["admin"].as_str().expect("an address").to_owned();
    let deadline = Instant::now() + Duration::from_secs(10);
    while !get(&admin, "/readyz").starts_with("HTTP/1.1 200") {
        assert!(Instant::now() < deadline, "not ready: {}", get(&admin, "/readyz"));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(get(&admin, "/metrics").contains("lmetric_picks_total 0"));
    let id = running.0.id().to_string();
    let told = Command::new("kill")
        .args(["-TERM", &id])
        .status()
        .expect("kill runs");
    assert!(told.success());
    lines
        .find(|line| line.contains("told to stop"))
        .expect("it says why it ends");
    assert!(
        get(&admin, "/readyz").contains("told to stop"),
        "not ready while it drains"
    );
    assert_eq!(running.0.wait().expect("ends").code(), Some(0));
}
