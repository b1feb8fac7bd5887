//! The page of one or more studies: ratios, distributions, rates, imbalance, sweeps. No script, nothing fetched.

mod charts;
mod forecast;
mod groups;
mod table;
mod tuned;

use std::{fmt::Write as _, io::Write};

use anyhow::bail;
use groups::{Colours, HERO, groups, is_plain, main_rate};

use super::page::{STYLE, escape};
use crate::{
    simulate::{Settings, Study},
    units::grouped,
};

/// Studies and what their ratios compare with.
pub(super) struct Studies<'a> {
    pub(super) studies: &'a [Study],
    pub(super) baseline: &'a str,
}

impl<'a> Studies<'a> {
    /// `baseline` must be a label of one of them; without one it is lmetric.
    pub(super) fn new(studies: &'a [Study], baseline: Option<&'a str>) -> anyhow::Result<Self> {
        if let Some(wanted) = baseline {
            let mut labels: Vec<&str> = Vec::new();
            for cell in studies.iter().flat_map(|study| &study.cells) {
                if !labels.contains(&cell.label.as_str()) {
                    labels.push(&cell.label);
                }
            }
            if !labels.contains(&wanted) {
                bail!(
                    "no policy is labelled {wanted:?}; give --baseline one of {}",
                    labels.join(", ")
                );
            }
        }
        Ok(Self {
            studies,
            baseline: baseline.unwrap_or(HERO),
        })
    }

    /// The page.
    pub(super) fn render(&self) -> String {
        let title = match self.studies {
            [study] => headline(study, self.baseline),
            _ => "Schedulers on the same fleets".to_owned(),
        };
        let mut html = format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
             <title>{0}</title><style>{STYLE}</style></head><body><main><header><p class=\"eyebrow\">LMetric · simulated</p><h1>{0}</h1>",
            escape(&title)
        );
        let cells: usize = self.studies.iter().map(|study| study.cells.len()).sum();
        let _ = write!(
            html,
            "<p class=\"lede\">{} run{} in virtual time: engines of a model behind the scheduler and the prefix index that route online. Nothing here was measured on a GPU.</p>",
            grouped(cells as u64),
            if cells == 1 { "" } else { "s" }
        );
        if self.studies.len() > 1 {
            html.push_str("<nav>");
            for (number, study) in self.studies.iter().enumerate() {
                let _ = write!(
                    html,
                    "<a href=\"#s{number}\">{}</a>",
                    escape(&name(&study.settings))
                );
            }
            html.push_str("</nav>");
        }
        html.push_str("</header>");
        for (number, study) in self.studies.iter().enumerate() {
            self.study(&mut html, number, study);
        }
        html.push_str(
            "<section class=\"method\"><h2>How to read it</h2><p><b>TTFT</b>, time to first token: from arrival to the end of the engine step that made it. \
             <b>TPOT</b>, time per output token: from first to last token, divided by tokens less one. <b>Cached</b>: prompt tokens found in the engine’s \
             prefix cache at admission. <b>Spread</b>: requests on the fullest engine less those on the emptiest, mean over seconds.</p>\
             <p>Means and quantiles are averaged over seeds. Capacity is the largest rate at which the mean TTFT of the last quarter of arrivals is at most \
             1.5 × that of the second quarter, over all policies.</p></section>",
        );
        let tool = self
            .studies
            .first()
            .map_or("", |study| study.settings.tool.as_str());
        let _ = writeln!(
            html,
            "<footer>Made by lmetric {}.</footer></main></body></html>",
            escape(tool)
        );
        html
    }

    fn study(&self, html: &mut String, number: usize, study: &Study) {
        let _ = write!(html, "<article id=\"s{number}\">");
        if self.studies.len() > 1 {
            let _ = write!(
                html,
                "<h2 class=\"study\">{}</h2><p class=\"lede\">{}</p>",
                escape(&name(&study.settings)),
                escape(&headline(study, self.baseline))
            );
        }
        if study.interrupted {
            html.push_str("<div class=\"notes\" role=\"note\"><p>This study was interrupted: what had finished is shown.</p></div>");
        }
        let colours = Colours::of(study);
        table::ratios(html, study, self.baseline, &colours);
        charts::distributions(html, study, &colours);
        charts::rates(html, study, &colours);
        charts::imbalance(html, study, self.baseline);
        charts::sweeps(html, study, self.baseline);
        charts::forecasts(html, study);
        table::canary(html, study);
        settings(html, study);
        html.push_str("</article>");
    }

    /// The ratios as JSON: trace, then policy, then figure.
    pub(super) fn json(&self) -> serde_json::Value {
        let studies = self.studies.iter().map(|study| table::json(study, self.baseline));
        serde_json::Value::Array(studies.collect())
    }

    /// The ratios on a terminal.
    pub(super) fn print(&self, out: &mut impl Write) -> std::io::Result<()> {
        for study in self.studies {
            writeln!(out, "{}", name(&study.settings))?;
            table::print(study, self.baseline, out)?;
            forecast::print(study, out)?;
            writeln!(out)?;
        }
        Ok(())
    }
}

fn name(settings: &Settings) -> String {
    let fleet = settings.fleet.parts.iter().map(|part| {
        format!(
            "{} × {} on {}",
            part.count, part.engine.model.name, part.engine.gpu.name
        )
    });
    format!("{}, {}", settings.trace, fleet.collect::<Vec<_>>().join(" and "))
}

/// What the study found, in one sentence.
fn headline(study: &Study, baseline: &str) -> String {
    let rate = main_rate(study);
    let plain = groups(study, |cell| is_plain(cell) && cell.rate_scale == rate);
    let find = |label: &str| plain.iter().find(|group| group.label() == label);
    let (Some(hero), Some(other)) = (find(HERO), find("vllm")) else {
        return format!("{} on {}", baseline, study.settings.trace);
    };
    let ratio =
        |figure: fn(&crate::simulate::Figures) -> f64| other.mean(figure) / hero.mean(figure).max(1e-9);
    let (ttft, tpot) = (
        ratio(|figures| figures.ttft_ms.mean),
        ratio(|figures| figures.tpot_ms.mean),
    );
    format!(
        "lmetric brings the first token {} than vllm’s balancer, and each further one {}",
        sooner(ttft, "sooner", "later"),
        sooner(tpot, "faster", "slower")
    )
}

fn sooner(ratio: f64, better: &str, worse: &str) -> String {
    if ratio >= 1.0 {
        format!("{ratio:.1}× {better}")
    } else {
        format!("{:.1}× {worse}", 1.0 / ratio.max(1e-9))
    }
}

fn settings(html: &mut String, study: &Study) {
    let Settings {
        trace,
        trace_hash,
        format,
        block_size,
        left_out,
        max_model_len,
        fleet,
        window_start_s,
        window_end_s,
        jitter_s,
        warm_up_s,
        event_delay_ms,
        scrape_delay_ms,
        bodies,
        overlay,
        hotspot,
        tool: _,
    } = &study.settings;
    let mut rows = vec![
        (
            "trace",
            format!("{trace} (xxh3 {trace_hash}), {format}, blocks of {block_size} tokens"),
        ),
        (
            "window",
            match window_end_s {
                Some(end) => format!("{window_start_s} s to {end} s, the first {warm_up_s} s not measured"),
                None => format!("{window_start_s} s to the end, the first {warm_up_s} s not measured"),
            },
        ),
        ("jitter", format!("U(0, {jitter_s} s)")),
    ];
    for part in &fleet.parts {
        let engine = &part.engine;
        rows.push((
            "engines",
            format!(
                "{} × {} on {}: {} tokens of KV cache, {} tokens and {} requests a step",
                part.count,
                engine.model.name,
                engine.gpu.name,
                grouped(u64::from(engine.usable_blocks()) * u64::from(engine.block_size)),
                grouped(u64::from(engine.max_num_batched_tokens)),
                engine.max_num_seqs
            ),
        ));
    }
    if let Some(longest) = max_model_len {
        rows.push((
            "left out",
            format!(
                "{left_out} requests of more than {} tokens",
                grouped(u64::from(*longest))
            ),
        ));
    }
    if let Some(capacity) = &study.capacity {
        rows.push((
            "capacity",
            format!(
                "{:.2} × the trace’s rate, {:.1} requests a second",
                capacity.rate_scale, capacity.rate
            ),
        ));
    }
    rows.push((
        "picker",
        format!(
            "events after {event_delay_ms} ms, scrapes after {scrape_delay_ms} ms, {}, {}",
            if *bodies {
                "answers seen"
            } else {
                "answers not seen"
            },
            if *overlay {
                "open requests’ blocks count as held"
            } else {
                "only stored blocks count as held"
            }
        ),
    ));
    rows.push(("hotspot detector", hotspot.clone()));
    html.push_str("<section><h2>What was run</h2><dl class=\"meta\">");
    for (name, value) in rows {
        let _ = write!(html, "<dt>{name}</dt><dd>{}</dd>", escape(&value));
    }
    html.push_str("</dl></section>");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        simulate::{Cell, FleetRequest, FleetSpec, Outcome, SCHEMA, Share, Timeline},
        stats::Stats,
    };

    fn cell(policy: &str, rate_scale: f64, seed: u64, ms: f64) -> Cell {
        let stats = Stats {
            count: 10,
            mean: ms,
            p50: ms,
            p90: ms,
            p99: 2.0 * ms,
            max: 3.0 * ms,
        };
        let mut outcome = Outcome {
            ttft_cdf_ms: (0..=100).map(|at| ms * f64::from(at) / 50.0).collect(),
            tpot_cdf_ms: (0..=100).map(f64::from).collect(),
            timeline: Timeline {
                step_s: 15.0,
                least: vec![0.0, 1.0],
                mean: vec![1.0, 2.0],
                most: vec![3.0, 4.0],
                alarms: vec![0, 2],
                filters: vec![0, 1],
            },
            ..Outcome::default()
        };
        outcome.figures.rate = 3.0 * rate_scale;
        (
            outcome.figures.ttft_ms,
            outcome.figures.tpot_ms,
            outcome.figures.e2e_ms,
        ) = (stats, stats, stats);
        Cell {
            label: policy.to_owned(),
            policy: policy.parse().unwrap(),
            sweep: None,
            share: Share::Whole,
            rate_scale,
            fraction: None,
            seed,
            outcome,
        }
    }

    fn study() -> Study {
        let mut cells = Vec::new();
        for seed in [1, 2] {
            for rate in [1.0, 2.0, 3.0] {
                cells.push(cell("lmetric", rate, seed, 100.0 * rate));
                cells.push(cell("vllm", rate, seed, 250.0 * rate));
                cells.push(cell("bailian(lambda=0.5)", rate, seed, 150.0 * rate));
            }
        }
        for (value, ms) in [("0.2", 300.0), ("0.5", 220.0)] {
            let mut swept = cell(&format!("bailian(lambda={value})"), 2.0, 1, ms);
            swept.sweep = Some(("lambda".to_owned(), value.to_owned()));
            cells.push(swept);
        }
        for share in [Share::Canary, Share::Rest] {
            cells.push(Cell {
                share,
                ..cell("lmetric", 2.0, 1, 50.0)
            });
        }
        let fleet = FleetSpec::new(&FleetRequest {
            engines: 16,
            gpu: "H20",
            gpu_file: None,
            model: "qwen2-7b",
            model_file: None,
            utilization: 0.85,
            max_num_batched_tokens: 8_192,
            max_num_seqs: 256,
        });
        Study {
            schema: SCHEMA.to_owned(),
            settings: Settings {
                trace: "a<b>.jsonl".to_owned(),
                trace_hash: "0".to_owned(),
                format: "mooncake".to_owned(),
                block_size: 512,
                left_out: 0,
                max_model_len: None,
                fleet: fleet.unwrap(),
                window_start_s: 0.0,
                window_end_s: None,
                jitter_s: 3.0,
                warm_up_s: 0.0,
                event_delay_ms: 5.0,
                scrape_delay_ms: 50.0,
                bodies: false,
                overlay: true,
                hotspot: "filter".to_owned(),
                tool: "0".to_owned(),
            },
            capacity: None,
            cells,
            interrupted: true,
        }
    }

    fn render(studies: &[Study]) -> String {
        Studies {
            studies,
            baseline: HERO,
        }
        .render()
    }

    #[test]
    fn an_unknown_baseline_is_refused_with_the_known_ones() {
        let studies = [study()];
        assert_eq!(Studies::new(&studies, Some("vllm")).unwrap().baseline, "vllm");
        assert_eq!(Studies::new(&studies, None).unwrap().baseline, HERO);
        let refused = Studies::new(&studies, Some("vlm")).err().unwrap().to_string();
        assert_eq!(
            refused,
            "no policy is labelled \"vlm\"; give --baseline one of lmetric, vllm, bailian(lambda=0.5), bailian(lambda=0.2)"
        );
    }

    #[test]
    fn the_page_is_self_contained_and_has_every_part() {
        let html = render(&[study()]);
        for part in [
            "<h1>lmetric brings the first token 2.5× sooner",
            "Distributions",
            "Against the rate",
            "Balance over time",
            "bailian: lambda swept",
            "Canary",
            "bailian, best of 2",
            "class=\"mark strong\"",
            "was interrupted",
            "a&lt;b&gt;.jsonl",
            "prefers-color-scheme: dark",
            "data-value=\"200\"",
        ] {
            assert!(html.contains(part), "{part}");
        }
        for never in ["<script", "http://", "https://", "NaN", "a<b>"] {
            assert!(!html.contains(never), "{never}");
        }
    }

    #[test]
    fn several_studies_are_found_by_links() {
        let html = render(&[study(), study()]);
        assert!(html.contains("href=\"#s1\"") && html.contains("<article id=\"s1\">"));
    }

    #[test]
    fn ratios_compare_with_the_baseline_at_every_rate() {
        let studies = [study()];
        let of = |baseline| {
            Studies {
                studies: &studies,
                baseline,
            }
            .json()
        };
        let ratio = |json: &serde_json::Value, policy: &str| {
            json[0]["rates"][1]["policies"][policy]["TTFT mean"]["ratio"].as_f64()
        };
        assert_eq!(ratio(&of(HERO), "vllm"), Some(2.5));
        assert_eq!(ratio(&of("vllm"), "lmetric"), Some(0.4));
        assert_eq!(ratio(&of("nobody"), "vllm"), None);
        // of λ 0.2 and 0.5, the better one against 200 ms
        let best = &of(HERO)[0]["rates"][1]["best_of_sweep"]["bailian"]["TTFT mean"];
        assert_eq!(best["setting"], "bailian(lambda=0.5)");
        assert_eq!(best["ratio"].as_f64(), Some(1.1));
        let mut text = Vec::new();
        let all = Studies {
            studies: &studies,
            baseline: HERO,
        };
        all.print(&mut text).unwrap();
        assert!(String::from_utf8(text).unwrap().contains("bailian(lambda=0.5)"));
    }
}
