//! Whether the configuration that was written last is in force.

use lmetric_telemetry::prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};

/// A configuration that changes at run time.
#[derive(Clone, Debug)]
pub struct ReloadMetrics {
    good: Gauge,
    applied: Counter,
}

impl ReloadMetrics {
    /// Registers them.
    pub fn new(registry: &mut Registry) -> Self {
        let good = Gauge::default();
        good.set(1);
        registry.register(
            "config_good",
            "1 while the configuration that was written last is good; 0: an older one is in force",
            good.clone(),
        );
        let applied = Counter::default();
        registry.register(
            "config_reloads",
            "Changes of the configuration that were taken over",
            applied.clone(),
        );
        Self { good, applied }
    }

    /// A configuration was taken over.
    pub fn applied(&self, changed: bool) {
        self.good.set(1);
        self.applied.inc_by(u64::from(changed));
    }

    /// One was refused.
    pub fn refused(&self) {
        self.good.set(0);
    }

    /// What the gauge says.
    pub fn is_good(&self) -> bool {
        self.good.get() == 1
    }
}
