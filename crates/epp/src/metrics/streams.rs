//! What the ext-proc server counts, read when the metrics page is asked for.

use std::{fmt, sync::Arc, sync::atomic::Ordering::Relaxed};

use lmetric_telemetry::prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet},
    metrics::MetricType,
};

use crate::{refusal::RefusalKind, stream::Stats};

/// Reads the server's counters.
#[derive(Debug)]
pub struct Streams(pub Arc<Stats>);

#[derive(Clone, Debug, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

impl Collector for Streams {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Stats {
            open,
            opened,
            placed,
            refused,
        } = &*self.0;
        encoder
            .encode_descriptor(
                "extproc_streams_open",
                "ext-proc streams now",
                None,
                MetricType::Gauge,
            )?
            .encode_gauge(&(open.load(Relaxed) as i64))?;
        for (name, help, value) in [
            ("extproc_streams", "ext-proc streams", opened),
            ("extproc_placed", "Requests answered with a destination", placed),
        ] {
            encoder
                .encode_descriptor(name, help, None, MetricType::Counter)?
                .encode_counter::<NoLabelSet, _, u64>(&value.load(Relaxed), None)?;
        }
        let help = "Requests answered by the picker itself, by reason";
        let mut metric = encoder.encode_descriptor("extproc_refused", help, None, MetricType::Counter)?;
        for kind in RefusalKind::ALL {
            let label = ReasonLabel {
                reason: kind.reason(),
            };
            metric
                .encode_family(&label)?
                .encode_counter::<NoLabelSet, _, u64>(&refused[kind as usize].load(Relaxed), None)?;
        }
        Ok(())
    }
}
