use std::net::IpAddr;

use rstest::rstest;
use serde_json::{Value, json};

use super::{evaluate::*, *};
use crate::build::testing;

fn party(namespace: &str, labels: &[(&str, &str)], address: [u8; 4]) -> Party {
    let owned = |pairs: &[(&str, &str)]| {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    };
    Party {
        namespace: namespace.to_owned(),
        namespace_labels: owned(&[(NAMESPACE_NAME, namespace), ("team", namespace)]),
        labels: owned(labels),
        address: IpAddr::from(address),
        is_pod: !namespace.is_empty(),
    }
}

/// Who is meant by a word of the tables.
fn who(name: &str) -> Party {
    let of = |namespace: &str, pool: &str, component: &str| {
        party(
            namespace,
            &[
                ("lmetric.io/pool", pool),
                ("app.kubernetes.io/component", component),
            ],
            [10, 1, 0, 1],
        )
    };
    match name {
        "engine" => of("models", "qwen", "engine"),
        "picker" => of("models", "qwen", "picker"),
        "envoy" => of("models", "qwen", "envoy"),
        "other pool's picker" => of("models", "llama", "picker"),
        "other pool's engine" => of("models", "llama", "engine"),
        "other pool's envoy" => of("models", "llama", "envoy"),
        "other namespace's picker" => of("elsewhere", "qwen", "picker"),
        "operator" => party(
            "lmetric-system",
            &[("app.kubernetes.io/component", "operator")],
            [10, 1, 0, 2],
        ),
        "operator's neighbour" => party("lmetric-system", &[("app", "web")], [10, 1, 0, 3]),
        "gateway" => party("gateways", &[("app", "gateway")], [10, 1, 0, 4]),
        "prometheus" => party("monitoring", &[("app", "prometheus")], [10, 1, 0, 5]),
        "stranger" => party("models", &[("app", "web")], [10, 1, 0, 6]),
        "office" => party("", &[], [192, 0, 2, 7]),
        "internet" => party("", &[], [203, 0, 113, 9]),
        other => panic!("who is {other}?"),
    }
}

fn check(spec: Value, to: &str, port: i32, may: &[&str], may_not: &[&str]) {
    let policies = build(&testing::pool(spec));
    for (names, expected) in [(may, true), (may_not, false)] {
        for name in names {
            assert_eq!(
                allowed(&policies, &who(name), &who(to), port),
                expected,
                "{name} → {to}:{port}"
            );
        }
    }
}

const EVERYBODY_ELSE: &[&str] = &[
    "other pool's picker",
    "other pool's engine",
    "other pool's envoy",
    "other namespace's picker",
    "operator's neighbour",
    "gateway",
    "stranger",
    "office",
    "internet",
];

/// With the standalone Envoy alone, everything is known.
#[rstest]
#[case("engine", 8000, &["picker", "envoy"], &["engine", "operator", "prometheus"])]
#[case("engine", 5557, &["picker"], &["engine", "envoy", "operator", "prometheus"])]
#[case("engine", 5657, &["picker"], &["engine", "envoy", "operator", "prometheus"])]
#[case("engine", 22, &[], &["picker", "engine", "envoy", "operator", "prometheus"])]
#[case("picker", 9002, &["envoy"], &["engine", "picker", "operator", "prometheus"])]
#[case("picker", 9003, &["envoy"], &["engine", "picker", "operator", "prometheus"])]
#[case("picker", 9090, &["engine", "operator"], &["picker", "envoy", "prometheus"])]
#[case("envoy", 9902, &[], &["picker", "engine", "operator", "prometheus"])]
#[case("envoy", 9901, &[], &["picker", "engine", "operator", "prometheus"])]
fn a_standalone_pool_is_closed_but_for_envoy(
    #[case] to: &str,
    #[case] port: i32,
    #[case] may: &[&str],
    #[case] may_not: &[&str],
) {
    let spec = json!({"gateway": {"standalone": {}}});
    check(spec.clone(), to, port, may, may_not);
    check(spec, to, port, &[], EVERYBODY_ELSE);
}

#[test]
fn everybody_may_send_requests_to_the_standalone_envoy() {
    let spec = json!({"gateway": {"standalone": {}}});
    check(
        spec,
        "envoy",
        8080,
        &["gateway", "stranger", "office", "internet", "engine"],
        &[],
    );
}

/// A Gateway whose pods nobody named: requests come from everywhere, events still do not.
#[rstest]
#[case("engine", 8000, &["gateway", "stranger", "internet", "picker", "envoy"], &[])]
#[case("engine", 5557, &["picker"], &["gateway", "stranger", "internet", "envoy", "other pool's picker"])]
#[case("engine", 5657, &["picker"], &["gateway", "stranger", "internet", "envoy", "other pool's picker"])]
#[case("picker", 9002, &["gateway", "stranger", "internet"], &[])]
#[case("picker", 9090, &["engine", "operator"], &["gateway", "stranger", "internet", "other pool's engine"])]
fn an_unknown_gateway_opens_requests_and_nothing_else(
    #[case] to: &str,
    #[case] port: i32,
    #[case] may: &[&str],
    #[case] may_not: &[&str],
) {
    for gateway in [
        json!({"parentRefs": [{"name": "public"}]}),
        json!({"parentRefs": [{"name": "public"}], "standalone": {}}),
        json!({}),
    ] {
        check(json!({"gateway": gateway}), to, port, may, may_not);
    }
}

/// A Gateway whose pods are named.
#[rstest]
#[case("engine", 8000, &["gateway", "office", "picker", "prometheus"], &["stranger", "internet", "envoy", "engine"])]
#[case("engine", 5557, &["picker"], &["gateway", "office", "prometheus", "stranger"])]
#[case("picker", 9002, &["gateway", "office"], &["stranger", "internet", "engine", "prometheus", "envoy"])]
#[case("picker", 9003, &["gateway", "office"], &["stranger", "internet", "engine", "prometheus", "envoy"])]
#[case("picker", 9090, &["engine", "operator", "prometheus"], &["gateway", "office", "stranger", "internet"])]
fn named_peers_are_let_in_where_they_belong(
    #[case] to: &str,
    #[case] port: i32,
    #[case] may: &[&str],
    #[case] may_not: &[&str],
) {
    let spec = json!({
        "gateway": {"parentRefs": [{"name": "public"}]},
        "networkPolicy": {
            "gatewayFrom": [
                {"namespaceSelector": {"matchLabels": {"team": "gateways"}}},
                {"ipBlock": {"cidr": "192.0.2.0/24", "except": ["192.0.2.128/25"]}},
            ],
            "monitoringFrom": [{
                "namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "In", "values": ["monitoring"]}]},
                "podSelector": {"matchLabels": {"app": "prometheus"}},
            }],
        },
    });
    check(spec, to, port, may, may_not);
}

#[test]
fn monitoring_reads_envoys_statistics_and_not_its_admin() {
    let spec = json!({
        "gateway": {"standalone": {}},
        "networkPolicy": {"monitoringFrom": [{"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}]},
    });
    check(
        spec.clone(),
        "envoy",
        9902,
        &["prometheus"],
        &["stranger", "gateway"],
    );
    check(spec, "envoy", 9901, &[], &["prometheus"]);
}

#[test]
fn every_rank_is_covered_and_no_port_beyond() {
    let spec = json!({"gateway": {"standalone": {}}, "parallelism": {"data": 4}});
    for port in [5557, 5560, 5657, 5660] {
        check(spec.clone(), "engine", port, &["picker"], &["envoy", "stranger"]);
    }
    check(spec.clone(), "engine", 8003, &["picker", "envoy"], &["stranger"]);
    for port in [5561, 5661, 8004] {
        check(
            spec.clone(),
            "engine",
            port,
            &[],
            &["picker", "envoy", "stranger"],
        );
    }
}

#[test]
fn a_pool_may_want_no_policies() {
    let spec = json!({"networkPolicy": {"enabled": false}});
    let validated = testing::pool(spec.clone());
    assert_eq!(build(&validated), []);
    assert!(!is_open(&validated.pool.spec));
    check(spec, "engine", 5557, &["stranger"], &[]);
}

#[test]
fn openness_is_told() {
    for (spec, open) in [
        (json!({}), true),
        (json!({"gateway": {"standalone": {}}}), false),
        (json!({"gateway": {"parentRefs": [{"name": "public"}]}}), true),
        (
            json!({"networkPolicy": {"gatewayFrom": [{"podSelector": {}}]}}),
            false,
        ),
    ] {
        assert_eq!(is_open(&testing::pool(spec.clone()).pool.spec), open, "{spec}");
    }
}
