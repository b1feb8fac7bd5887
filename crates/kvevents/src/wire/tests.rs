use proptest::prelude::*;
use rmpv::Value;

use super::{Decoder, Event, ExtraKey, MAX_BATCH_BYTES, WireError, decode_batch};

fn bytes(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, value).unwrap();
    bytes
}

fn list(values: impl IntoIterator<Item = Value>) -> Value {
    Value::Array(values.into_iter().collect())
}

fn map(entries: &[(&str, Value)]) -> Value {
    Value::Map(
        entries
            .iter()
            .map(|(key, value)| ((*key).into(), value.clone()))
            .collect(),
    )
}

fn batch(events: impl IntoIterator<Item = Value>) -> Vec<u8> {
    bytes(&list([Value::F64(1.5), list(events), Value::from(2)]))
}

fn stored(changes: &[(&str, Value)]) -> Value {
    let mut entries = vec![
        ("type", "BlockStored".into()),
        ("block_hashes", list([1.into()])),
        ("parent_block_hash", Value::Nil),
        ("token_ids", list([10.into(), 20.into()])),
        ("block_size", 2.into()),
    ];
    for (key, value) in changes {
        entries.retain(|(known, _)| known != key);
        entries.push((key, value.clone()));
    }
    map(&entries)
}

fn hashes_of(event: &Event<'_, '_>) -> Vec<u64> {
    match event {
        Event::Stored(stored) => stored.hashes.iter().map(super::Hash::get).collect(),
        Event::Removed(removed) => removed.hashes.iter().map(super::Hash::get).collect(),
        Event::Cleared => Vec::new(),
    }
}

#[test]
fn all_forms_of_a_hash_give_the_same_number() {
    let digest: Vec<u8> = (0..24).chain(0xfedc_ba98_7654_3210_u64.to_be_bytes()).collect();
    let forms = [
        Value::from(0xfedc_ba98_7654_3210_u64),
        Value::from(0xfedc_ba98_7654_3210_u64 as i64),
        Value::Binary(digest),
        Value::Binary(0xfedc_ba98_7654_3210_u64.to_be_bytes().into()),
    ];
    let payload = batch([stored(&[("block_hashes", list(forms))])]);
    let decoded = decode_batch(&payload).unwrap();
    assert_eq!(hashes_of(&decoded.events[0]), [0xfedc_ba98_7654_3210; 4]);
}

#[test]
fn batches_of_two_elements_and_of_more_are_read() {
    for (payload, rank) in [
        (list([1.into(), list([])]), None),
        (list([1.into(), list([]), Value::Nil]), None),
        (list([1.into(), list([]), 3.into()]), Some(3)),
        (list([1.into(), list([]), 3.into(), "new".into()]), Some(3)),
    ] {
        let payload = bytes(&payload);
        let decoded = decode_batch(&payload).unwrap();
        assert_eq!((decoded.rank, decoded.timestamp), (rank, 1.0));
        assert_eq!(Decoder::rank(&payload), Ok(rank));
    }
}

#[test]
fn unknown_keys_elements_and_tags_are_stepped_over_and_counted() {
    let deep = (0..100).fold(Value::Nil, |inner, _| list([map(&[("x", inner)])]));
    let payload = batch([
        stored(&[("block_offsets", deep.clone())]),
        map(&[("type", "TierBlocksCleared".into()), ("medium", deep.clone())]),
        list([
            "BlockRemoved".into(),
            list([7.into()]),
            "GPU".into(),
            0.into(),
            deep.clone(),
        ]),
        list(["Tomorrow".into(), deep]),
        map(&[("type", "AllBlocksCleared".into())]),
    ]);
    let decoded = decode_batch(&payload).unwrap();
    assert_eq!(decoded.events.len(), 3);
    assert_eq!(
        (decoded.skipped, decoded.unknown_fields, decoded.rank),
        (2, 2, Some(2))
    );
}

#[test]
fn an_event_of_the_wrong_shape_is_skipped_and_the_batch_goes_on() {
    let wrong = [
        stored(&[("block_hashes", "text".into())]),
        stored(&[("block_hashes", list([Value::Nil]))]),
        stored(&[("block_hashes", list([Value::Binary(vec![1; 7])]))]),
        stored(&[("token_ids", list([list([1.into(), 2.into()])]))]),
        stored(&[("token_ids", list([Value::from(-1)]))]),
        stored(&[("token_ids", list([Value::from(1_u64 << 32)]))]),
        stored(&[("block_size", Value::Nil)]),
        stored(&[("type", Value::Nil)]),
        stored(&[("medium", Value::Binary(vec![]))]),
        map(&[("type", "BlockStored".into())]),
        map(&[("block_hashes", list([]))]),
        list([]),
        list(["BlockStored".into()]),
        list([7.into()]),
        Value::Nil,
        7.into(),
        "BlockStored".into(),
    ];
    for event in wrong {
        let payload = batch([event.clone(), stored(&[])]);
        let decoded = decode_batch(&payload).unwrap_or_else(|error| panic!("{event}: {error}"));
        assert_eq!((decoded.skipped, decoded.events.len()), (1, 1), "{event}");
        let Event::Stored(read) = &decoded.events[0] else {
            panic!("{event}")
        };
        assert_eq!(*read.tokens, [10, 20], "{event}");
    }
}

#[test]
fn an_event_with_more_hashes_than_any_step_makes_is_skipped() {
    let most = |count: u64| batch([stored(&[("block_hashes", list((0..count).map(Value::from)))])]);
    assert_eq!(decode_batch(&most(65_536)).unwrap().events.len(), 1);
    assert_eq!(decode_batch(&most(65_537)).unwrap().skipped, 1);
}

#[test]
fn extra_keys_are_told_apart() {
    let keys = list([
        list([
            "plain".into(),
            list(["image".into(), Value::from(-5)]),
            list(["lora".into(), "name".into(), "/path".into()]),
            list(["mm".into(), "image".into(), 3.into()]),
            list(["cache_salt".into(), "salt".into()]),
            list(["prompt_embeds".into(), Value::Binary(vec![9])]),
            Value::Binary(vec![1, 2]),
            7.into(),
        ]),
        Value::Nil,
        list([]),
    ]);
    let payload = batch([stored(&[("extra_keys", keys)])]);
    let decoded = decode_batch(&payload).unwrap();
    let Event::Stored(read) = &decoded.events[0] else {
        panic!()
    };
    let blocks: Vec<Vec<ExtraKey<'_>>> = read
        .extra_keys
        .unwrap()
        .iter()
        .map(|block| block.iter().collect())
        .collect();
    let embeds = bytes(&list(["prompt_embeds".into(), Value::Binary(vec![9])]));
    assert_eq!(
        blocks,
        [
            vec![
                ExtraKey::Text("plain"),
                ExtraKey::Item("image", -5),
                ExtraKey::Lora("name"),
                ExtraKey::Item("image", 3),
                ExtraKey::Salt("salt"),
                ExtraKey::Other(&embeds),
                ExtraKey::Other(&[0xc4, 2, 1, 2]),
                ExtraKey::Other(&[7]),
            ],
            vec![],
            vec![],
        ]
    );
}

#[test]
fn what_is_no_batch_is_an_error_that_says_so() {
    assert_eq!(
        decode_batch(&bytes(&"text".into())).unwrap_err(),
        WireError::NotABatch
    );
    assert_eq!(
        decode_batch(&bytes(&list([1.into()]))).unwrap_err(),
        WireError::NotABatch
    );
    assert_eq!(
        decode_batch(&bytes(&list([1.into(), 2.into()]))).unwrap_err(),
        WireError::NotABatch
    );
    assert_eq!(decode_batch(&[]).unwrap_err(), WireError::Truncated);
    let long = vec![0xc0; MAX_BATCH_BYTES + 1];
    assert_eq!(
        decode_batch(&long).unwrap_err(),
        WireError::TooLong {
            bytes: MAX_BATCH_BYTES + 1
        }
    );
    // four billion events, and arrays nested to the end of the message
    let promises = [0x92, 0x01, 0xdd, 0xff, 0xff, 0xff, 0xff];
    assert_eq!(decode_batch(&promises).unwrap_err(), WireError::Truncated);
    let mut nested = vec![0x92, 0x01];
    nested.resize(MAX_BATCH_BYTES, 0x91);
    assert_eq!(decode_batch(&nested).unwrap_err(), WireError::Truncated);
}

#[test]
fn events_before_a_broken_one_are_handed_out() {
    let whole = batch([stored(&[]), stored(&[])]);
    let mut seen = 0;
    let read = Decoder::default().decode(&whole[..whole.len() - 4], |_| seen += 1);
    assert_eq!((read, seen), (Err(WireError::Truncated), 1));
}

fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Nil),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::F64),
        ".{0,9}".prop_map(Value::from),
        prop::sample::select(vec![
            "type",
            "BlockStored",
            "BlockRemoved",
            "block_hashes",
            "token_ids",
            "extra_keys"
        ])
        .prop_map(Value::from),
        prop::collection::vec(any::<u8>(), 0..40).prop_map(Value::Binary),
    ];
    leaf.prop_recursive(5, 60, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::Array),
            prop::collection::vec((inner.clone(), inner), 0..8).prop_map(Value::Map),
        ]
    })
}

/// Reads everything that is decoded late.
fn read_all(payload: &[u8]) {
    if let Ok(decoded) = decode_batch(payload) {
        for event in &decoded.events {
            if let Event::Stored(stored) = event {
                assert_eq!(stored.hashes.iter().count(), stored.hashes.len());
                for block in stored.extra_keys.iter().flat_map(super::ExtraKeys::iter) {
                    assert_eq!(block.is_empty(), block.iter().next().is_none());
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(payload in prop::collection::vec(any::<u8>(), 0..400)) {
        read_all(&payload);
    }

    #[test]
    fn any_values_are_read_and_none_is_lost_count_of(events in prop::collection::vec(anything(), 0..12)) {
        let payload = batch(events.clone());
        let decoded = decode_batch(&payload).unwrap();
        prop_assert_eq!(decoded.events.len() + decoded.skipped as usize, events.len());
        prop_assert_eq!(decoded.rank, Some(2));
        read_all(&payload);
    }

    #[test]
    fn a_cut_or_altered_batch_is_read_or_refused(at in 0_usize..200, with in any::<u8>(), cut in 0_usize..200) {
        let mut payload = batch([stored(&[("extra_keys", list([list(["a".into()])]))]), stored(&[])]);
        let length = payload.len();
        payload[at % length] = with;
        read_all(&payload);
        read_all(&payload[..cut % length]);
    }
}
