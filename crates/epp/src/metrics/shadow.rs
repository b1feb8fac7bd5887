//! The shadow policy beside the live one, read when the metrics page is asked for; nothing without a shadow.

use std::{fmt, sync::Arc};

use lmetric_scheduler::{Scheduler, ShadowEndpoint, ShadowView, Side};
use lmetric_telemetry::prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet},
    metrics::MetricType,
};

/// Reads the scheduler's shadow.
pub struct Shadow(pub Arc<Scheduler>);

impl fmt::Debug for Shadow {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("Shadow")
    }
}

#[derive(Clone, Debug, EncodeLabelSet)]
struct PoliciesLabel {
    live: String,
    shadow: String,
}

#[derive(Clone, Debug, EncodeLabelSet)]
struct SideLabel {
    side: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet)]
struct EndpointSideLabel {
    endpoint: String,
    rank: String,
    side: &'static str,
}

/// Name, help and figure.
type Figure = (&'static str, &'static str, fn(&Side) -> u64);

/// Of each side and endpoint.
const ENDPOINT: [Figure; 2] = [
    (
        "shadow_endpoint_picks",
        "Requests by the endpoint that the live policy or the shadow chose",
        |side| side.picks,
    ),
    (
        "shadow_endpoint_prefill_tokens",
        "Prompt tokens not held by the endpoint that the live policy or the shadow chose",
        |side| side.prefill_tokens,
    ),
];

impl Collector for Shadow {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(ShadowView {
            live_policy,
            shadow_policy,
            picks,
            agreed,
            prompt_tokens,
            live,
            shadow,
            live_spread,
            shadow_spread,
            endpoints,
        }) = self.0.shadow()
        else {
            return Ok(());
        };
        encoder
            .encode_descriptor(
                "shadow_policies",
                "The live policy and its shadow",
                None,
                MetricType::Gauge,
            )?
            .encode_family(&PoliciesLabel {
                live: live_policy,
                shadow: shadow_policy,
            })?
            .encode_gauge(&1_i64)?;
        for (name, help, value) in [
            (
                "shadow_picks",
                "Requests that live policy and shadow both chose for",
                picks,
            ),
            (
                "shadow_agreed",
                "Requests for which both chose the same endpoint",
                agreed,
            ),
            (
                "shadow_prompt_tokens",
                "Prompt tokens of these requests",
                prompt_tokens,
            ),
        ] {
            encoder
                .encode_descriptor(name, help, None, MetricType::Counter)?
                .encode_counter::<NoLabelSet, _, u64>(&value, None)?;
        }
        let sides = [("live", live, live_spread), ("shadow", shadow, shadow_spread)];
        let mut metric = encoder.encode_descriptor(
            "shadow_prefill_tokens",
            "Prompt tokens that were not held where the live policy or the shadow chose",
            None,
            MetricType::Counter,
        )?;
        for (side, figures, _) in sides {
            metric
                .encode_family(&SideLabel { side })?
                .encode_counter::<NoLabelSet, _, u64>(&figures.prefill_tokens, None)?;
        }
        let mut metric = encoder.encode_descriptor(
            "shadow_spread",
            "Coefficient of variation of picks over endpoints",
            None,
            MetricType::Gauge,
        )?;
        for (side, _, spread) in sides {
            metric.encode_family(&SideLabel { side })?.encode_gauge(&spread)?;
        }
        for (name, help, figure) in ENDPOINT {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for ShadowEndpoint {
                address,
                rank,
                live,
                shadow,
            } in &endpoints
            {
                for (side, figures) in [("live", live), ("shadow", shadow)] {
                    let label = EndpointSideLabel {
                        endpoint: address.to_string(),
                        rank: rank.map(|rank| rank.to_string()).unwrap_or_default(),
                        side,
                    };
                    metric
                        .encode_family(&label)?
                        .encode_counter::<NoLabelSet, _, u64>(&figure(figures), None)?;
                }
            }
        }
        Ok(())
    }
}
