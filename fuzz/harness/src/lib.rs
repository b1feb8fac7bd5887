//! What the fuzz targets do with an input. Each function panics when a rule is broken; the replay test runs the same
//! functions over the corpus, so that what was found once stays found.
//!
//! A module is one target: its first lines say how an input is read, so that seeds can be written.

pub mod ext_proc;
pub mod folders;
pub mod inference_pool;
pub mod kv_events;
pub mod picker_config;
pub mod request_body;
pub mod zmtp;

/// A target: its name, which is also the name of its folders, and what it does with an input.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// As in `fuzz_targets/`.
    pub name: &'static str,
    /// Panics when a rule is broken.
    pub run: fn(&[u8]),
}

/// All of them.
pub const TARGETS: [Target; 6] = [
    Target {
        name: "ext_proc",
        run: ext_proc::run,
    },
    Target {
        name: "inference_pool",
        run: inference_pool::run,
    },
    Target {
        name: "kv_events",
        run: kv_events::run,
    },
    Target {
        name: "picker_config",
        run: picker_config::run,
    },
    Target {
        name: "request_body",
        run: request_body::run,
    },
    Target {
        name: "zmtp",
        run: zmtp::run,
    },
];

/// A message that people read is one line with something on it.
fn assert_one_line(message: &str) {
    assert!(!message.trim().is_empty(), "an empty message");
    assert!(
        !message.contains(char::is_control),
        "a message with control characters: {message:?}"
    );
}
