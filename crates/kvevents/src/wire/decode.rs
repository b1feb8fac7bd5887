//! From bytes to events. Both encodings: positional arrays (vLLM ≤ 0.23) and maps (≥ 0.24).

use super::{
    Batch, Event, MAX_BATCH_BYTES, WireError,
    cursor::{Cursor, Fault},
    fields::Fields,
};

/// What a batch says about itself once all its events were seen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// Seconds since 1970, by the engine's clock.
    pub timestamp: f64,
    /// Data-parallel rank, when it says so.
    pub rank: Option<i64>,
    /// Events that were handed out.
    pub events: u32,
    /// Events left out: unknown tag or wrong shape.
    pub skipped: u32,
    /// Keys of maps, and elements past the known ones, that mean nothing to us.
    pub unknown_fields: u32,
}

/// Decodes batches; keeps the buffer for token ids from one to the next.
#[derive(Debug, Default)]
pub struct Decoder {
    tokens: Vec<u32>,
}

/// Token ids that the buffer keeps room for between batches: a source is one of many, and a longer run pays for its own.
const KEPT_TOKENS: usize = 2 * 1024;

/// Decodes a whole batch. For tools and tests; [`Decoder::decode`] allocates nothing.
pub fn decode_batch(payload: &[u8]) -> Result<Batch<'_>, WireError> {
    let mut events = Vec::new();
    let summary = Decoder::default().decode(payload, |event| events.push(event.into_owned_tokens()))?;
    let Summary {
        timestamp,
        rank,
        events: _,
        skipped,
        unknown_fields,
    } = summary;
    Ok(Batch {
        timestamp,
        events,
        rank,
        skipped,
        unknown_fields,
    })
}

impl Decoder {
    /// The data-parallel rank of a batch, without handing out its events. O(bytes).
    pub fn rank(payload: &[u8]) -> Result<Option<i64>, WireError> {
        let (_, mut cursor, elements) = open(payload)?;
        cursor.skip().map_err(|_| WireError::Truncated)?;
        read_rank(&mut cursor, elements)
    }

    /// Hands every event of a batch to `each`, in order. An event of an unknown kind or of the wrong shape
    /// is counted and left out. After an error the events before it have been handed out. O(bytes).
    pub fn decode<'p>(
        &mut self,
        payload: &'p [u8],
        mut each: impl FnMut(Event<'p, '_>),
    ) -> Result<Summary, WireError> {
        let (timestamp, mut cursor, elements) = open(payload)?;
        let mut summary = Summary {
            timestamp,
            ..Summary::default()
        };
        let count = cursor.array().map_err(|fault| match fault {
            Fault::Truncated => WireError::Truncated,
            Fault::Type => WireError::NotABatch,
        })?;
        for _ in 0..count {
            self.tokens.clear();
            let start = cursor;
            let mut fields = Fields::default();
            let kind = fields.read_all(&mut cursor, &mut self.tokens, &mut summary.unknown_fields);
            let event = kind.and_then(|kind| match kind {
                Some(kind) => fields.into_event(kind, &self.tokens).map(Some),
                None => Ok(None),
            });
            match event {
                Ok(Some(event)) => {
                    summary.events += 1;
                    each(event);
                }
                Ok(None) => summary.skipped += 1,
                Err(fault) => {
                    if fault == Fault::Truncated {
                        return Err(WireError::Truncated);
                    }
                    summary.skipped += 1;
                    cursor = start;
                    cursor.skip().map_err(|_| WireError::Truncated)?;
                }
            }
        }
        self.tokens.clear();
        self.tokens.shrink_to(KEPT_TOKENS);
        summary.rank = read_rank(&mut cursor, elements)?;
        Ok(summary)
    }
}

/// Timestamp, the cursor at the list of events, and how many elements the batch has.
fn open(payload: &[u8]) -> Result<(f64, Cursor<'_>, usize), WireError> {
    if payload.len() > MAX_BATCH_BYTES {
        return Err(WireError::TooLong { bytes: payload.len() });
    }
    let mut cursor = Cursor::new(payload);
    let broken = |fault| match fault {
        Fault::Truncated => WireError::Truncated,
        Fault::Type => WireError::NotABatch,
    };
    let elements = cursor.array().map_err(broken)?;
    if elements < 2 {
        return Err(WireError::NotABatch);
    }
    let timestamp = cursor.float().map_err(broken)?;
    Ok((timestamp, cursor, elements))
}

fn read_rank(cursor: &mut Cursor<'_>, elements: usize) -> Result<Option<i64>, WireError> {
    if elements < 3 || cursor.nil() {
        return Ok(None);
    }
    match cursor.int() {
        Ok(rank) => Ok(Some(rank)),
        Err(Fault::Truncated) => Err(WireError::Truncated),
        Err(Fault::Type) => Ok(None),
    }
}
