//! Whether somebody's Gateway takes the pool's route, obeys its picker, and is set as the picker needs it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use lmetric_api::{
    foreign::{envoy_gateway::PolicyAncestorStatus, gateway::RouteParentStatus},
    pool::{Plug, reason},
};

use super::conditions::{Draft, FALSE, Said, TRUE, UNKNOWN};
use crate::{
    build,
    gateway::{self, Choice, Parent, Plugged, Seen, client_policy},
};

/// What a person has to do about a policy that Envoy Gateway refuses because it names a Backend.
const BACKENDS: &str =
    "; Envoy Gateway takes Backends only with extensionApis.enableBackend: true in its configuration";

impl Draft<'_> {
    /// Whether the Gateway takes the route.
    pub(super) fn route_is_accepted(&self) -> bool {
        self.route().0.0 == TRUE
    }

    /// A host of the route, or the Gateway's own address, at the listener that takes it.
    pub(super) fn route_url(&self) -> Option<String> {
        if !self.route_is_accepted() {
            return None;
        }
        let gateway = self.facts.gateways.parents.iter().find_map(|parent| {
            let gateway = parent.gateway()?;
            Some((gateway, parent.listeners(gateway).next()?))
        });
        let hosts = &self.facts.pool.spec.gateway.hostnames;
        let host = hosts.iter().find(|host| !host.starts_with('*')).cloned();
        let own = || Some(gateway?.0.status.as_ref()?.addresses.first()?.value.clone());
        let (scheme, port) = match gateway {
            Some((_, listener)) if listener.protocol == "HTTPS" => ("https", listener.port),
            Some((_, listener)) => ("http", listener.port),
            None => ("http", 80),
        };
        Some(super::address(scheme, &host.or_else(own)?, port))
    }

    pub(super) fn route_accepted(&self) -> Said {
        let ((status, reason, mut message), yaml) = self.route();
        if build::is_open(&self.facts.pool.spec) && status != UNKNOWN {
            let open = "The engines' port is open to every pod of the cluster; list your Gateway's pods in spec.networkPolicy.gatewayFrom to close it";
            message = match yaml {
                // what is to be applied comes last
                Some(_) => format!("{open}. {message}"),
                None => format!("{message}. {open}"),
            };
        }
        if let Some(yaml) = yaml {
            message = format!("{message}:\n{yaml}");
        }
        (status, reason, message)
    }

    /// The condition, and an object that is to be applied.
    pub(super) fn route(&self) -> (Said, Option<String>) {
        let spec = &self.facts.pool.spec;
        let (apis, gateways) = (self.facts.apis, &self.facts.gateways);
        let asked = !spec.gateway.parent_refs.is_empty();
        if asked && !apis.routes {
            return missing("httproutes of gateway.networking.k8s.io/v1", "the Gateway API");
        }
        let choice = gateway::choose(spec, gateways, apis);
        let plug = match choice {
            Choice::Plug(plugged) => Some(plugged),
            _ => None,
        };
        if plug.is_some_and(Plugged::by_gie) && !apis.gie_pools {
            return missing(
                "inferencepools of inference.networking.k8s.io/v1",
                "the Gateway API Inference Extension",
            );
        }
        if plug.is_some_and(Plugged::by_envoy_gateway) && !apis.envoy_gateway {
            return missing(
                "envoyextensionpolicies of gateway.envoyproxy.io/v1alpha1",
                "Envoy Gateway",
            );
        }
        if !asked {
            let message = "no Gateway is asked for: spec.gateway.parentRefs is empty";
            return plain(UNKNOWN, reason::NO_GATEWAY, message);
        }
        if let Choice::Stay(plugged, why) = &choice {
            let stays = if plugged.is_some() {
                ". What is plugged in stays"
            } else {
                ""
            };
            return plain(UNKNOWN, reason::UNKNOWN, &format!("{why}{stays}"));
        }
        let plugged = choice.plugged();
        if plugged.is_some_and(Plugged::by_envoy_gateway)
            && let Some(lack) = gateways.parents.iter().find_map(lack)
        {
            return ((FALSE, reason::GATEWAY_POLICY_MISSING, lack.words), lack.yaml);
        }
        let refusals = self.refusals(plugged);
        if !refusals.is_empty() {
            return plain(FALSE, reason::NOT_ACCEPTED, &refusals.join("; "));
        }
        match self.silence(plugged) {
            Some(words) => plain(UNKNOWN, reason::UNKNOWN, &words),
            None => plain(
                TRUE,
                reason::ACCEPTED,
                &format!("the Gateway takes the route{}", self.unread()),
            ),
        }
    }

    /// What Gateways do not take, in their own words.
    fn refusals(&self, plugged: Option<Plugged>) -> Vec<String> {
        let gateways = &self.facts.gateways;
        let mut refusals: Vec<_> = gateways.parents.iter().filter_map(down).collect();
        let routes = gateways.route.iter().chain(&gateways.second_route);
        let answers = routes
            .filter_map(|route| route.status.as_ref())
            .flat_map(|status| &status.parents);
        refusals.extend(answers.flat_map(|answer| by_parent("the HTTPRoute", answer)));
        if plugged.is_some_and(Plugged::by_gie) {
            let pool = gateways.gie_pool.iter().filter_map(|pool| pool.status.as_ref());
            let answers = pool.flat_map(|status| &status.parents);
            refusals.extend(answers.flat_map(|answer| by_parent("GIE's InferencePool", answer)));
        }
        if plugged.is_some_and(Plugged::by_envoy_gateway) {
            let extension = gateways
                .extension_policy
                .iter()
                .filter_map(|policy| policy.status.as_ref());
            let traffic = gateways
                .traffic_policy
                .iter()
                .filter_map(|policy| policy.status.as_ref());
            let extension = extension.flat_map(|status| &status.ancestors);
            refusals.extend(extension.flat_map(|answer| by_ancestor("the EnvoyExtensionPolicy", answer)));
            let traffic = traffic.flat_map(|status| &status.ancestors);
            refusals.extend(traffic.flat_map(|answer| by_ancestor("the BackendTrafficPolicy", answer)));
        }
        refusals
    }

    /// Who has not answered yet, if somebody has not.
    fn silence(&self, plugged: Option<Plugged>) -> Option<String> {
        let gateways = &self.facts.gateways;
        let routes = gateways.route.iter().chain(&gateways.second_route);
        let answers = || {
            let statuses = routes.clone().filter_map(|route| route.status.as_ref());
            statuses.flat_map(|status| &status.parents)
        };
        let own = self.facts.pool.metadata.namespace.as_deref();
        let is_answered = |parent: &Parent| {
            answers().any(|answer| {
                let by = &answer.parent_ref;
                by.name == parent.reference.name
                    && by.namespace.as_deref().or(own) == Some(&parent.namespace)
                    && (by.section_name == parent.reference.section_name)
                    && answer
                        .conditions
                        .iter()
                        .any(|condition| condition.type_ == "Accepted")
            })
        };
        if let Some(parent) = gateways.parents.iter().find(|parent| !is_answered(parent)) {
            let title = parent.title();
            return Some(match &parent.seen {
                Seen::Absent => {
                    format!("Gateway {title} does not exist; make it, or correct spec.gateway.parentRefs")
                }
                Seen::Classless(gateway) => format!(
                    "Gateway {title} is of GatewayClass {}, which does not exist; install what makes it, or correct the Gateway",
                    gateway.spec.gateway_class_name
                ),
                _ => format!(
                    "Gateway {title} has not answered about the HTTPRoute yet; look whether its controller runs, and whether its listeners let this namespace attach"
                ),
            });
        }
        if !plugged.is_some_and(Plugged::by_envoy_gateway) {
            return None;
        }
        let policies = [
            (
                "EnvoyExtensionPolicy",
                gateways
                    .extension_policy
                    .as_ref()
                    .and_then(|policy| policy.status.as_ref()),
            ),
            (
                "BackendTrafficPolicy",
                gateways
                    .traffic_policy
                    .as_ref()
                    .and_then(|policy| policy.status.as_ref()),
            ),
        ];
        policies
            .into_iter()
            .find(|(_, status)| status.is_none_or(|status| status.ancestors.is_empty()))
            .map(|(kind, _)| {
                format!("Envoy Gateway has not answered about the {kind} yet; look whether it runs")
            })
    }

    /// What could not be checked although it matters.
    fn unread(&self) -> &'static str {
        let hidden = |parent: &Parent| {
            matches!(
                parent.seen,
                Seen::Of {
                    controller: gateway::Controller::EnvoyGateway,
                    policies: None,
                    ..
                }
            ) || !matches!(parent.seen, Seen::Of { .. })
                && self.facts.pool.spec.gateway.plug == Plug::EnvoyGateway
        };
        if self.facts.gateways.parents.iter().any(hidden) {
            ". Its ClientTrafficPolicy cannot be read from here: look that headers.earlyRequestHeaders.remove holds x-gateway-destination-endpoint, and that connection.bufferLimit is at least 64Mi"
        } else {
            ""
        }
    }
}

fn plain(status: &'static str, reason: &'static str, message: &str) -> (Said, Option<String>) {
    ((status, reason, message.to_owned()), None)
}

fn missing(what: &str, remedy: &str) -> (Said, Option<String>) {
    let message = format!("{what} are not installed; install {remedy}, which is noticed within a minute");
    plain(FALSE, reason::OPTIONAL_API_MISSING, &message)
}

fn lack(parent: &Parent) -> Option<client_policy::Lack> {
    match &parent.seen {
        Seen::Of {
            gateway,
            controller: gateway::Controller::EnvoyGateway,
            policies: Some(policies),
        } => client_policy::lack(parent, gateway, policies),
        _ => None,
    }
}

/// A Gateway that is not at work.
fn down(parent: &Parent) -> Option<String> {
    let conditions = &parent.gateway()?.status.as_ref()?.conditions;
    let is_down = |condition: &&Condition| {
        matches!(condition.type_.as_str(), "Accepted" | "Programmed")
            && condition.status == FALSE
            && condition.reason != "Pending"
    };
    let condition = conditions.iter().find(is_down)?;
    Some(format!(
        "Gateway {} is not at work: {} ({})",
        parent.title(),
        condition.message,
        condition.reason
    ))
}

fn by_parent<'a>(what: &'a str, answer: &'a RouteParentStatus) -> impl Iterator<Item = String> + 'a {
    refused(&answer.conditions, &["Accepted", "ResolvedRefs"]).map(move |condition| {
        format!(
            "{} does not take {what}: {} ({})",
            answer.controller_name, condition.message, condition.reason
        )
    })
}

fn by_ancestor<'a>(what: &'a str, answer: &'a PolicyAncestorStatus) -> impl Iterator<Item = String> + 'a {
    refused(&answer.conditions, &["Accepted"]).map(move |condition| {
        let remedy = if condition.message.contains("Backend") {
            BACKENDS
        } else {
            ""
        };
        format!(
            "{} does not take {what}: {} ({}){remedy}",
            answer.controller_name, condition.message, condition.reason
        )
    })
}

fn refused<'a>(conditions: &'a [Condition], kinds: &'a [&str]) -> impl Iterator<Item = &'a Condition> {
    let is_refused =
        |condition: &&Condition| kinds.contains(&condition.type_.as_str()) && condition.status == FALSE;
    conditions.iter().filter(is_refused)
}

#[cfg(test)]
mod tests;
