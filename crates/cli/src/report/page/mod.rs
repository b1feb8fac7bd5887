//! The report as one self-contained HTML page: no script, no font, nothing fetched.

mod figures;

use std::fmt::Write as _;

use super::{
    compare::{Comparison, settings},
    plot::{Curve, cdf},
};
use crate::{
    run_file::{Record, RunFile},
    stats::Stats,
    units::{grouped, time_ms},
};

pub(super) const STYLE: &str = include_str!("style.css");
/// Colours of the page.
const COLOURS: usize = 8;

/// Text made safe for HTML, in content and in quoted attributes.
pub(crate) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

/// The whole page.
pub(super) fn render(comparison: &Comparison) -> String {
    let page = Page::new(comparison);
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{}</title><style>{STYLE}</style></head><body><main>",
        escape(&page.headline())
    );
    page.header(&mut html);
    page.callouts(&mut html);
    page.warnings(&mut html);
    page.plots(&mut html);
    page.figures(&mut html);
    page.runs(&mut html);
    let _ = writeln!(
        html,
        "<footer>Made by {} from {} run file{}.</footer></main></body></html>",
        escape(&page.first().run.tool),
        comparison.runs.len(),
        if comparison.runs.len() == 1 { "" } else { "s" }
    );
    html
}

struct Page<'a> {
    comparison: &'a Comparison,
    /// The run that the page is about.
    hero: usize,
    /// Run indices, the hero first, then the baseline.
    order: Vec<usize>,
}

impl<'a> Page<'a> {
    fn new(comparison: &'a Comparison) -> Self {
        let count = comparison.runs.len();
        let hero = (0..count)
            .find(|index| comparison.label(*index) == "lmetric")
            .or_else(|| comparison.best(|figures| figures.ttft_ms.mean))
            .unwrap_or(0);
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by_key(|index| (*index != hero, Some(*index) != comparison.baseline));
        Self {
            comparison,
            hero,
            order,
        }
    }

    fn first(&self) -> &RunFile {
        &self.comparison.runs[self.hero]
    }

    fn colour(&self, index: usize) -> usize {
        self.order.iter().position(|other| *other == index).unwrap_or(0) % COLOURS
    }

    /// The hero and the baseline, when they are two.
    fn versus(&self) -> Option<(usize, usize)> {
        self.comparison
            .baseline
            .filter(|base| *base != self.hero)
            .map(|base| (self.hero, base))
    }

    fn headline(&self) -> String {
        let figures = &self.comparison.figures;
        let label = |index| self.comparison.label(index);
        let Some((hero, base)) = self.versus() else {
            return match self.comparison.runs.len() {
                1 => format!("{} on {}", label(self.hero), self.first().run.trace),
                n => format!("{n} schedulers on {}", self.first().run.trace),
            };
        };
        let (ours, theirs) = (figures[hero].ttft_ms.mean, figures[base].ttft_ms.mean);
        if ours <= 0.0 || theirs <= 0.0 {
            return format!(
                "{} and {} on {}",
                label(hero),
                label(base),
                self.first().run.trace
            );
        }
        let (fast, slow, times) = if ours <= theirs {
            (hero, base, theirs / ours)
        } else {
            (base, hero, ours / theirs)
        };
        if times < 1.02 {
            return format!(
                "{} and {} bring the first token equally soon",
                label(hero),
                label(base)
            );
        }
        format!(
            "{} brings the first token {times:.1}× sooner than {}",
            label(fast),
            label(slow)
        )
    }

    fn header(&self, html: &mut String) {
        let run = &self.first().run;
        let minutes = |seconds: f64| (seconds / 6.0).round() / 10.0;
        let window = match run.window_end_s {
            Some(end) => format!("minutes {}–{}", minutes(run.window_start_s), minutes(end)),
            None if run.window_start_s > 0.0 => format!("from minute {}", minutes(run.window_start_s)),
            None => "whole".to_owned(),
        };
        let speed = if run.speed == 1.0 {
            String::new()
        } else {
            " All times are model time.".to_owned()
        };
        let _ = write!(
            html,
            "<header><p class=\"eyebrow\">LMetric · routing report</p><h1>{}</h1><p class=\"lede\">{} requests of {} ({window}) at {} × the trace’s rate, replayed open loop against {}.{speed}</p></header>",
            escape(&self.headline()),
            grouped(run.planned),
            escape(&run.trace),
            run.rate_scale,
            escape(&run.model),
        );
    }

    fn callouts(&self, html: &mut String) {
        let mut cards = String::new();
        let figures = &self.comparison.figures;
        if let Some((hero, base)) = self.versus() {
            let name = escape(self.comparison.label(base));
            let mut ratio = |what: &str, ratio: Option<f64>, stats: fn(usize, &Comparison) -> Stats| {
                let Some(ratio) = ratio else { return };
                let (ours, theirs) = (stats(hero, self.comparison), stats(base, self.comparison));
                let _ = write!(
                    cards,
                    "<div><dt>{what}</dt><dd><span class=\"big\" data-ratio=\"{ratio}\">{ratio:.2}<small> ×</small></span><span class=\"why\">of {name}’s: {} against {}</span></dd></div>",
                    time_ms(ours.mean),
                    time_ms(theirs.mean)
                );
            };
            ratio("Mean time to first token", figures[hero].ttft_ratio, |i, c| {
                c.figures[i].ttft_ms
            });
            ratio("Mean time per output token", figures[hero].tpot_ratio, |i, c| {
                c.figures[i].tpot_ms
            });
            let _ = write!(
                cards,
                "<div><dt>Prompt tokens cached</dt><dd><span class=\"big\">{:.0}<small> %</small></span><span class=\"why\">{name}: {:.0} %</span></dd></div>",
                figures[hero].hit_ratio * 100.0,
                figures[base].hit_ratio * 100.0
            );
        }
        if let Some(idle) = self.comparison.idle {
            let _ = write!(
                cards,
                "<div><dt>Overhead in model time</dt><dd><span class=\"big\" data-overhead=\"{}\">{:+.1}<small> %</small></span><span class=\"why\">idle TTFT {}, by the engine model {}</span></dd></div>",
                idle.overhead,
                idle.overhead * 100.0,
                time_ms(idle.measured_ttft_ms),
                time_ms(idle.model_ttft_ms)
            );
        }
        if !cards.is_empty() {
            let _ = write!(html, "<dl class=\"figures\">{cards}</dl>");
        }
    }

    fn warnings(&self, html: &mut String) {
        let mut notes: Vec<String> = self.comparison.warnings.clone();
        for RunFile { run, summary, .. } in &self.comparison.runs {
            for (kind, count) in &summary.errors_by_kind {
                let example = summary.error_examples.get(kind).map_or("", String::as_str);
                notes.push(format!("{}: {count} × {kind}, for example: {example}", run.label));
            }
        }
        if notes.is_empty() {
            return;
        }
        html.push_str("<div class=\"notes\" role=\"note\">");
        for note in notes {
            let _ = write!(html, "<p>{}</p>", escape(&note));
        }
        html.push_str("</div>");
    }

    fn plots(&self, html: &mut String) {
        html.push_str("<section class=\"plots\">");
        let mut plot = |title: &str, short: &str, figure: fn(&Record) -> Option<f64>| {
            let curves: Vec<Curve<'_>> = self
                .order
                .iter()
                .map(|index| {
                    let rows = self.comparison.runs[*index].records.rows.iter();
                    let good = rows.filter(|record| record.error.is_none()).filter_map(figure);
                    Curve::new(self.comparison.label(*index), self.colour(*index), good)
                })
                .collect();
            let _ = write!(
                html,
                "<figure><h2>{title}</h2><p class=\"sub\">Share of requests within a time, %. Further left is better; the dots are 50, 90 and 99 %.</p>{}</figure>",
                cdf(short, &curves)
            );
        };
        plot("Time to first token", "TTFT", |record| record.ttft_ms);
        plot("Time per output token", "TPOT", |record| record.tpot_ms);
        html.push_str("</section>");
    }

    fn runs(&self, html: &mut String) {
        let run = &self.first().run;
        html.push_str("<section class=\"two\"><div><h2>What was run</h2><p class=\"sub\">The same for every policy, unless a note above says otherwise.</p><dl class=\"meta\">");
        for (name, value) in settings(run) {
            let _ = write!(html, "<dt>{name}</dt><dd>{}</dd>", escape(&value));
        }
        let _ = write!(html, "<dt>endpoint</dt><dd>{}</dd></dl></div>", escape(&run.url));
        html.push_str("<div><h2>How it went</h2><p class=\"sub\">Lateness is this tool’s own: how long after its moment a request was sent.</p><div class=\"scroll\"><table><thead><tr><th scope=\"col\">Policy</th><th scope=\"col\">Took, s</th><th scope=\"col\">Most in flight</th><th scope=\"col\">Late p50, ms</th><th scope=\"col\">p99, ms</th><th scope=\"col\">Output tokens</th></tr></thead><tbody>");
        for index in self.order.iter().copied() {
            let RunFile { run, summary, .. } = &self.comparison.runs[index];
            let _ = write!(
                html,
                "<tr><th scope=\"row\">{}</th><td>{:.0}</td><td>{}</td><td>{:.1}</td><td>{:.1}</td><td>{}</td></tr>",
                escape(&run.label),
                run.wall_s,
                grouped(summary.peak_in_flight),
                summary.late_ms.p50,
                summary.late_ms.p99,
                grouped(summary.output_tokens)
            );
        }
        html.push_str("</tbody></table></div></div></section>");
        html.push_str(
            "<section class=\"method\"><h2>How to read it</h2>\
             <p><b>TTFT</b>, time to first token: from sending a request to the first chunk with generated output. \
             <b>TPOT</b>, time per output token: from the first to the last such chunk, divided by the tokens generated less one. \
             <b>Cached</b>: prompt tokens that the engines report as served from their prefix caches, of all prompt tokens.</p>\
             <p>Open loop: a request is sent at its moment in the trace, however slow earlier answers are. Model time: measured time multiplied by the speed \
             at which simulated engines run; 1 for real ones. Quantiles are nearest rank.</p></section>",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn markup_in_labels_is_text() {
        assert_eq!(escape("<b a=\"1\">&'"), "&lt;b a=&quot;1&quot;&gt;&amp;&#39;");
    }
}
