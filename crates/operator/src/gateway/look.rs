//! What the stores say about a pool's Gateways and about what was made for them.

use std::sync::Arc;

use kube::{ResourceExt as _, runtime::reflector::ObjectRef};
use lmetric_api::{
    foreign::{
        envoy_gateway::{self, BackendTrafficPolicy, ClientTrafficPolicy, EnvoyExtensionPolicy},
        gateway::{self, Gateway, HTTPRoute, Listener, ParentReference},
        gie, istio,
    },
    pool::InferencePool,
};

use crate::watch::{Apis, Reach, Stores};

/// Everything about a pool's Gateways.
#[derive(Clone, Debug, Default)]
pub struct Gateways {
    /// Those that the pool names, in its order.
    pub parents: Vec<Parent>,
    /// The pool's route.
    pub route: Option<Arc<HTTPRoute>>,
    /// Its second one, where Envoy Gateway's Gateways stand beside others.
    pub second_route: Option<Arc<HTTPRoute>>,
    /// GIE's object of the pool.
    pub gie_pool: Option<Arc<gie::InferencePool>>,
    /// Envoy Gateway's policy with the picker.
    pub extension_policy: Option<Arc<EnvoyExtensionPolicy>>,
    /// Envoy Gateway's policy with the load balancer.
    pub traffic_policy: Option<Arc<BackendTrafficPolicy>>,
    /// Whether Istio was told about the picker.
    pub has_destination_rule: bool,
}

/// A Gateway that the pool names.
#[derive(Clone, Debug, PartialEq)]
pub struct Parent {
    /// As the pool names it.
    pub reference: ParentReference,
    /// Its namespace.
    pub namespace: String,
    /// What is known of it.
    pub seen: Seen,
}

/// What is known of a Gateway.
#[derive(Clone, Debug, PartialEq)]
pub enum Seen {
    /// It is none: the reference is to another kind.
    Other,
    /// The operator may not look.
    Hidden,
    /// It does not exist.
    Absent,
    /// It exists, and its class does not.
    Classless(Arc<Gateway>),
    /// It exists, and the operator may not read classes.
    ClassHidden(Arc<Gateway>),
    /// It exists.
    Of {
        /// The object.
        gateway: Arc<Gateway>,
        /// Who answers for it.
        controller: Controller,
        /// Policies about its clients, of Envoy Gateway only; `None` where the operator may not look.
        policies: Option<Vec<Arc<ClientTrafficPolicy>>>,
    },
}

/// Who answers for a class of Gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    /// It does not know GIE's InferencePool.
    EnvoyGateway,
    /// It speaks TLS to a picker only where it is told to.
    Istio,
    /// Taken for one that knows GIE's InferencePool.
    Other,
}

impl Controller {
    /// By the `controllerName` of the class.
    pub fn of(name: &str) -> Self {
        if name.starts_with(envoy_gateway::CONTROLLERS) {
            Self::EnvoyGateway
        } else if name.starts_with(istio::CONTROLLERS) {
            Self::Istio
        } else {
            Self::Other
        }
    }
}

impl Parent {
    /// Namespace and name, for a person.
    pub fn title(&self) -> String {
        format!("{}/{}", self.namespace, self.reference.name)
    }

    /// The object, where it exists and may be seen.
    pub fn gateway(&self) -> Option<&Gateway> {
        match &self.seen {
            Seen::Classless(gateway) | Seen::ClassHidden(gateway) | Seen::Of { gateway, .. } => Some(gateway),
            Seen::Other | Seen::Hidden | Seen::Absent => None,
        }
    }

    /// The listeners for HTTP to which the reference leads.
    pub fn listeners<'a>(&'a self, gateway: &'a Gateway) -> impl Iterator<Item = &'a Listener> {
        let reference = &self.reference;
        gateway.spec.listeners.iter().filter(|listener| {
            matches!(listener.protocol.as_str(), "HTTP" | "HTTPS")
                && reference
                    .section_name
                    .as_ref()
                    .is_none_or(|name| *name == listener.name)
                && reference.port.is_none_or(|port| port == listener.port)
        })
    }

    /// Who answers for it, where that is known.
    pub fn controller(&self) -> Option<Controller> {
        match self.seen {
            Seen::Of { controller, .. } => Some(controller),
            _ => None,
        }
    }
}

/// Name of the route to GIE's InferencePool where Envoy Gateway's bears the pool's name.
pub fn second_route(pool: &str) -> String {
    format!("{pool}-inference")
}

/// Looks at the Gateways of a pool.
pub fn look(pool: &InferencePool, stores: &Stores, apis: Apis) -> Gateways {
    let namespace = pool.namespace().unwrap_or_default();
    let name = pool.name_any();
    let parents = pool.spec.gateway.parent_refs.iter().map(|reference| {
        let at = namespace_of(reference, &namespace);
        Parent {
            reference: reference.clone(),
            namespace: at.to_owned(),
            seen: seen(reference, at, &namespace, stores, apis),
        }
    });
    Gateways {
        parents: parents.collect(),
        route: stores.routes.get(&ObjectRef::new(&name).within(&namespace)),
        second_route: stores
            .routes
            .get(&ObjectRef::new(&second_route(&name)).within(&namespace)),
        gie_pool: stores.gie_pools.get(&ObjectRef::new(&name).within(&namespace)),
        extension_policy: stores
            .extension_policies
            .get(&ObjectRef::new(&name).within(&namespace)),
        traffic_policy: stores
            .traffic_policies
            .get(&ObjectRef::new(&name).within(&namespace)),
        has_destination_rule: !Stores::of(&stores.destination_rules, &namespace, &name).is_empty(),
    }
}

/// Whether the pool names this Gateway.
pub fn names_gateway(pool: &InferencePool, namespace: &str, name: &str) -> bool {
    let own = pool.namespace().unwrap_or_default();
    let references = pool.spec.gateway.parent_refs.iter();
    references
        .filter(|reference| is_gateway(reference))
        .any(|reference| reference.name == name && namespace_of(reference, &own) == namespace)
}

fn namespace_of<'a>(reference: &'a ParentReference, own: &'a str) -> &'a str {
    reference.namespace.as_deref().unwrap_or(own)
}

fn is_gateway(reference: &ParentReference) -> bool {
    let group = reference.group.as_deref().unwrap_or(gateway::GROUP);
    let kind = reference.kind.as_deref().unwrap_or("Gateway");
    group == gateway::GROUP && kind == "Gateway"
}

fn seen(reference: &ParentReference, at: &str, own: &str, stores: &Stores, apis: Apis) -> Seen {
    if !is_gateway(reference) {
        return Seen::Other;
    }
    if !apis.gateways.covers(at == own) {
        return Seen::Hidden;
    }
    let Some(gateway) = stores.gateways.get(&ObjectRef::new(&reference.name).within(at)) else {
        return Seen::Absent;
    };
    if apis.gateway_classes != Reach::Cluster {
        return Seen::ClassHidden(gateway);
    }
    let Some(class) = stores
        .gateway_classes
        .get(&ObjectRef::new(&gateway.spec.gateway_class_name))
    else {
        return Seen::Classless(gateway);
    };
    let policies = apis.client_policies.covers(at == own).then(|| {
        let of_namespace = |policy: &ClientTrafficPolicy| policy.metadata.namespace.as_deref() == Some(at);
        stores.client_policies.state_filter(of_namespace)
    });
    Seen::Of {
        gateway,
        controller: Controller::of(&class.spec.controller_name),
        policies,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("gateway.envoyproxy.io/gatewayclass-controller", Controller::EnvoyGateway)]
    #[case("gateway.envoyproxy.io/second", Controller::EnvoyGateway)]
    #[case("istio.io/gateway-controller", Controller::Istio)]
    #[case("istio.io/unmanaged-gateway", Controller::Istio)]
    #[case("agentgateway.dev/agentgateway", Controller::Other)]
    #[case("aigateway.envoyproxy.io/x", Controller::Other)]
    fn the_class_says_who_answers(#[case] name: &str, #[case] controller: Controller) {
        assert_eq!(Controller::of(name), controller);
    }

    #[test]
    fn a_pool_names_gateways_of_its_own_namespace_unless_it_says_another() {
        let pool = crate::testing::pool(&serde_json::json!({"gateway": {"parentRefs": [
            {"name": "near"}, {"name": "far", "namespace": "edge"}, {"name": "mesh", "kind": "Service", "group": ""},
        ]}}));
        for (namespace, name, is) in [
            ("models", "near", true),
            ("edge", "near", false),
            ("edge", "far", true),
            ("models", "mesh", false),
        ] {
            assert_eq!(names_gateway(&pool, namespace, name), is, "{namespace}/{name}");
        }
    }
}
