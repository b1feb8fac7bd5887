//! The drawings of a study.

use std::fmt::Write as _;

use super::{
    super::{
        page::escape,
        plot::{Line, Plane, lines, tick_label},
    },
    forecast,
    groups::{Colours, Figure, Group, groups, is_plain, main_rate},
};
use crate::{
    simulate::{Cell, Study},
    units::time_ms,
};

/// A distribution to read off.
type Quantiles = fn(&Cell) -> &[f64];

/// What is drawn against a rate or a parameter.
const DRAWN: [(&str, Figure); 4] = [
    ("Mean TTFT", |figures| figures.ttft_ms.mean),
    ("P99 TTFT", |figures| figures.ttft_ms.p99),
    ("Mean TPOT", |figures| figures.tpot_ms.mean),
    ("P99 TPOT", |figures| figures.tpot_ms.p99),
];

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn whole(count: f64) -> String {
    format!("{count:.0}")
}

fn figure(html: &mut String, title: &str, sub: &str, plane: &Plane<'_>) {
    let _ = write!(
        html,
        "<figure><h3>{}</h3><p class=\"sub\">{}</p>{}</figure>",
        escape(title),
        escape(sub),
        lines(plane)
    );
}

/// TTFT and TPOT of every policy at the main rate: time against share, so that the tail has room.
pub(super) fn distributions(html: &mut String, study: &Study, colours: &Colours) {
    let rate = main_rate(study);
    let plain = groups(study, |cell| is_plain(cell) && cell.rate_scale == rate);
    if plain.is_empty() {
        return;
    }
    html.push_str("<section><h2>Distributions</h2><p class=\"sub\">Lower is better. Grey: the other policies; point at a line for its name.</p><div class=\"plots\">");
    let kinds: [(&str, Quantiles); 2] = [
        ("Time to first token", |cell| &cell.outcome.ttft_cdf_ms),
        ("Time per output token", |cell| &cell.outcome.tpot_cdf_ms),
    ];
    for (title, of) in kinds {
        let drawn = plain.iter().map(|group| {
            let quantiles = group.quantiles(of);
            let points = quantiles.iter().enumerate().skip(1).take(99);
            Line {
                label: group.label(),
                colour: colours.get(group.label()),
                points: points.map(|(at, ms)| (at as f64, ms.max(0.01))).collect(),
                lower: None,
                dots: false,
            }
        });
        let plane = Plane {
            what: title,
            x_name: "share of requests within the time, % (1 to 99)",
            log: true,
            write: time_ms,
            tick: tick_label,
            lines: drawn.collect(),
            marks: Vec::new(),
        };
        figure(html, title, "", &plane);
    }
    html.push_str("</div></section>");
}

/// Figures against the rate, where there are several.
pub(super) fn rates(html: &mut String, study: &Study, colours: &Colours) {
    if super::groups::rates(study).len() < 2 {
        return;
    }
    let plain = groups(study, is_plain);
    let mut labels: Vec<&str> = Vec::new();
    for group in &plain {
        if !labels.contains(&group.label()) {
            labels.push(group.label());
        }
    }
    html.push_str("<section><h2>Against the rate</h2><p class=\"sub\">Requests per second over the whole fleet; lower is better.</p><div class=\"plots\">");
    for (title, of) in DRAWN {
        let drawn = labels.iter().map(|label| {
            let own = plain.iter().filter(|group| group.label() == *label);
            let mut points: Vec<(f64, f64)> = own
                .map(|group| (group.mean(|figures| figures.rate), group.mean(of)))
                .collect();
            points.sort_by(|one, other| one.0.total_cmp(&other.0));
            let colour = colours.get(label);
            Line {
                label,
                colour,
                points,
                lower: None,
                dots: colour.is_some(),
            }
        });
        let plane = Plane {
            what: title,
            x_name: "requests a second",
            log: true,
            write: time_ms,
            tick: tick_label,
            lines: drawn.collect(),
            marks: Vec::new(),
        };
        figure(html, title, "", &plane);
    }
    html.push_str("</div></section>");
}

/// The fullest and the emptiest engine over time, with the detector's alarms.
pub(super) fn imbalance(html: &mut String, study: &Study, baseline: &str) {
    let rate = main_rate(study);
    let plain = groups(study, |cell| is_plain(cell) && cell.rate_scale == rate);
    let shown: Vec<&Group<'_>> = [baseline, "vllm", "lmetric-marginal"]
        .iter()
        .filter_map(|label| plain.iter().find(|group| group.label() == *label))
        .take(2)
        .collect();
    let shown = if shown.is_empty() {
        plain.iter().take(2).collect()
    } else {
        shown
    };
    if shown.is_empty() {
        return;
    }
    html.push_str("<section><h2>Balance over time</h2><p class=\"sub\">Requests on an engine: the band reaches from the emptiest to the fullest, the line is the mean. Upright lines: the hotspot detector’s alarms, and, thick, filters put in force.</p><div class=\"plots\">");
    for (number, group) in shown.into_iter().enumerate() {
        let outcome = &group.first().outcome;
        let line = &outcome.timeline;
        let at = |step: usize| (step as f64 + 0.5) * line.step_s / 60.0;
        let points = |values: &[f64]| {
            values
                .iter()
                .enumerate()
                .map(|(step, value)| (at(step), *value))
                .collect()
        };
        let marks = (0..line.alarms.len())
            .filter(|step| line.alarms[*step] + line.filters[*step] > 0)
            .map(|step| {
                let (alarms, filters) = (line.alarms[step], line.filters[step]);
                let told = format!("minute {:.1}: {alarms} alarms, {filters} filters", at(step));
                (at(step), told, filters > 0)
            });
        let colour = Some(number);
        let plane = Plane {
            what: "Requests on the emptiest, the mean and the fullest engine over time",
            x_name: "minutes",
            log: false,
            write: whole,
            tick: whole,
            lines: vec![
                Line {
                    label: "mean",
                    colour,
                    points: points(&line.mean),
                    lower: None,
                    dots: false,
                },
                Line {
                    label: "",
                    colour,
                    points: points(&line.most),
                    lower: Some(line.least.clone()),
                    dots: false,
                },
            ],
            marks: marks.collect(),
        };
        let figures = &outcome.figures;
        let sub = format!(
            "mean spread {:.1}; {} alarms, {} filters",
            figures.spread_bs, figures.alarms, figures.filters
        );
        figure(html, group.label(), &sub, &plane);
    }
    html.push_str("</div></section>");
}

/// One drawing for each swept parameter and figure, with the baseline as a level line.
pub(super) fn sweeps(html: &mut String, study: &Study, baseline: &str) {
    let rate = main_rate(study);
    let swept = groups(study, |cell| cell.sweep.is_some() && cell.rate_scale == rate);
    let mut kinds: Vec<(&str, &str)> = Vec::new();
    for group in &swept {
        if let Some((parameter, _)) = &group.first().sweep {
            let kind = (group.first().policy.name(), parameter.as_str());
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
    }
    let level = groups(study, |cell| {
        is_plain(cell) && cell.rate_scale == rate && cell.label == baseline
    });
    for (policy, parameter) in kinds {
        let _ = write!(
            html,
            "<section><h2>{}: {} swept</h2><p class=\"sub\">The level line is {}, which has nothing to tune.</p><div class=\"plots\">",
            escape(policy),
            escape(parameter),
            escape(baseline)
        );
        for (title, of) in [DRAWN[0], DRAWN[2]] {
            let own = swept.iter().filter(|group| {
                let first = group.first();
                first.policy.name() == policy
                    && first.sweep.as_ref().is_some_and(|(name, _)| name == parameter)
            });
            let mut points: Vec<(f64, f64)> = own
                .filter_map(|group| {
                    let (_, value) = group.first().sweep.as_ref()?;
                    Some((value.parse::<f64>().ok()?, group.mean(of)))
                })
                .collect();
            points.sort_by(|one, other| one.0.total_cmp(&other.0));
            let ends = (
                points.first().map_or(0.0, |one| one.0),
                points.last().map_or(1.0, |one| one.0),
            );
            let mut drawn = Vec::new();
            if let Some(level) = level.first() {
                drawn.push(Line {
                    label: baseline,
                    colour: Some(0),
                    points: vec![(ends.0, level.mean(of)), (ends.1, level.mean(of))],
                    lower: None,
                    dots: false,
                });
            }
            drawn.push(Line {
                label: policy,
                colour: Some(1),
                points,
                lower: None,
                dots: true,
            });
            let plane = Plane {
                what: title,
                x_name: parameter,
                log: true,
                write: time_ms,
                tick: tick_label,
                lines: drawn,
                marks: Vec::new(),
            };
            figure(html, title, "", &plane);
        }
        html.push_str("</div></section>");
    }
}

/// How far policies that forecast TTFT were off.
pub(super) fn forecasts(html: &mut String, study: &Study) {
    let guessing = forecast::guessing(study);
    if guessing.is_empty() {
        return;
    }
    let drawn = guessing.iter().enumerate().map(|(number, group)| {
        let quantiles = forecast::errors(group);
        let points = quantiles.iter().enumerate().take(96);
        Line {
            label: group.label(),
            colour: Some(number % 8),
            points: points.map(|(at, error)| (at as f64, *error)).collect(),
            lower: None,
            dots: false,
        }
    });
    let plane = Plane {
        what: "Error of simulated TTFT",
        x_name: "share of requests within the error, % (to 95)",
        log: false,
        write: percent,
        tick: percent,
        lines: drawn.collect(),
        marks: Vec::new(),
    };
    html.push_str("<section><h2>How good the simulators are</h2><div class=\"plots\">");
    figure(
        html,
        "Error of the forecast",
        "|simulated ÷ real TTFT − 1| at the endpoint that was picked",
        &plane,
    );
    html.push_str("</div>");
    forecast::table(html, study);
    html.push_str("</section>");
}
