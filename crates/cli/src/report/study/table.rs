//! Ratios: on the page, on a terminal and as JSON.

use std::{
    fmt::Write as _,
    io::{self, Write},
};

use serde_json::{Value, json};

use super::{
    super::page::escape,
    forecast,
    groups::{Colours, Figure, Group, groups, is_plain, main_rate, rates},
    tuned::tuned,
};
use crate::{
    simulate::{Share, Study},
    units::{grouped, time_ms},
};

/// Figures that are compared: a heading, and how to read it off.
const COMPARED: [(&str, Figure); 4] = [
    ("TTFT mean", |figures| figures.ttft_ms.mean),
    ("TTFT p99", |figures| figures.ttft_ms.p99),
    ("TPOT mean", |figures| figures.tpot_ms.mean),
    ("TPOT p99", |figures| figures.tpot_ms.p99),
];

const END_TO_END: Figure = |figures| figures.e2e_ms.mean;

fn at_rate(study: &Study, rate: f64) -> Vec<Group<'_>> {
    groups(study, |cell| is_plain(cell) && cell.rate_scale == rate)
}

fn base<'a, 'b>(plain: &'a [Group<'b>], baseline: &str) -> Option<&'a Group<'b>> {
    plain.iter().find(|group| group.label() == baseline)
}

/// The table at the study's main rate.
pub(super) fn ratios(html: &mut String, study: &Study, baseline: &str, colours: &Colours) {
    let rate = main_rate(study);
    let plain = at_rate(study, rate);
    if plain.is_empty() {
        return;
    }
    let base = base(&plain, baseline);
    let fraction = plain[0].first().fraction;
    let at = fraction.map_or_else(
        || format!("{rate} × the trace’s rate"),
        |fraction| {
            format!(
                "{:.0} % of capacity ({rate} × the trace’s rate)",
                fraction * 100.0
            )
        },
    );
    let compared = base.map_or_else(String::new, |base| {
        format!(" In grey: ÷ {}’s.", escape(base.label()))
    });
    let _ = write!(
        html,
        "<section><h2>In figures, at {at}</h2><p class=\"sub\">{:.1} requests a second.{compared} Bold is the best of a column.</p><div class=\"scroll\"><table class=\"ratios\"><thead><tr><th scope=\"col\">Policy</th>",
        plain[0].mean(|figures| figures.rate)
    );
    for (name, _) in COMPARED {
        let _ = write!(html, "<th scope=\"col\">{name}</th>");
    }
    html.push_str("<th scope=\"col\">End to end</th><th scope=\"col\">Cached</th><th scope=\"col\">Spread</th></tr></thead><tbody>");
    let least = |figure: Figure| {
        plain
            .iter()
            .map(|group| group.mean(figure))
            .fold(f64::INFINITY, f64::min)
    };
    let mut order: Vec<&Group<'_>> = plain.iter().collect();
    order.sort_by(|one, other| {
        one.mean(|figures| figures.e2e_ms.mean)
            .total_cmp(&other.mean(|figures| figures.e2e_ms.mean))
    });
    for group in order {
        let key = colours.get(group.label()).map_or_else(
            || "<span class=\"key none\"></span>".to_owned(),
            |colour| format!("<span class=\"key c{colour}\"></span>"),
        );
        let _ = write!(html, "<tr><th scope=\"row\">{key}{}</th>", escape(group.label()));
        let mut cell = |figure: Figure, text: &dyn Fn(f64) -> String, best: bool| {
            let value = group.mean(figure);
            let ratio = base
                .map(|base| value / base.mean(figure))
                .filter(|ratio| ratio.is_finite());
            let _ = write!(
                html,
                "<td{} data-value=\"{value}\">{}{}</td>",
                if best { " class=\"best\"" } else { "" },
                text(value),
                ratio.map_or_else(String::new, |ratio| format!(" <small>{ratio:.2}</small>"))
            );
        };
        for (_, figure) in COMPARED {
            cell(figure, &time_ms, group.mean(figure) <= least(figure));
        }
        cell(END_TO_END, &time_ms, group.mean(END_TO_END) <= least(END_TO_END));
        let _ = write!(
            html,
            "<td>{:.1} %</td><td>{:.1}</td></tr>",
            group.mean(|figures| figures.hit_ratio) * 100.0,
            group.mean(|figures| figures.spread_bs)
        );
    }
    let best_ratio = |value: f64, figure: Figure| {
        let ratio = base.map(|base| value / base.mean(figure));
        let ratio = ratio.filter(|ratio| ratio.is_finite());
        ratio.map_or_else(String::new, |ratio| format!(" <small>{ratio:.2}</small>"))
    };
    let swept = tuned(study, rate);
    for one in &swept {
        let _ = write!(
            html,
            "<tr class=\"tuned\"><th scope=\"row\"><span class=\"key none\"></span>{}, best of {}</th>",
            escape(one.policy),
            one.tried()
        );
        for figure in COMPARED.map(|(_, figure)| figure).into_iter().chain([END_TO_END]) {
            let (value, setting) = one.best(figure);
            let _ = write!(
                html,
                "<td data-value=\"{value}\" title=\"{}\">{}{}</td>",
                escape(setting),
                time_ms(value),
                best_ratio(value, figure)
            );
        }
        html.push_str("<td></td><td></td></tr>");
    }
    html.push_str("</tbody></table></div>");
    if !swept.is_empty() {
        html.push_str("<p class=\"sub\">“Best of”: the best of a baseline’s settings for each figure by itself, its source’s and those of the sweeps below; point at a figure for the setting.</p>");
    }
    html.push_str("</section>");
}

/// The two sides of a split fleet, where there is one.
pub(super) fn canary(html: &mut String, study: &Study) {
    let sides = groups(study, |cell| cell.share != Share::Whole);
    if sides.is_empty() {
        return;
    }
    html.push_str("<section><h2>Canary</h2><p class=\"sub\">The same requests per GPU on two fleets: a third under one policy, two thirds under another.</p><div class=\"scroll\"><table class=\"ratios\"><thead><tr><th scope=\"col\">Policy</th><th scope=\"col\">Share</th><th scope=\"col\">Rate</th><th scope=\"col\">Requests</th><th scope=\"col\">TTFT mean</th><th scope=\"col\">TTFT p99</th><th scope=\"col\">TPOT mean</th><th scope=\"col\">TPOT p99</th></tr></thead><tbody>");
    for group in &sides {
        let share = if group.first().share == Share::Canary {
            "⅓"
        } else {
            "⅔"
        };
        let _ = write!(
            html,
            "<tr><th scope=\"row\">{}</th><td>{share}</td><td>{}</td><td>{}</td>",
            escape(group.label()),
            group.first().rate_scale,
            grouped(group.mean(|figures| figures.requests as f64) as u64)
        );
        for (_, figure) in COMPARED {
            let _ = write!(html, "<td>{}</td>", time_ms(group.mean(figure)));
        }
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table></div></section>");
}

/// Every rate's figures and ratios.
pub(super) fn json(study: &Study, baseline: &str) -> Value {
    let rates = rates(study).into_iter().map(|rate| {
        let plain = at_rate(study, rate);
        let base = base(&plain, baseline);
        let policies = plain.iter().map(|group| {
            let figures = COMPARED.map(|(name, figure)| {
                let value = group.mean(figure);
                (
                    name.to_owned(),
                    json!({"ms": value, "ratio": base.map(|base| value / base.mean(figure))}),
                )
            });
            let mut object: serde_json::Map<String, Value> = figures.into_iter().collect();
            object.insert(
                "hit_ratio".to_owned(),
                json!(group.mean(|figures| figures.hit_ratio)),
            );
            object.insert(
                "spread_bs".to_owned(),
                json!(group.mean(|figures| figures.spread_bs)),
            );
            (group.label().to_owned(), Value::Object(object))
        });
        let policies: serde_json::Map<String, Value> = policies.collect();
        let best = tuned(study, rate).into_iter().map(|one| {
            let figures = COMPARED.map(|(name, figure)| {
                let (value, setting) = one.best(figure);
                let ratio = base.map(|base| value / base.mean(figure));
                (
                    name.to_owned(),
                    json!({"ms": value, "setting": setting, "ratio": ratio}),
                )
            });
            (
                one.policy.to_owned(),
                Value::Object(figures.into_iter().collect()),
            )
        });
        let best: serde_json::Map<String, Value> = best.collect();
        json!({"rate_scale": rate, "policies": policies, "best_of_sweep": best})
    });
    json!({
        "trace": study.settings.trace,
        "baseline": baseline,
        "capacity": study.capacity,
        "rates": rates.collect::<Vec<_>>(),
        "forecasts": forecast::json(study),
    })
}

/// The table at every rate.
pub(super) fn print(study: &Study, baseline: &str, out: &mut impl Write) -> io::Result<()> {
    for rate in rates(study) {
        let plain = at_rate(study, rate);
        let base = base(&plain, baseline);
        let wide = plain
            .iter()
            .map(|group| group.label().chars().count())
            .max()
            .unwrap_or(0)
            .max(6);
        write!(out, "{:wide$}", format!("× {rate}"))?;
        for (name, _) in COMPARED {
            write!(out, "  {name:>10} {:>5}", base.map_or("", |_| "÷"))?;
        }
        writeln!(out, "  {:>6}  {:>6}", "hit", "spread")?;
        for group in &plain {
            write!(out, "{:wide$}", group.label())?;
            for (_, figure) in COMPARED {
                let value = group.mean(figure);
                let ratio = base.map_or_else(String::new, |base| format!("{:.2}", value / base.mean(figure)));
                write!(out, "  {:>10} {ratio:>5}", time_ms(value))?;
            }
            writeln!(
                out,
                "  {:>4.1} %  {:>6.1}",
                group.mean(|figures| figures.hit_ratio) * 100.0,
                group.mean(|figures| figures.spread_bs)
            )?;
        }
        for one in tuned(study, rate) {
            write!(out, "{}, best of {}:", one.policy, one.tried())?;
            for (name, figure) in COMPARED {
                let (value, setting) = one.best(figure);
                let ratio =
                    base.map_or_else(String::new, |base| format!(" ({:.2})", value / base.mean(figure)));
                write!(out, "  {name} {}{ratio} {setting}", time_ms(value))?;
            }
            writeln!(out)?;
        }
    }
    Ok(())
}
