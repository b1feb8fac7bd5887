//! What a pool asks for, checked, with every fact that its fields leave open resolved. Pure.

use lmetric_api::pool::{
    InferencePool, IntOrString, Invalid, Loose, PickerTls, RolloutStrategy, Source, Unreadable,
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    dereference::Facts,
    gateway::{self, Plugged},
    validated::{Cluster, Listeners, Strategy, Validated, WayIn},
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
    let plugged = gateway::choose(spec, &facts.gateways, facts.apis).plugged();
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
        way_in: way_in(facts, plugged),
        parents: gateway::divide(plugged, spec, &facts.gateways),
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

/// What the choice of the plug means for objects: those that are installed.
fn way_in(facts: &Facts, plugged: Option<Plugged>) -> WayIn {
    let spec = &facts.pool.spec;
    let apis = facts.apis;
    let by_gie = plugged.is_some_and(Plugged::by_gie);
    let by_envoy_gateway = plugged.is_some_and(Plugged::by_envoy_gateway);
    let by_gateway = !spec.gateway.parent_refs.is_empty();
    let listeners = match spec.picker.tls {
        PickerTls::SelfSigned => Listeners::Tls,
        PickerTls::Auto if by_gie && (by_envoy_gateway || spec.gateway.standalone.is_some()) => {
            Listeners::Both
        }
        PickerTls::Auto if by_gie => Listeners::Tls,
        PickerTls::Auto | PickerTls::Plaintext => Listeners::Plaintext,
    };
    let gie_pool = by_gie && apis.gie_pools;
    WayIn {
        gie_pool,
        route: by_gateway && gie_pool && apis.routes,
        destination_rule: gie_pool
            && listeners.tls()
            && apis.destination_rules
            && plugged.is_some_and(Plugged::for_istio),
        envoy_gateway: by_envoy_gateway && apis.envoy_gateway && apis.routes,
        listeners,
        pod_monitor: spec.monitoring.pod_monitor && apis.pod_monitors,
        alerts: spec.monitoring.alerts && apis.prometheus_rules,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        gateway::{
            Controller::{self, EnvoyGateway, Istio, Other},
            testing::{gateways, of},
        },
        testing,
        watch::Apis,
    };

    const ALL: Apis = testing::ALL_APIS;

    #[rstest]
    #[case::nothing(json!({}), None, ALL, "plaintext")]
    #[case::standalone(json!({"gateway": {"standalone": {}}}), None, ALL, "plaintext")]
    #[case::gateway(json!({"gateway": {"parentRefs": [{"name": "g0"}]}}), Some(Other), ALL, "gie route tls")]
    #[case::istio(json!({"gateway": {"parentRefs": [{"name": "g0"}]}}), Some(Istio), ALL, "gie route rule tls")]
    #[case::istio_plain(json!({"picker": {"tls": "Plaintext"}, "gateway": {"parentRefs": [{"name": "g0"}]}}), Some(Istio), ALL, "gie route plaintext")]
    #[case::both(json!({"gateway": {"parentRefs": [{"name": "g0"}], "standalone": {}}}), Some(Other), ALL, "gie route plaintext+tls")]
    #[case::absent(json!({"gateway": {"parentRefs": [{"name": "g0"}]}}), Some(Other), Apis::default(), "tls")]
    #[case::pool_only(json!({"gateway": {"plug": "InferencePool"}}), None, ALL, "gie tls")]
    #[case::envoy(json!({"gateway": {"parentRefs": [{"name": "g0"}]}}), Some(EnvoyGateway), ALL, "envoy plaintext")]
    #[case::envoy_tls(json!({"picker": {"tls": "SelfSigned"}, "gateway": {"parentRefs": [{"name": "g0"}]}}), Some(EnvoyGateway), ALL, "envoy tls")]
    #[case::envoy_and_istio(json!({"gateway": {"parentRefs": [{"name": "g0"}, {"name": "g1"}]}}), [EnvoyGateway, Istio], ALL, "gie route rule envoy plaintext+tls")]
    #[case::envoy_absent(json!({"gateway": {"parentRefs": [{"name": "g0"}], "plug": "EnvoyGateway"}}), None, Apis::default(), "plaintext")]
    #[case::forced(json!({"picker": {"tls": "SelfSigned"}, "gateway": {"standalone": {}}}), None, ALL, "tls")]
    fn optional_objects_are_those_asked_for_and_installed(
        #[case] change: Value,
        #[case] controllers: impl IntoIterator<Item = Controller>,
        #[case] apis: Apis,
        #[case] expected: &str,
    ) {
        let mut facts = testing::facts_with(&change, apis);
        facts.gateways = gateways(controllers.into_iter().map(of).collect());
        let WayIn {
            gie_pool,
            route,
            destination_rule,
            envoy_gateway,
            listeners,
            pod_monitor,
            alerts,
        } = way_in(
            &facts,
            gateway::choose(&facts.pool.spec, &facts.gateways, apis).plugged(),
        );
        let words: Vec<_> = [
            (gie_pool, "gie"),
            (route, "route"),
            (destination_rule, "rule"),
            (envoy_gateway, "envoy"),
            (true, listeners.as_str()),
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
