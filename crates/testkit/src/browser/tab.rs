//! One tab: go to a page, ask it, look at it.

use std::{path::Path, time::Duration};

use anyhow::{Context, bail, ensure};
use futures::future::try_join_all;
use serde_json::{Value, json};

use super::pipe::Pipe;
use crate::wait::wait_until;

/// How the page is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// CSS pixels.
    pub width: u32,
    /// CSS pixels.
    pub height: u32,
    /// A telephone: touch, and two device pixels for one of CSS.
    pub phone: bool,
    /// `prefers-color-scheme`.
    pub dark: bool,
}

impl Look {
    /// A desktop's window, 1440 pixels wide.
    pub const fn desktop(dark: bool) -> Self {
        Self {
            width: 1440,
            height: 1000,
            phone: false,
            dark,
        }
    }

    /// A telephone, 390 pixels wide.
    pub const fn phone(dark: bool) -> Self {
        Self {
            width: 390,
            height: 844,
            phone: true,
            dark,
        }
    }
}

/// A tab of a [`super::Browser`].
pub struct Tab {
    pipe: Pipe,
    session: String,
}

impl Tab {
    pub(super) async fn new(pipe: Pipe, session: String) -> anyhow::Result<Self> {
        let tab = Self { pipe, session };
        let domains = ["Page", "Runtime", "Network", "Log"];
        try_join_all(domains.map(|domain| {
            let tab = &tab;
            async move { tab.call(&format!("{domain}.enable"), json!({})).await }
        }))
        .await?;
        Ok(tab)
    }

    async fn call(&self, method: &str, params: Value) -> anyhow::Result<Value> {
        self.pipe.call(Some(&self.session), method, params).await
    }

    /// Sets the window's size and the colours asked for.
    pub async fn look(&self, look: Look) -> anyhow::Result<()> {
        let Look {
            width,
            height,
            phone,
            dark,
        } = look;
        let metrics = json!({
            "width": width, "height": height, "mobile": phone, "deviceScaleFactor": if phone { 2 } else { 1 },
        });
        self.call("Emulation.setDeviceMetricsOverride", metrics).await?;
        self.call("Emulation.setTouchEmulationEnabled", json!({"enabled": phone}))
            .await?;
        let colours = if dark { "dark" } else { "light" };
        let media = json!({"features": [
            {"name": "prefers-color-scheme", "value": colours}, {"name": "prefers-reduced-motion", "value": "reduce"},
        ]});
        self.call("Emulation.setEmulatedMedia", media).await?;
        Ok(())
    }

    /// Loads `url`; an error when it cannot be had.
    pub async fn open(&self, url: &str) -> anyhow::Result<()> {
        let gone = self.call("Page.navigate", json!({"url": url})).await?;
        if let Some(error) = gone["errorText"].as_str() {
            bail!("{url}: {error}");
        }
        let limit = Duration::from_secs(20);
        self.wait_for("document.readyState === 'complete'", limit).await
    }

    /// The value of a JavaScript expression, or of the promise that it is.
    pub async fn ask(&self, expression: &str) -> anyhow::Result<Value> {
        let params = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let answer = self.call("Runtime.evaluate", params).await?;
        if answer["exceptionDetails"].is_object() {
            bail!("{expression}: {}", thrown(&answer["exceptionDetails"]));
        }
        Ok(answer["result"]["value"].clone())
    }

    /// Waits until an expression is true.
    pub async fn wait_for(&self, expression: &str, limit: Duration) -> anyhow::Result<()> {
        wait_until(expression, limit, || async {
            match self.ask(expression).await {
                Ok(Value::Bool(true)) => Ok(()),
                Ok(other) => Err(other.to_string()),
                Err(error) => Err(format!("{error:#}")),
            }
        })
        .await?;
        Ok(())
    }

    /// Everything since the last call that a person would find red in the browser's console: errors, exceptions, failed
    /// assertions, requests that failed or were answered with 400 or more.
    pub fn take_problems(&self) -> Vec<String> {
        let events = self.pipe.take_events(&self.session);
        events.iter().filter_map(problem).collect()
    }

    /// How far the page is wider than its window, pixels.
    pub async fn overflow(&self) -> anyhow::Result<i64> {
        let ask = "document.documentElement.scrollWidth - document.documentElement.clientWidth";
        self.ask(ask).await?.as_i64().context("no width")
    }

    /// Writes what the window shows, as PNG; with `most`, as much of the page below it, up to that many pixels of height.
    pub async fn picture(&self, to: &Path, most: Option<u32>) -> anyhow::Result<()> {
        let mut params = json!({"format": "png", "optimizeForSpeed": false});
        if let Some(most) = most {
            let size = self.call("Page.getLayoutMetrics", json!({})).await?["cssContentSize"].clone();
            let [width, height] = ["width", "height"].map(|side| size[side].as_f64().unwrap_or_default());
            ensure!(width > 0.0 && height > 0.0, "the page has no size");
            params["captureBeyondViewport"] = true.into();
            params["clip"] =
                json!({"x": 0, "y": 0, "width": width, "height": height.min(f64::from(most)), "scale": 1});
        }
        let shot = self.call("Page.captureScreenshot", params).await?;
        let data = shot["data"].as_str().context("no picture")?;
        std::fs::write(to, base64(data)?).with_context(|| format!("cannot write {}", to.display()))
    }
}

fn problem(event: &Value) -> Option<String> {
    let params = &event["params"];
    match event["method"].as_str()? {
        "Runtime.exceptionThrown" => Some(thrown(&params["exceptionDetails"])),
        "Runtime.consoleAPICalled"
            if matches!(params["type"].as_str(), Some("error" | "warning" | "assert")) =>
        {
            Some(format!("console: {}", params["args"]))
        }
        "Log.entryAdded" if params["entry"]["level"] == "error" => {
            Some(format!("{}: {}", params["entry"]["text"], params["entry"]["url"]))
        }
        "Network.loadingFailed" if params["canceled"] != true => {
            Some(format!("a request failed: {}", params["errorText"]))
        }
        "Network.responseReceived" if params["response"]["status"].as_u64() >= Some(400) => Some(format!(
            "{} answered {}",
            params["response"]["url"], params["response"]["status"]
        )),
        _ => None,
    }
}

fn thrown(details: &Value) -> String {
    let text = details["exception"]["description"].as_str();
    text.or(details["text"].as_str())
        .unwrap_or("an exception")
        .to_owned()
}

/// Standard base64, as the browser writes it.
fn base64(text: &str) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut held) = (0_u32, 0);
    for byte in text.trim_end_matches('=').bytes() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => bail!("a picture that is not base64"),
        };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_decoded() {
        for (text, bytes) in [
            ("", ""),
            ("Zg==", "f"),
            ("Zm8=", "fo"),
            ("Zm9v", "foo"),
            ("Zm9vYmFy", "foobar"),
        ] {
            assert_eq!(base64(text).unwrap(), bytes.as_bytes(), "{text}");
        }
        assert_eq!(base64("+/8A").unwrap(), [0xfb, 0xff, 0x00]);
        assert!(base64("no picture").is_err());
    }

    #[test]
    fn what_is_red_in_the_console_is_a_problem_and_a_closed_stream_is_not() {
        let event = |method: &str, params: Value| json!({"method": method, "params": params});
        for bad in [
            event(
                "Runtime.exceptionThrown",
                json!({"exceptionDetails": {"text": "Uncaught"}}),
            ),
            event("Runtime.consoleAPICalled", json!({"type": "error", "args": []})),
            event(
                "Log.entryAdded",
                json!({"entry": {"level": "error", "text": "x"}}),
            ),
            event("Network.loadingFailed", json!({"errorText": "net::ERR"})),
            event(
                "Network.responseReceived",
                json!({"response": {"status": 404, "url": "x"}}),
            ),
        ] {
            assert!(problem(&bad).is_some(), "{bad}");
        }
        for good in [
            event("Runtime.consoleAPICalled", json!({"type": "log", "args": []})),
            event("Log.entryAdded", json!({"entry": {"level": "info", "text": "x"}})),
            event(
                "Network.loadingFailed",
                json!({"errorText": "net::ERR_ABORTED", "canceled": true}),
            ),
            event(
                "Network.responseReceived",
                json!({"response": {"status": 200, "url": "x"}}),
            ),
            event("Page.loadEventFired", json!({})),
        ] {
            assert_eq!(problem(&good), None, "{good}");
        }
    }
}
