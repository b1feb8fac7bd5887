//! Which plug a pool's Gateways need.
//!
//! `Auto` asks their classes. Where that cannot be told, what is plugged in stays, and the condition says why: a Gateway
//! that is made again, or a right that is lost, cuts nothing off.

use lmetric_api::{
    foreign::gie,
    pool::{InferencePoolSpec, Plug},
};

use super::{Controller, Gateways, Parent, Seen};
use crate::watch::Apis;

/// How the picker is plugged in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plugged {
    /// By GIE's InferencePool.
    Gie {
        /// For Istio, which has to be told about TLS.
        istio: bool,
    },
    /// By Envoy Gateway's policies.
    EnvoyGateway,
}

/// What the pool asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// No plug.
    Nothing,
    /// This one.
    Plug(Plugged),
    /// It cannot be told which, for this reason; what is there stays.
    Stay(Option<Plugged>, String),
}

impl Choice {
    /// The plug that is made.
    pub const fn plugged(&self) -> Option<Plugged> {
        match self {
            Self::Nothing => None,
            Self::Plug(plugged) => Some(*plugged),
            Self::Stay(plugged, _) => *plugged,
        }
    }
}

/// Decides.
pub fn choose(spec: &InferencePoolSpec, gateways: &Gateways, apis: Apis) -> Choice {
    let asked = !spec.gateway.parent_refs.is_empty();
    let controllers: Vec<_> = gateways.parents.iter().filter_map(Parent::controller).collect();
    let is_istio = |controller: &Controller| *controller == Controller::Istio;
    match spec.gateway.plug {
        Plug::InferencePool => {
            let hidden = controllers.len() < gateways.parents.len();
            Choice::Plug(Plugged::Gie {
                // at its port alone the rule harms nobody
                istio: controllers.iter().any(is_istio) || hidden && apis.destination_rules,
            })
        }
        Plug::EnvoyGateway if asked => Choice::Plug(Plugged::EnvoyGateway),
        Plug::Auto if asked => {
            let count = controllers
                .iter()
                .filter(|controller| **controller == Controller::EnvoyGateway)
                .count();
            if controllers.is_empty() {
                Choice::Stay(present(gateways), unknown(&gateways.parents))
            } else if count == controllers.len() {
                Choice::Plug(Plugged::EnvoyGateway)
            } else if count == 0 {
                Choice::Plug(Plugged::Gie {
                    istio: controllers.iter().any(is_istio),
                })
            } else {
                let words = "spec.gateway.parentRefs names Gateways of Envoy Gateway beside others, and they need different plugs; name Gateways of one kind, and use another pool for the rest";
                Choice::Stay(present(gateways), words.to_owned())
            }
        }
        Plug::Auto | Plug::EnvoyGateway => Choice::Nothing,
    }
}

/// What the live route is plugged into.
fn present(gateways: &Gateways) -> Option<Plugged> {
    let rules = &gateways.route.as_ref()?.spec.rules;
    let mut backends = rules.iter().flat_map(|rule| &rule.backend_refs);
    let by_gie = backends.any(|backend| backend.group.as_deref() == Some(gie::GROUP));
    Some(if by_gie {
        Plugged::Gie {
            istio: gateways.has_destination_rule,
        }
    } else {
        Plugged::EnvoyGateway
    })
}

/// Why nothing is known of any of them.
fn unknown(parents: &[Parent]) -> String {
    let Some(parent) = parents.first() else {
        return "spec.gateway.parentRefs is empty".to_owned();
    };
    let title = parent.title();
    match &parent.seen {
        Seen::Other => format!(
            "{title} of spec.gateway.parentRefs is no Gateway; set spec.gateway.plug to InferencePool or EnvoyGateway"
        ),
        Seen::Hidden => format!(
            "the operator may not read Gateway {title}, so that it does not know its class; set spec.gateway.plug to InferencePool or EnvoyGateway, or let it read Gateways and GatewayClasses (chart value rbac.clusterReads)"
        ),
        Seen::ClassHidden(_) => format!(
            "the operator may not read GatewayClasses, so that it does not know who answers for Gateway {title}; set spec.gateway.plug to InferencePool or EnvoyGateway, or let it read them (chart value rbac.clusterReads)"
        ),
        Seen::Absent => {
            format!("Gateway {title} does not exist; make it, or correct spec.gateway.parentRefs")
        }
        Seen::Classless(gateway) => format!(
            "Gateway {title} is of GatewayClass {}, which does not exist; install what makes it, or correct the Gateway",
            gateway.spec.gateway_class_name
        ),
        Seen::Of { .. } => format!("Gateway {title} is known"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::gateway::testing::{gateways, of};

    const GIE: Plugged = Plugged::Gie { istio: false };
    const ISTIO: Plugged = Plugged::Gie { istio: true };

    fn chosen(plug: &str, seen: Vec<Seen>) -> Choice {
        let references: Vec<_> = (0..seen.len())
            .map(|at| json!({"name": format!("g{at}")}))
            .collect();
        let pool = crate::testing::pool(&json!({"gateway": {"plug": plug, "parentRefs": references}}));
        choose(&pool.spec, &gateways(seen), Apis::default())
    }

    #[rstest]
    #[case("Auto", vec![], Choice::Nothing)]
    #[case("InferencePool", vec![], Choice::Plug(GIE))]
    #[case("EnvoyGateway", vec![], Choice::Nothing)]
    #[case("Auto", vec![of(Controller::EnvoyGateway)], Choice::Plug(Plugged::EnvoyGateway))]
    #[case("Auto", vec![of(Controller::Istio)], Choice::Plug(ISTIO))]
    #[case("Auto", vec![of(Controller::Other)], Choice::Plug(GIE))]
    #[case("Auto", vec![of(Controller::Other), of(Controller::Istio)], Choice::Plug(ISTIO))]
    #[case("Auto", vec![Seen::Absent, of(Controller::EnvoyGateway)], Choice::Plug(Plugged::EnvoyGateway))]
    #[case("InferencePool", vec![of(Controller::EnvoyGateway)], Choice::Plug(GIE))]
    #[case("InferencePool", vec![of(Controller::Istio)], Choice::Plug(ISTIO))]
    #[case("EnvoyGateway", vec![of(Controller::Other)], Choice::Plug(Plugged::EnvoyGateway))]
    fn the_class_decides_unless_the_pool_does(
        #[case] plug: &str,
        #[case] seen: Vec<Seen>,
        #[case] expected: Choice,
    ) {
        assert_eq!(chosen(plug, seen), expected);
    }

    #[rstest]
    #[case(vec![Seen::Hidden], "rbac.clusterReads")]
    #[case(vec![Seen::Absent], "does not exist")]
    #[case(vec![Seen::Other], "is no Gateway")]
    #[case(vec![of(Controller::EnvoyGateway), of(Controller::Istio)], "different plugs")]
    fn what_cannot_be_told_says_what_to_do(#[case] seen: Vec<Seen>, #[case] words: &str) {
        let Choice::Stay(None, why) = chosen("Auto", seen) else {
            panic!("was decided");
        };
        assert!(why.contains(words), "{why}");
    }

    #[rstest]
    #[case(json!({"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": "qwen"}), GIE)]
    #[case(json!({"name": "qwen-engine", "port": 8000}), Plugged::EnvoyGateway)]
    fn what_is_plugged_in_stays_while_the_class_is_not_known(
        #[case] backend: Value,
        #[case] plugged: Plugged,
    ) {
        let pool = crate::testing::pool(&json!({"gateway": {"parentRefs": [{"name": "g0"}]}}));
        let mut known = gateways(vec![Seen::Absent]);
        let route = json!({"metadata": {"name": "qwen"}, "spec": {"rules": [{"backendRefs": [backend]}]}});
        known.route = Some(Arc::new(serde_json::from_value(route).unwrap()));
        let choice = choose(&pool.spec, &known, Apis::default());
        assert_eq!(choice.plugged(), Some(plugged));
        assert!(matches!(choice, Choice::Stay(..)));
    }

    #[test]
    fn istio_that_cannot_be_seen_is_told_about_tls_where_it_is_installed() {
        let pool = crate::testing::pool(
            &json!({"gateway": {"plug": "InferencePool", "parentRefs": [{"name": "g0"}]}}),
        );
        let apis = Apis {
            destination_rules: true,
            ..Apis::default()
        };
        let hidden = gateways(vec![Seen::Hidden]);
        assert_eq!(choose(&pool.spec, &hidden, apis), Choice::Plug(ISTIO));
        assert_eq!(choose(&pool.spec, &hidden, Apis::default()), Choice::Plug(GIE));
    }
}
