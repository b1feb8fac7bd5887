//! Alerts about one pool.

use std::collections::BTreeMap;

use lmetric_api::{
    foreign::prometheus::{AlertRule, PrometheusRule, PrometheusRuleSpec, RuleGroup},
    pool::IntOrString,
};

use super::meta;
use crate::validated::Validated;

/// The pool's alerts. They need the series that its PodMonitors collect.
pub(super) fn build(validated: &Validated) -> PrometheusRule {
    let (namespace, pool) = (&validated.namespace, &validated.name);
    let labels = format!(r#"namespace="{namespace}",lmetric_io_pool="{pool}""#);
    let alert =
        |name: &str, severity: &str, minutes: u32, expression: String, summary: &str, remedy: &str| {
            AlertRule {
                alert: Some(name.to_owned()),
                expr: IntOrString::String(expression),
                for_: Some(format!("{minutes}m")),
                labels: BTreeMap::from([
                    ("severity".to_owned(), severity.to_owned()),
                    ("pool".to_owned(), pool.clone()),
                ]),
                annotations: BTreeMap::from([
                    ("summary".to_owned(), format!("{namespace}/{pool}: {summary}")),
                    ("description".to_owned(), remedy.to_owned()),
                ]),
            }
        };
    let rules = vec![
        alert(
            "LMetricNoPicker",
            "critical",
            1,
            format!(r#"absent(up{{{labels},app_kubernetes_io_component="picker"}} == 1)"#),
            "no picker answers",
            "Requests get 503. Look at the pods of the picker's Deployment.",
        ),
        alert(
            "LMetricNoEngine",
            "critical",
            1,
            format!("max(sum by (pod) (lmetric_endpoint_ready{{{labels}}})) == 0"),
            "no engine is ready",
            "Requests get 503. kubectl describe the pool: its conditions say why.",
        ),
        alert(
            "LMetricRequestsRefused",
            "warning",
            5,
            format!("sum(rate(lmetric_refused_total{{{labels}}}[5m])) > 0"),
            "requests are refused for want of an engine",
            "Engines fail or are ejected. Look at /debug/endpoints of a picker.",
        ),
        alert(
            "LMetricEnginesSaturated",
            "warning",
            15,
            format!("avg(vllm:num_requests_waiting{{{labels}}}) > 8"),
            "requests wait in every engine",
            "Raise spec.replicas of the pool.",
        ),
        alert(
            "LMetricEventsDegraded",
            "warning",
            15,
            format!("max(lmetric_source_degraded{{{labels}}}) == 1"),
            "a picker's index of cached blocks is at its bound",
            "Prefix hits are missed. Give the picker more memory.",
        ),
        alert(
            "LMetricTokensMismatch",
            "warning",
            15,
            format!("sum(rate(lmetric_token_mismatches_total{{{labels}}}[15m])) > 0.1"),
            "engines store other blocks than pickers expect",
            "Prefix hits are missed. The picker's tokenizer or chat template differs from the engines'.",
        ),
    ];
    PrometheusRule {
        metadata: meta::of_pool(validated),
        spec: PrometheusRuleSpec {
            groups: vec![RuleGroup {
                name: format!("lmetric.{namespace}.{pool}"),
                rules,
            }],
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::build::testing;

    #[test]
    fn every_alert_is_about_this_pool_and_says_what_to_do() {
        let rules = build(&testing::pool(json!({}))).spec.groups.remove(0).rules;
        assert_eq!(rules.len(), 6);
        for rule in rules {
            let IntOrString::String(expression) = rule.expr else {
                panic!("an expression is text");
            };
            assert!(
                expression.contains(r#"namespace="models",lmetric_io_pool="qwen""#),
                "{expression}"
            );
            assert!(rule.annotations["summary"].starts_with("models/qwen: "));
            assert!(rule.annotations["description"].ends_with('.'));
        }
    }
}
