//! What a pool asks for, checked, with every fact that its fields leave open resolved. Pure.

use lmetric_api::pool::{
    InferencePool, IntOrString, Invalid, Loose, PickerTls, Plug, RolloutStrategy, Source, Unreadable,
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    dereference::Facts,
    validated::{Cluster, Strategy, Validated, WayIn},
};

/// The pool, ready to be built; or all that is wrong with it.
pub fn validate(facts: &Facts, cluster: &Cluster) -> Result<Validated, Vec<Invalid>> {
    let pool = &facts.pool;
    lmetric_api::pool::validate(pool)?;
    let spec = &pool.spec;
    let mut wrong = Vec::new();
    let source = source("spec.model.uri", &spec.model.uri, &mut wrong);
    let mut adapters = Vec::new();
    for (at, adapter) in spec.model.adapters.iter().enumerate() {
        let field = format!("spec.model.adapters[{at}].uri");
        if let Some(source) = self::source(&field, &adapter.uri, &mut wrong) {
            adapters.push((adapter.name.clone(), source));
        }
    }
    let engine_affinity = read("spec.placement.affinity", &spec.placement.affinity, &mut wrong);
    let picker_affinity = read(
        "spec.picker.placement.affinity",
        &spec.picker.placement.affinity,
        &mut wrong,
    );
    let overlay = read("spec.podTemplate", &spec.pod_template, &mut wrong);
    let meta = &pool.metadata;
    let (Some(source), Some(name), Some(namespace), Some(uid), true) =
        (source, &meta.name, &meta.namespace, &meta.uid, wrong.is_empty())
    else {
        return Err(wrong);
    };
    Ok(Validated {
        pool: pool.clone(),
        name: name.clone(),
        namespace: namespace.clone(),
        uid: uid.clone(),
        source,
        adapters,
        engine_affinity,
        picker_affinity,
        overlay,
        strategy: strategy(pool),
        way_in: way_in(facts),
        cluster: cluster.clone(),
    })
}

fn source(field: &str, uri: &str, wrong: &mut Vec<Invalid>) -> Option<Source> {
    let source = Source::parse(uri).ok();
    if source.is_none() {
        wrong.push(Invalid {
            field: field.to_owned(),
            problem: format!("{uri:?} names no place of a model"),
            remedy: "write hf://ORG/NAME, ms://ORG/NAME, pvc://CLAIM/PATH, file:///PATH or s3://BUCKET/PATH"
                .to_owned(),
        });
    }
    source
}

fn read<T: DeserializeOwned + Serialize>(
    field: &str,
    part: &Loose<T>,
    wrong: &mut Vec<Invalid>,
) -> Option<T> {
    if part.is_empty() {
        return None;
    }
    match part.read() {
        Ok(read) => Some(read),
        Err(problem) => {
            let remedy = match problem {
                Unreadable::Unfit(_) => "correct its type",
                Unreadable::UnknownKey(_) => "correct the key or remove it",
            };
            wrong.push(Invalid {
                field: field.to_owned(),
                problem: problem.to_string(),
                remedy: remedy.to_owned(),
            });
            None
        }
    }
}

fn strategy(pool: &InferencePool) -> Strategy {
    let rollout = &pool.spec.rollout;
    match rollout.strategy {
        RolloutStrategy::Recreate => Strategy::Recreate,
        RolloutStrategy::RollingUpdate => Strategy::Rolling {
            surge: rollout.surge(),
            unavailable: rollout.unavailable(),
        },
        RolloutStrategy::Auto => Strategy::Rolling {
            surge: IntOrString::Int(1),
            unavailable: IntOrString::Int(0),
        },
    }
}

/// GIE's InferencePool serves every Gateway but Envoy Gateway's own, which gets its plug when asked for by name.
fn way_in(facts: &Facts) -> WayIn {
    let spec = &facts.pool.spec;
    let gateway = &spec.gateway;
    let by_gateway = !gateway.parent_refs.is_empty();
    let by_pool = match gateway.plug {
        Plug::InferencePool => true,
        Plug::Auto => by_gateway,
        Plug::EnvoyGateway => false,
    };
    let gie_pool = by_pool && facts.apis.gie_pools;
    let tls = match spec.picker.tls {
        PickerTls::SelfSigned => true,
        PickerTls::Plaintext => false,
        PickerTls::Auto => by_pool,
    };
    WayIn {
        gie_pool,
        route: by_gateway && gie_pool && facts.apis.routes,
        tls,
        plaintext: !tls || gateway.standalone.is_some() || gateway.plug == Plug::EnvoyGateway,
        pod_monitor: spec.monitoring.pod_monitor && facts.apis.pod_monitors,
        alerts: spec.monitoring.alerts && facts.apis.prometheus_rules,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::{testing, watch::Apis};

    const ALL: Apis = Apis {
        gie_pools: true,
        routes: true,
        pod_monitors: true,
        prometheus_rules: true,
        envoy_gateway: true,
    };

    #[rstest]
    #[case::nothing(json!({}), ALL, "plaintext")]
    #[case::standalone(json!({"gateway": {"standalone": {}}}), ALL, "plaintext")]
    #[case::gateway(json!({"gateway": {"parentRefs": [{"name": "g"}]}}), ALL, "gie route tls")]
    #[case::both(json!({"gateway": {"parentRefs": [{"name": "g"}], "standalone": {}}}), ALL, "gie route tls plaintext")]
    #[case::absent(json!({"gateway": {"parentRefs": [{"name": "g"}]}}), Apis::default(), "tls")]
    #[case::pool_only(json!({"gateway": {"plug": "InferencePool"}}), ALL, "gie tls")]
    #[case::envoy(json!({"gateway": {"parentRefs": [{"name": "g"}], "plug": "EnvoyGateway"}}), ALL, "plaintext")]
    #[case::refused(json!({"picker": {"tls": "Plaintext"}, "gateway": {"parentRefs": [{"name": "g"}]}}), ALL, "gie route plaintext")]
    #[case::forced(json!({"picker": {"tls": "SelfSigned"}, "gateway": {"standalone": {}}}), ALL, "tls plaintext")]
    fn optional_objects_are_those_asked_for_and_installed(
        #[case] change: Value,
        #[case] apis: Apis,
        #[case] expected: &str,
    ) {
        let WayIn {
            gie_pool,
            route,
            tls,
            plaintext,
            pod_monitor,
            alerts,
        } = way_in(&testing::facts_with(&change, apis));
        let words: Vec<_> = [
            (gie_pool, "gie"),
            (route, "route"),
            (tls, "tls"),
            (plaintext, "plaintext"),
            (pod_monitor, "monitor"),
            (alerts, "alerts"),
        ]
        .into_iter()
        .filter_map(|(is, word)| is.then_some(word))
        .collect();
        assert_eq!(words.join(" "), expected);
    }

    #[test]
    fn a_pool_that_cannot_be_built_names_the_field_and_the_remedy() {
        let change = json!({"placement": {"affinity": {"nodeAfinity": {}, "podAffinity": 3}}});
        let wrong = validate(&testing::facts(&change), &Cluster::default()).expect_err("is wrong");
        let text: Vec<_> = wrong.iter().map(ToString::to_string).collect();
        assert!(
            text.iter().any(|line| line.contains("spec.placement.affinity")),
            "{text:?}"
        );
    }

    #[test]
    fn a_good_pool_is_resolved() {
        let validated =
            testing::validated(&json!({"rollout": {"strategy": "RollingUpdate", "maxSurge": "25%"}}));
        assert_eq!(
            validated.source,
            Source::HuggingFace("Qwen/Qwen3-30B-A3B".to_owned())
        );
        let (surge, unavailable) = (IntOrString::String("25%".to_owned()), IntOrString::Int(1));
        assert_eq!(validated.strategy, Strategy::Rolling { surge, unavailable });
    }
}
