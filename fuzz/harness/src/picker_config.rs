//! The picker's configuration and its endpoints file.
//!
//! An input is the text of either; both parsers read it.

use std::path::Path;

use lmetric_api::{ConfigError, EndpointsFile, PickerConfig};

use crate::assert_one_line;

/// Reads the text twice: the same comes of it, and a refusal is one line that names the file.
pub fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let file = Path::new("/etc/lmetric/picker.yaml");
    let config = PickerConfig::parse(text, file);
    assert_eq!(
        config,
        PickerConfig::parse(text, file),
        "read differently the second time"
    );
    match config {
        Ok(config) => sound(&config),
        Err(error) => refusal(&error, file, text),
    }
    let endpoints = EndpointsFile::parse(text, file);
    assert_eq!(
        endpoints,
        EndpointsFile::parse(text, file),
        "read differently the second time"
    );
    if let Err(error) = endpoints {
        refusal(&error, file, text);
    }
}

/// What the rest of the program relies on.
fn sound(config: &PickerConfig) {
    let PickerConfig {
        models,
        tokens,
        scrape,
        limits,
        prefill_rate,
        speed,
        ..
    } = config;
    assert!(
        models.iter().all(|group| !group.names.is_empty()),
        "a group without a name"
    );
    assert!(
        tokens.threads > 0 && tokens.queue > 0,
        "a tokenizer that does nothing"
    );
    assert!(
        !(scrape.busy.is_zero() || scrape.idle.is_zero() || scrape.timeout.is_zero()),
        "a scrape without pause"
    );
    assert!(limits.body_bytes > 0, "no request has an empty body");
    for rate in [prefill_rate, speed] {
        assert!(rate.is_finite() && *rate > 0.0, "{rate} is no rate");
    }
}

fn refusal(error: &ConfigError, file: &Path, text: &str) {
    let message = error.to_string();
    assert_one_line(&message);
    assert!(message.starts_with(&file.display().to_string()), "{message}");
    // what is quoted is quoted once or twice, and escaped
    assert!(
        message.len() <= 1_000 + 12 * text.len(),
        "{} bytes",
        message.len()
    );
}
