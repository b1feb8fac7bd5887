//! The pickers: found by name, told that the pod ends, asked how many of its requests they know.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{SocketAddr, ToSocketAddrs as _},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use crate::{
    Pace,
    http::{Answer, ask},
};

/// What pickers say together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// There is none that can be reached.
    Nobody,
    /// One that may still be reached has not answered.
    Unknown,
    /// So many requests in flight.
    Requests(u64),
}

/// All pickers of the names, as they come and go.
#[derive(Debug)]
pub struct Pickers {
    names: Names,
    known: BTreeMap<SocketAddr, Picker>,
    path: String,
    pace: Pace,
    started: Instant,
    resolved: bool,
}

#[derive(Clone, Copy, Debug)]
struct Picker {
    /// It has taken the pod out.
    told: bool,
    in_flight: Option<u64>,
    /// When it was heard last, or first known.
    heard: Instant,
}

impl Pickers {
    /// The pickers behind `names`, for the pod with this UID.
    pub fn new(names: Vec<String>, pod: &str, pace: Pace) -> Self {
        Self {
            resolved: names.is_empty(),
            names: Names::look_up(names, pace.poll),
            known: BTreeMap::new(),
            path: format!("/drain/{pod}"),
            pace,
            started: Instant::now(),
        }
    }

    /// One round: tells those that do not know yet, asks those that do, all at the same time.
    pub fn ask(&mut self) -> Count {
        self.meet();
        let (path, pace) = (&self.path, self.pace);
        thread::scope(|scope| {
            for (address, picker) in &mut self.known {
                if picker.heard.elapsed() < pace.reach {
                    scope.spawn(move || picker.ask(*address, path, pace.answer));
                }
            }
        });
        self.count()
    }

    fn meet(&mut self) {
        // while the first look-up is under way there is nothing else to do
        let patience = if self.resolved {
            Duration::ZERO
        } else {
            self.pace.poll
        };
        let Some(addresses) = self.names.newest(patience) else {
            return;
        };
        self.resolved = true;
        self.known.retain(|address, _| addresses.contains(address));
        for address in addresses {
            self.known.entry(address).or_insert(Picker {
                told: false,
                in_flight: None,
                heard: Instant::now(),
            });
        }
    }

    fn count(&self) -> Count {
        if !self.resolved && self.started.elapsed() < self.pace.reach {
            return Count::Unknown;
        }
        let mut within_reach = self
            .known
            .values()
            .filter(|picker| picker.heard.elapsed() < self.pace.reach)
            .peekable();
        if within_reach.peek().is_none() {
            return Count::Nobody;
        }
        within_reach
            .try_fold(0, |sum, picker| picker.in_flight.map(|count| sum + count))
            .map_or(Count::Unknown, Count::Requests)
    }
}

impl Picker {
    fn ask(&mut self, address: SocketAddr, path: &str, time: Duration) {
        let method = if self.told { "GET" } else { "POST" };
        let (told, count) = match ask(method, address, path, time) {
            Ok(Answer { status: 200, body }) => (true, in_flight(&body)),
            // a picker that does not know the pod sends nothing to it; it may get to know it
            Ok(Answer { status: 404, .. }) if !self.told => (false, Some(0)),
            // restarted, or it refuses: tell it again
            Ok(_) | Err(_) => (false, None),
        };
        self.told = told;
        self.in_flight = count;
        if count.is_some() {
            self.heard = Instant::now();
        }
    }
}

fn in_flight(body: &str) -> Option<u64> {
    let answer: serde_json::Value = serde_json::from_str(body).ok()?;
    answer.get("inFlight")?.as_u64()
}

/// Addresses behind names, looked up again and again on a thread of its own: a name server that does not answer holds
/// up nobody. The thread ends with its owner.
#[derive(Debug)]
struct Names(Receiver<BTreeSet<SocketAddr>>);

impl Names {
    fn look_up(names: Vec<String>, interval: Duration) -> Self {
        let (found, receiver) = mpsc::sync_channel(1);
        if !names.is_empty() {
            thread::spawn(move || {
                loop {
                    let mut addresses = BTreeSet::new();
                    let mut failed = false;
                    for name in &names {
                        match name.to_socket_addrs() {
                            Ok(of_name) => addresses.extend(of_name),
                            Err(_) => failed = true,
                        }
                    }
                    // with a failure, what is known stays
                    if !failed && found.send(addresses).is_err() {
                        return;
                    }
                    thread::sleep(interval);
                }
            });
        }
        Self(receiver)
    }

    fn newest(&self, patience: Duration) -> Option<BTreeSet<SocketAddr>> {
        self.0
            .try_iter()
            .last()
            .or_else(|| self.0.recv_timeout(patience).ok())
    }
}
