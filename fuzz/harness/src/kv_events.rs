//! KV events: what a publisher announces, and the index operations that come of it.
//!
//! An input: an octet with the blocks of the GPU, less one; an octet with what the source offers (bit 0: replays, bit 1:
//! only rank 0 counts); then steps of an octet for the kind, two for a length (little-endian) and a payload of so many
//! octets. Kinds, by the lowest three bits: 0 to 3 the next live message, 4 a live message after a gap, 5 a message of
//! the replay, 6 blocks of which the engine says that it holds them (eight octets each), 7 an event of the connection.

mod encode;
mod source;

use arbitrary::Unstructured;
use lmetric_kvevents::wire::{Batch, Decoder, Event, decode_batch};
use source::Fed;

/// Decodes and applies each message, and compares what is said to be held with what is counted.
pub fn run(input: &[u8]) {
    let mut input = Unstructured::new(input);
    let (Ok(blocks), Ok(offers)) = (input.arbitrary::<u8>(), input.arbitrary::<u8>()) else {
        return;
    };
    let mut fed = Fed::new(u32::from(blocks) + 1, offers & 1 != 0, offers & 2 != 0);
    while let Some((kind, payload)) = step(&mut input) {
        if kind & 7 < 6 {
            decode(payload);
        }
        fed.step(kind, payload);
        fed.check();
    }
}

fn step<'i>(input: &mut Unstructured<'i>) -> Option<(u8, &'i [u8])> {
    if input.is_empty() {
        return None;
    }
    let kind = input.arbitrary().ok()?;
    let length = usize::from(input.arbitrary::<u16>().ok()?).min(input.len());
    Some((kind, input.bytes(length).ok()?))
}

/// What is decoded is no more than what was sent, and is decoded alike when it is sent again.
fn decode(payload: &[u8]) {
    let Ok(batch) = decode_batch(payload) else {
        return;
    };
    bounded(&batch, payload.len());
    assert_eq!(
        Decoder::rank(payload),
        Ok(batch.rank),
        "the short way finds another rank"
    );
    let sent = encode::batch(&batch);
    let again = decode_batch(&sent).expect("what was decoded can be sent");
    assert_eq!((again.skipped, again.unknown_fields), (0, 0));
    assert_eq!(again.events.len(), batch.events.len());
    assert_eq!(
        encode::batch(&again),
        sent,
        "it changes each time that it is sent"
    );
}

fn bounded(batch: &Batch<'_>, octets: usize) {
    let size = |event: &Event<'_, '_>| match event {
        Event::Stored(stored) => {
            let extras = stored.extra_keys.map_or(0, |keys| keys.len());
            stored.tokens.len() + stored.hashes.len() + extras
        }
        Event::Removed(removed) => removed.hashes.len(),
        Event::Cleared => 0,
    };
    let all: usize = batch.events.iter().map(|event| 1 + size(event)).sum();
    assert!(all <= octets, "{all} values from {octets} octets");
}
