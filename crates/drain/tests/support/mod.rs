//! A server of one answer at a time, which can be told what to say.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test may stop here")]

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    thread,
};

use parking_lot::Mutex;

type Answers = dyn FnMut(&str, &str) -> Option<(u16, String)> + Send;

/// A running server; it ends with the test's process.
pub struct Server {
    pub address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Answers `(method, path)` with what `answers` says; `None`: never.
    pub fn start(answers: impl FnMut(&str, &str) -> Option<(u16, String)> + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let answers: Arc<Mutex<Answers>> = Arc::new(Mutex::new(answers));
        let seen = Arc::clone(&asked);
        thread::spawn(move || {
            let mut held = Vec::new();
            for stream in listener.incoming().flatten() {
                serve(stream, &seen, &answers, &mut held);
            }
        });
        Self { address, asked }
    }

    /// What was asked so far, `METHOD PATH`.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }
}

fn serve(
    mut stream: TcpStream,
    asked: &Mutex<Vec<String>>,
    answers: &Mutex<Answers>,
    held: &mut Vec<TcpStream>,
) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut first = String::new();
    reader.read_line(&mut first).unwrap();
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|count| count > 2) {
        line.clear();
    }
    let mut words = first.split(' ');
    let (method, path) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    asked.lock().push(format!("{method} {path}"));
    match answers.lock()(method, path) {
        Some((status, body)) => {
            let _ = write!(
                stream,
                "HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
        }
        None => held.push(stream),
    }
}

/// An address on which nobody listens.
pub fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}
