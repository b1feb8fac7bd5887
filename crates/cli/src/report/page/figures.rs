//! The table of figures. Each cell shows a figure in short and carries it in full.

use std::fmt::Write as _;

use super::{Page, escape};
use crate::{
    report::{compare::Comparison, table::Unit},
    stats::Stats,
    units::grouped,
};

const QUANTILE_HEADS: &str =
    "<th class=\"start\" scope=\"col\">mean</th><th scope=\"col\">p50</th><th scope=\"col\">p99</th>";

/// A table cell that shows a figure in short and carries it in full.
fn cell(html: &mut String, class: &str, name: &str, value: f64, text: &str) {
    let class = class.trim();
    let class = if class.is_empty() {
        String::new()
    } else {
        format!(" class=\"{class}\"")
    };
    let _ = write!(
        html,
        "<td{class} data-field=\"{name}\" data-value=\"{value}\" title=\"{value}\">{}</td>",
        escape(text)
    );
}

impl Page<'_> {
    pub(super) fn figures(&self, html: &mut String) {
        let comparison = self.comparison;
        let figures = &comparison.figures;
        let unit = |stats: fn(usize, &Comparison) -> Stats| {
            Unit::of((0..figures.len()).map(|i| stats(i, comparison)))
        };
        let ttft = unit(|i, c| c.figures[i].ttft_ms);
        let tpot = unit(|i, c| c.figures[i].tpot_ms);
        let e2e = unit(|i, c| c.figures[i].e2e_ms);
        let base = comparison.baseline.map(|index| escape(comparison.label(index)));
        let _ = write!(
            html,
            "<section><h2>In figures</h2><p class=\"sub\">Times over requests that succeeded; bold is the lowest mean, or the highest hit share.</p><div class=\"scroll\"><table><thead><tr><th rowspan=\"2\" scope=\"col\">Policy</th><th rowspan=\"2\" scope=\"col\">Requests</th><th rowspan=\"2\" scope=\"col\">Errors</th><th class=\"group start\" colspan=\"3\" scope=\"colgroup\">TTFT, {}</th><th class=\"group start\" colspan=\"3\" scope=\"colgroup\">TPOT, {}</th><th class=\"start\" rowspan=\"2\" scope=\"col\">End to end<br>mean, {}</th><th rowspan=\"2\" scope=\"col\">Cached</th>{}</tr><tr>{}{}{}</tr></thead><tbody>",
            ttft.name(),
            tpot.name(),
            e2e.name(),
            base.as_ref().map_or_else(String::new, |base| {
                format!("<th class=\"group start\" colspan=\"2\" scope=\"colgroup\">Mean ÷ {base}’s</th>")
            }),
            QUANTILE_HEADS,
            QUANTILE_HEADS,
            if base.is_some() {
                "<th class=\"start\" scope=\"col\">TTFT</th><th scope=\"col\">TPOT</th>"
            } else {
                ""
            },
        );
        let best = [
            comparison.best(|figures| figures.ttft_ms.mean),
            comparison.best(|figures| figures.tpot_ms.mean),
            comparison.best(|figures| figures.e2e_ms.mean),
            comparison.best(|figures| {
                if figures.hit_ratio > 0.0 {
                    1.0 / figures.hit_ratio
                } else {
                    0.0
                }
            }),
        ];
        for index in self.order.iter().copied() {
            let row = &figures[index];
            let label = comparison.label(index);
            let class = |which: usize, also: &str| {
                format!(
                    "{}{}",
                    if best[which] == Some(index) { "best " } else { "" },
                    also
                )
            };
            let _ = write!(
                html,
                "<tr data-policy=\"{}\"><th scope=\"row\"><span class=\"key c{}\"></span>{}</th>",
                escape(label),
                self.colour(index),
                escape(label)
            );
            cell(html, "", "requests", row.requests as f64, &grouped(row.requests));
            cell(html, "", "errors", row.errors as f64, &grouped(row.errors));
            for (name, stats, unit, which) in [
                ("ttft_ms", row.ttft_ms, ttft, 0),
                ("tpot_ms", row.tpot_ms, tpot, 1),
            ] {
                cell(
                    html,
                    &class(which, "start"),
                    &format!("{name}.mean"),
                    stats.mean,
                    &unit.show(stats.mean),
                );
                cell(html, "", &format!("{name}.p50"), stats.p50, &unit.show(stats.p50));
                cell(html, "", &format!("{name}.p99"), stats.p99, &unit.show(stats.p99));
            }
            cell(
                html,
                &class(2, "start"),
                "e2e_ms.mean",
                row.e2e_ms.mean,
                &e2e.show(row.e2e_ms.mean),
            );
            cell(
                html,
                &class(3, ""),
                "hit_ratio",
                row.hit_ratio,
                &format!("{:.1} %", row.hit_ratio * 100.0),
            );
            if base.is_some() {
                for (name, ratio, also) in [
                    ("ttft_ratio", row.ttft_ratio, "start"),
                    ("tpot_ratio", row.tpot_ratio, ""),
                ] {
                    match ratio {
                        Some(ratio) => cell(html, also, name, ratio, &format!("{ratio:.2}")),
                        None => html.push_str("<td>–</td>"),
                    }
                }
            }
            html.push_str("</tr>");
        }
        html.push_str("</tbody></table></div></section>");
    }
}
