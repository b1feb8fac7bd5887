//! How far policies that simulate TTFT were off at the endpoint that they picked.

use std::{
    fmt::Write as _,
    io::{self, Write},
};

use serde_json::{Value, json};

use super::{
    super::page::escape,
    groups::{Group, groups, main_rate},
};
use crate::simulate::Study;

/// The paper's figure 16 counts requests that are further off than this.
const FAR: f64 = 0.2;
/// Quantiles that are printed, per cent.
const SHOWN: [usize; 4] = [50, 75, 90, 95];

/// Policies with a forecast at the study's main rate.
pub(super) fn guessing(study: &Study) -> Vec<Group<'_>> {
    let rate = main_rate(study);
    groups(study, |cell| {
        !cell.outcome.forecast_error_cdf.is_empty() && cell.rate_scale == rate
    })
}

/// Errors at 0 %, 1 %, … of requests.
pub(super) fn errors(group: &Group<'_>) -> Vec<f64> {
    group.quantiles(|cell| &cell.outcome.forecast_error_cdf)
}

/// Share of requests whose forecast was further off than [`FAR`].
pub(super) fn far_off(errors: &[f64]) -> f64 {
    let within = errors.iter().take_while(|error| **error <= FAR).count();
    1.0 - within.saturating_sub(1) as f64 / (errors.len().max(2) - 1) as f64
}

/// The distributions in figures.
pub(super) fn table(html: &mut String, study: &Study) {
    html.push_str("<div class=\"scroll\"><table class=\"ratios\"><thead><tr><th scope=\"col\">Policy</th>");
    for percent in SHOWN {
        let _ = write!(html, "<th scope=\"col\">{percent} % within</th>");
    }
    html.push_str("<th scope=\"col\">More than 20 % off</th></tr></thead><tbody>");
    for group in guessing(study) {
        let errors = errors(&group);
        let _ = write!(html, "<tr><th scope=\"row\">{}</th>", escape(group.label()));
        for percent in SHOWN {
            let _ = write!(html, "<td>{:.1} %</td>", at(&errors, percent) * 100.0);
        }
        let _ = write!(
            html,
            "<td>{:.0} % of requests</td></tr>",
            far_off(&errors) * 100.0
        );
    }
    html.push_str("</tbody></table></div>");
}

/// One line for each.
pub(super) fn print(study: &Study, out: &mut impl Write) -> io::Result<()> {
    for group in guessing(study) {
        let errors = errors(&group);
        write!(out, "forecast of {}: error within", group.label())?;
        for percent in SHOWN {
            write!(out, " {:.1} % on {percent} %,", at(&errors, percent) * 100.0)?;
        }
        writeln!(
            out,
            " more than 20 % off on {:.0} % of requests",
            far_off(&errors) * 100.0
        )?;
    }
    Ok(())
}

/// The distributions, whole.
pub(super) fn json(study: &Study) -> Value {
    let all = guessing(study).into_iter().map(|group| {
        let errors = errors(&group);
        let told = json!({"far_off": far_off(&errors), "error_cdf": errors});
        (group.label().to_owned(), told)
    });
    Value::Object(all.collect())
}

fn at(errors: &[f64], percent: usize) -> f64 {
    errors
        .get(percent * (errors.len().max(1) - 1) / 100)
        .copied()
        .unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_are_far_off_are_counted_by_the_distribution() {
        // 0 %, 1 %, … 100 %: an error of 0.2 is reached by 90 % of requests
        let errors: Vec<f64> = (0..=100).map(|at| f64::from(at) / 450.0).collect();
        assert!((far_off(&errors) - 0.10).abs() < 1e-9, "{}", far_off(&errors));
        assert_eq!(far_off(&[0.0; 101]), 0.0);
        assert_eq!(far_off(&[1.0; 101]), 1.0);
        assert!((at(&errors, 90) - 0.2).abs() < 1e-9);
    }
}
