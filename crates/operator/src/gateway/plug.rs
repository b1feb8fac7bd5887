//! Which plug a pool's Gateways need.
//!
//! `Auto` asks their classes; where Gateways of Envoy Gateway stand beside others, each kind has a route and a plug of its
//! own. Where that cannot be told, what is plugged in stays, and the condition says why: a Gateway that is made again, or a
//! right that is lost, cuts nothing off.

use lmetric_api::{
    foreign::{gateway::ParentReference, gie},
    pool::{InferencePoolSpec, Plug},
};

use super::{Controller, Gateways, Parent, Seen};
use crate::{validated::Parents, watch::Apis};

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
    /// Envoy Gateway's Gateways by its policies, the others by GIE's InferencePool.
    Both {
        /// As in [`Plugged::Gie`].
        istio: bool,
    },
}

impl Plugged {
    /// Whether GIE's InferencePool is part of it.
    pub const fn by_gie(self) -> bool {
        matches!(self, Self::Gie { .. } | Self::Both { .. })
    }

    /// Whether Envoy Gateway's policies are part of it.
    pub const fn by_envoy_gateway(self) -> bool {
        matches!(self, Self::EnvoyGateway | Self::Both { .. })
    }

    /// Whether Istio has to be told about TLS.
    pub const fn for_istio(self) -> bool {
        matches!(self, Self::Gie { istio: true } | Self::Both { istio: true })
    }
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
            let hidden = controllers.len() < gateways.parents.len();
            let stays_both = hidden && matches!(present(gateways), Some(Plugged::Both { .. }));
            let istio = controllers.iter().any(is_istio) || stays_both && gateways.has_destination_rule;
            if controllers.is_empty() {
                Choice::Stay(present(gateways), unknown(&gateways.parents))
            } else if stays_both || (1..controllers.len()).contains(&count) {
                Choice::Plug(Plugged::Both { istio })
            } else if count == 0 {
                Choice::Plug(Plugged::Gie { istio })
            } else {
                Choice::Plug(Plugged::EnvoyGateway)
            }
        }
        Plug::Auto | Plug::EnvoyGateway => Choice::Nothing,
    }
}

/// What the live routes are plugged into.
fn present(gateways: &Gateways) -> Option<Plugged> {
    let rules = &gateways.route.as_ref()?.spec.rules;
    let mut backends = rules.iter().flat_map(|rule| &rule.backend_refs);
    let by_gie = backends.any(|backend| backend.group.as_deref() == Some(gie::GROUP));
    let istio = gateways.has_destination_rule;
    Some(match (by_gie, &gateways.second_route) {
        (true, _) => Plugged::Gie { istio },
        (false, Some(_)) => Plugged::Both { istio },
        (false, None) => Plugged::EnvoyGateway,
    })
}

/// Which references the route of each plug has, in the order of the pool. With both, a Gateway of which nothing is known
/// stays where it is, and is with the others if it is new.
pub fn divide(plugged: Option<Plugged>, spec: &InferencePoolSpec, gateways: &Gateways) -> Parents {
    let all = || spec.gateway.parent_refs.clone();
    match plugged {
        Some(Plugged::Both { .. }) => {
            let of_envoy_gateway = |parent: &&Parent| match parent.controller() {
                Some(controller) => controller == Controller::EnvoyGateway,
                None => stays_with_envoy_gateway(&parent.reference, gateways),
            };
            let (envoy, others): (Vec<_>, Vec<_>) = gateways.parents.iter().partition(of_envoy_gateway);
            let references = |parents: Vec<&Parent>| {
                let references = parents.into_iter().map(|parent| parent.reference.clone());
                references.collect()
            };
            Parents {
                gie: references(others),
                envoy_gateway: references(envoy),
            }
        }
        Some(Plugged::EnvoyGateway) => Parents {
            gie: Vec::new(),
            envoy_gateway: all(),
        },
        Some(Plugged::Gie { .. }) | None => Parents {
            gie: all(),
            envoy_gateway: Vec::new(),
        },
    }
}

/// Whether there are two routes, and this reference is in the one of Envoy Gateway.
fn stays_with_envoy_gateway(reference: &ParentReference, gateways: &Gateways) -> bool {
    let live = gateways.route.iter().filter(|_| gateways.second_route.is_some());
    live.flat_map(|route| &route.spec.parent_refs).any(|live| {
        live.name == reference.name
            && live.namespace == reference.namespace
            && live.section_name == reference.section_name
            && live.port == reference.port
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

    use lmetric_api::foreign::gateway::HTTPRoute;
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
    #[case("Auto", vec![of(Controller::EnvoyGateway), of(Controller::Other)], Choice::Plug(Plugged::Both { istio: false }))]
    #[case("Auto", vec![of(Controller::Istio), of(Controller::EnvoyGateway)], Choice::Plug(Plugged::Both { istio: true }))]
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
        known.second_route = known.route.clone();
        let with_two = choose(&pool.spec, &known, Apis::default()).plugged();
        let expected = match plugged {
            Plugged::EnvoyGateway => Plugged::Both { istio: false },
            plugged => plugged,
        };
        assert_eq!(with_two, Some(expected));
    }

    #[test]
    fn each_plug_gets_the_gateways_that_need_it() {
        let references = [
            json!({"name": "g0"}),
            json!({"name": "g1"}),
            json!({"name": "g2"}),
        ];
        let pool = crate::testing::pool(&json!({"gateway": {"parentRefs": references}}));
        let known = gateways(vec![
            of(Controller::Other),
            of(Controller::EnvoyGateway),
            Seen::Absent,
        ]);
        let names = |plugged| {
            let Parents { gie, envoy_gateway } = divide(plugged, &pool.spec, &known);
            [gie, envoy_gateway].map(|references| {
                let names: Vec<_> = references.into_iter().map(|reference| reference.name).collect();
                names.join(" ")
            })
        };
        assert_eq!(names(Some(Plugged::Both { istio: false })), ["g0 g2", "g1"]);
        assert_eq!(names(Some(GIE)), ["g0 g1 g2", ""]);
        assert_eq!(names(Some(Plugged::EnvoyGateway)), ["", "g0 g1 g2"]);
    }

    #[test]
    fn a_gateway_that_is_made_again_stays_in_its_route() {
        let references = [json!({"name": "g0"}), json!({"name": "g1"})];
        let pool = crate::testing::pool(&json!({"gateway": {"parentRefs": references}}));
        let mut known = gateways(vec![Seen::Absent, of(Controller::Other)]);
        let route = json!({
            "metadata": {"name": "qwen"},
            "spec": {"parentRefs": [{"name": "g0"}], "rules": [{"backendRefs": [{"name": "qwen-engine", "port": 8000}]}]},
        });
        let route: Arc<HTTPRoute> = Arc::new(serde_json::from_value(route).unwrap());
        known.route = Some(route.clone());
        known.second_route = Some(route);
        let choice = choose(&pool.spec, &known, Apis::default());
        assert_eq!(choice, Choice::Plug(Plugged::Both { istio: false }));
        let Parents { gie, envoy_gateway } = divide(choice.plugged(), &pool.spec, &known);
        assert_eq!(
            (gie[0].name.as_str(), envoy_gateway[0].name.as_str()),
            ("g1", "g0")
        );
        known.second_route = None;
        assert_eq!(choose(&pool.spec, &known, Apis::default()), Choice::Plug(GIE));
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
