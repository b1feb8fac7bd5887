//! `lmetric explain --shadow`: what another policy would have done with the requests that the live one placed.

use std::io::Write;

use lmetric_scheduler::{ShadowEndpoint, ShadowView, Side};
use serde::Deserialize;

use crate::units::{grouped, short_count};

/// What `/debug/shadow` answers.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ShadowPage {
    /// None where none is configured.
    pub shadow: Option<ShadowView>,
}

/// The shadow, for a person.
pub(super) struct Shown<'a>(pub(super) &'a ShadowView);

impl Shown<'_> {
    /// The table and what it comes to.
    pub(super) fn print(&self, out: &mut impl Write) -> std::io::Result<()> {
        let ShadowView {
            live_policy,
            shadow_policy,
            picks,
            agreed: _,
            prompt_tokens: _,
            live,
            shadow,
            live_spread,
            shadow_spread,
            endpoints,
        } = self.0;
        writeln!(
            out,
            "live {live_policy} · shadow {shadow_policy} · {} requests\n",
            grouped(*picks)
        )?;
        let names: Vec<String> = endpoints.iter().map(name).collect();
        let width = names.iter().map(String::len).max().unwrap_or(0).max(8);
        writeln!(
            out,
            "  {:width$}  {:>17}  {:>17}  {:>12}  {:>12}",
            "endpoint", "live picks", "shadow picks", "live prefill", "shadow would"
        )?;
        for (name, endpoint) in names.iter().zip(endpoints) {
            self.line(out, name, width, &endpoint.live, &endpoint.shadow)?;
        }
        self.line(out, "all", width, live, shadow)?;
        writeln!(
            out,
            "  {:width$}  {:>17.3}  {:>17.3}",
            "spread", live_spread, shadow_spread
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
        let share = |picks: u64| 100.0 * picks as f64 / self.0.picks.max(1) as f64;
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
        let ShadowView {
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
        } = self.0;
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

fn name(endpoint: &ShadowEndpoint) -> String {
    match endpoint.rank {
        Some(rank) => format!("{} rank {rank}", endpoint.address),
        None => endpoint.address.to_string(),
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
        Shown(&page.shadow.unwrap()).print(&mut out).unwrap();
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
        assert!(Shown(shadow).sentence().starts_with("No request was placed yet"));
    }
}
