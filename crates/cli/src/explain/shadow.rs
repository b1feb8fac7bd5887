//! `lmetric explain --shadow`: what another policy would have done with the requests that the live one placed.

use std::io::Write;

use serde::Deserialize;

use crate::units::{grouped, short_count};

/// What `/debug/shadow` answers.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ShadowPage {
    /// None where none is configured.
    pub shadow: Option<Shadow>,
}

/// The shadow beside the live policy (`lmetric_scheduler::ShadowView`).
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Shadow {
    /// The live policy.
    pub live_policy: String,
    /// The shadow.
    pub shadow_policy: String,
    /// Requests that both chose for.
    pub picks: u64,
    /// Of these, for which they chose alike.
    pub agreed: u64,
    /// Prompt tokens of all of them.
    pub prompt_tokens: u64,
    /// All picks by the live policy.
    pub live: Side,
    /// All by the shadow.
    pub shadow: Side,
    /// Coefficient of variation of picks over endpoints, live policy.
    pub live_spread: f64,
    /// The same for the shadow.
    pub shadow_spread: f64,
    /// The endpoints of now.
    pub endpoints: Vec<ShadowEndpoint>,
}

/// One policy's figures.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct Side {
    /// Requests.
    pub picks: u64,
    /// Prompt tokens that were not held where it chose.
    pub prefill_tokens: u64,
}

/// One endpoint under both.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ShadowEndpoint {
    /// `ip:port`.
    pub address: String,
    /// Rank.
    #[serde(default)]
    pub rank: Option<u16>,
    /// By the live policy.
    pub live: Side,
    /// By the shadow.
    pub shadow: Side,
}

impl Shadow {
    /// The table and what it comes to.
    pub(super) fn print(&self, out: &mut impl Write) -> std::io::Result<()> {
        let Self {
            live_policy,
            shadow_policy,
            picks,
            ..
        } = self;
        writeln!(
            out,
            "live {live_policy} · shadow {shadow_policy} · {} requests\n",
            grouped(*picks)
        )?;
        let names: Vec<String> = self.endpoints.iter().map(ShadowEndpoint::name).collect();
        let width = names.iter().map(String::len).max().unwrap_or(0).max(8);
        writeln!(
            out,
            "  {:width$}  {:>17}  {:>17}  {:>12}  {:>12}",
            "endpoint", "live picks", "shadow picks", "live prefill", "shadow would"
        )?;
        for (name, endpoint) in names.iter().zip(&self.endpoints) {
            self.line(out, name, width, &endpoint.live, &endpoint.shadow)?;
        }
        self.line(out, "all", width, &self.live, &self.shadow)?;
        writeln!(
            out,
            "  {:width$}  {:>17.3}  {:>17.3}",
            "spread", self.live_spread, self.shadow_spread
        )?;
        writeln!(out, "\n{}", self.sentence())?;
        writeln!(
            out,
            "Picks and prompt tokens not held at the pick; spread: standard deviation of picks ÷ mean. Caches and queues are \
             those that the live policy made: what the shadow would make of them itself, lmetric simulate says."
        )
    }

    fn line(
        &self,
        out: &mut impl Write,
        name: &str,
        width: usize,
        live: &Side,
        shadow: &Side,
    ) -> std::io::Result<()> {
        let share = |picks: u64| 100.0 * picks as f64 / self.picks.max(1) as f64;
        writeln!(
            out,
            "  {name:width$}  {:>10} {:>4.0} %  {:>10} {:>4.0} %  {:>12}  {:>12}",
            grouped(live.picks),
            share(live.picks),
            grouped(shadow.picks),
            share(shadow.picks),
            grouped(live.prefill_tokens),
            grouped(shadow.prefill_tokens),
        )
    }

    /// What the figures come to.
    fn sentence(&self) -> String {
        let Self {
            live_policy,
            shadow_policy,
            picks,
            agreed,
            prompt_tokens: _,
            live,
            shadow,
            live_spread,
            shadow_spread,
            endpoints: _,
        } = self;
        if *picks == 0 {
            return "No request was placed yet; send some through the gateway.".to_owned();
        }
        let other = 100.0 * (picks - agreed.min(picks)) as f64 / *picks as f64;
        let (ours, theirs) = (live.prefill_tokens as f64, shadow.prefill_tokens as f64);
        let prefill = if ours == theirs {
            format!("just as many prompt tokens to prefill ({})", short_count(ours))
        } else {
            let more = if theirs > ours { "more" } else { "fewer" };
            format!(
                "{:.0} % {more} prompt tokens to prefill ({} against {})",
                100.0 * (theirs - ours).abs() / ours.max(1.0),
                short_count(theirs),
                short_count(ours)
            )
        };
        let evenly = if (shadow_spread - live_spread).abs() < 0.01 {
            "as evenly"
        } else if shadow_spread > live_spread {
            "less evenly"
        } else {
            "more evenly"
        };
        format!(
            "{shadow_policy} would have sent {other:.0} % of the requests elsewhere than {live_policy}; it would have had {prefill} \
             and have spread them {evenly} over endpoints."
        )
    }
}

impl ShadowEndpoint {
    fn name(&self) -> String {
        match self.rank {
            Some(rank) => format!("{} rank {rank}", self.address),
            None => self.address.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = r#"{"shadow":{"live_policy":"round-robin","shadow_policy":"bailian(lambda=0.55)","picks":200,"agreed":50,
        "prompt_tokens":2000000,"live":{"picks":200,"prefill_tokens":1600000},"shadow":{"picks":200,"prefill_tokens":400000},
        "live_spread":0.0,"shadow_spread":0.5,"endpoints":[
        {"address":"127.0.1.1:8000","rank":null,"live":{"picks":100,"prefill_tokens":800000},"shadow":{"picks":150,"prefill_tokens":300000}},
        {"address":"127.0.1.2:8000","rank":1,"live":{"picks":100,"prefill_tokens":800000},"shadow":{"picks":50,"prefill_tokens":100000}}]}}"#;

    #[test]
    fn a_table_and_a_sentence_say_what_the_shadow_would_have_done() {
        let page: ShadowPage = serde_json::from_str(PAGE).unwrap();
        let mut out = Vec::new();
        page.shadow.unwrap().print(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "live round-robin · shadow bailian(lambda=0.55) · 200 requests"
        );
        assert_eq!(
            lines[4],
            "  127.0.1.2:8000 rank 1         100   50 %          50   25 %       800,000       100,000"
        );
        assert!(
            lines[6].starts_with("  spread") && lines[6].ends_with("0.000              0.500"),
            "{}",
            lines[6]
        );
        assert_eq!(
            lines[8],
            "bailian(lambda=0.55) would have sent 75 % of the requests elsewhere than round-robin; it would have had 75 % fewer prompt \
             tokens to prefill (400k against 1.6M) and have spread them less evenly over endpoints."
        );
    }

    #[test]
    fn before_the_first_request_it_says_so() {
        let mut page: ShadowPage = serde_json::from_str(PAGE).unwrap();
        let shadow = page.shadow.as_mut().unwrap();
        shadow.picks = 0;
        assert!(shadow.sentence().starts_with("No request was placed yet"));
    }
}
