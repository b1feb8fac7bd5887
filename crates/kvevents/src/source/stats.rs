//! What is counted of one source.

/// Counters of one source, for metrics and `/debug/endpoints`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceStats {
    /// Batches applied.
    pub batches: u64,
    /// Blocks stored (references added).
    pub stored: u64,
    /// Blocks removed (references dropped).
    pub removed: u64,
    /// Events skipped: unknown tag, wrong shape, other medium or group kind, another rank's batch.
    pub skipped: u64,
    /// Keys and elements of events that mean nothing to us.
    pub unknown_fields: u64,
    /// Messages that did not decode at all.
    pub malformed: u64,
    /// Stores of LoRA adapters that the engine does not name well enough to be indexed.
    pub unnamed_lora: u64,
    /// Gaps seen in the sequence.
    pub gaps: u64,
    /// Replays run.
    pub replays: u64,
    /// Messages of an earlier connection that came too late.
    pub fenced: u64,
    /// Times the source was cleared.
    pub clears: u64,
    /// Restarts of the engine noticed.
    pub restarts: u64,
    /// Blocks held now.
    pub held: u64,
    /// Blocks held outside the GPU now; not indexed.
    pub offloaded: u64,
    /// Orphan blocks waiting for a parent now.
    pub orphans: u64,
    /// Orphan blocks that found their place, by parent or by content.
    pub adopted: u64,
    /// Orphan blocks dropped at the bound.
    pub orphans_dropped: u64,
    /// Entries (held, waiting, and holes) that count against the bound now.
    pub used: u64,
    /// Most entries that may be kept.
    pub bound: u64,
    /// Times that counts of copies were set to one at the bound.
    pub copies_forgotten: u64,
    /// Stores refused at the bound.
    pub refused: u64,
    /// Stores were refused since the last clear: less is indexed than is held.
    pub degraded: bool,
    /// Last sequence number applied.
    pub last_seq: Option<u64>,
}
