//! One rule of the source state machine a test.

use lmetric_kvevents::{Adoption, Op, SourceConfig, SourceState};
use lmetric_prefix::{BlockKey, ContentHash};
use rmpv::Value;

use crate::{
    encode::{self, BLOCK, Chain, batch, list, removed, with},
    plain::{self, Fed, ID},
};

fn changed(event: Value, field: &str, value: impl Into<Value>) -> Value {
    with(event, field, Some(value.into()))
}

fn tokens(chain: u32, blocks: u32) -> Vec<u32> {
    (0..blocks * BLOCK).map(|at| chain * 100_000 + at).collect()
}

/// Extra keys with these in the first block, none in the others.
fn extras(first: Value, blocks: usize) -> Value {
    let mut all = vec![Value::Nil; blocks];
    all[0] = first;
    Value::Array(all)
}

#[test]
fn a_block_stored_twice_is_gone_after_the_second_removal() {
    let mut fed = Fed::new(64);
    let chain = Chain::new(1, 2);
    fed.feed(&chain.stored(0..2));
    fed.feed(&chain.stored(1..2));
    fed.feed(&batch(vec![removed(&chain.hashes[1..])]));
    assert!(fed.holds(&chain.keys));
    fed.feed(&batch(vec![removed(&chain.hashes[1..])]));
    assert!(fed.holds(&chain.keys[..1]));
    // an unknown removal does nothing
    fed.feed(&batch(vec![removed(&chain.hashes[1..])]));
    assert!(fed.holds(&chain.keys[..1]));
    assert_eq!((fed.source.stats().stored, fed.source.stats().removed), (3, 2));
}

#[test]
fn every_accepted_store_is_told_with_its_parent_also_of_a_block_held_already() {
    let mut fed = Fed::new(64);
    let chain = Chain::new(1, 2);
    fed.feed(&chain.stored(0..2));
    fed.feed(&chain.stored(0..2));
    let root = plain::root(None, None, BLOCK);
    let once = [(root, chain.keys[0]), (chain.keys[0], chain.keys[1])];
    assert_eq!(fed.applied.stores, [once, once].concat());
}

#[test]
fn orphans_wait_for_their_parent_and_are_adopted_with_all_that_follows() {
    let mut fed = Fed::new(64);
    let chain = Chain::new(1, 6);
    fed.feed(&chain.stored(4..6));
    fed.feed(&chain.stored(2..4));
    assert!(fed.holds(&[]));
    assert_eq!(fed.source.stats().orphans, 4);
    fed.feed(&chain.stored(0..2));
    assert!(fed.holds(&chain.keys));
    assert_eq!((fed.source.stats().orphans, fed.source.stats().adopted), (0, 4));
    assert!(fed.applied.gapless);
}

#[test]
fn a_block_that_finds_its_place_was_computed_when_it_was_announced() {
    let mut fed = Fed::new(64);
    let chain = Chain::new(1, 6);
    let pair = |at: usize| (chain.keys[at - 1], chain.keys[at]);
    fed.feed(&chain.stored(4..6));
    // block 3 and its parent come in one batch, and it is announced first
    fed.feed(&batch(vec![chain.event(3..4), chain.event(0..3)]));
    assert!(fed.holds(&chain.keys));
    let root = plain::root(None, None, BLOCK);
    assert_eq!(
        fed.applied.stores,
        [(root, chain.keys[0]), pair(1), pair(2), pair(3)]
    );
    assert_eq!(fed.applied.adopted, [pair(4), pair(5)]);
}

#[test]
fn orphans_can_be_removed_and_keep_count_of_their_copies() {
    let mut fed = Fed::new(64);
    let chain = Chain::new(1, 3);
    fed.feed(&chain.stored(1..3));
    fed.feed(&chain.stored(1..3));
    fed.feed(&batch(vec![removed(&[
        chain.hashes[1],
        chain.hashes[2],
        chain.hashes[2],
    ])]));
    fed.feed(&chain.stored(0..1));
    assert!(fed.holds(&chain.keys[..2]));
    fed.feed(&batch(vec![removed(&chain.hashes[1..2])]));
    assert!(fed.holds(&chain.keys[..1]));
}

#[test]
fn an_unknown_parent_is_never_taken_for_a_root() {
    let mut fed = Fed::new(64);
    fed.feed(&encode::orphan(5));
    assert!(fed.holds(&[]));
    assert_eq!(fed.source.stats().orphans, 1);
}

#[test]
fn a_removed_parent_leaves_a_hole_until_it_is_stored_again() {
    let mut fed = Fed::new(64);
    let chain = Chain::new(1, 4);
    fed.feed(&chain.stored(0..4));
    fed.feed(&batch(vec![removed(&chain.hashes[1..2])]));
    assert!(!fed.applied.gapless);
    let mut runs = Vec::new();
    fed.applied.index.longest_runs(&chain.keys, &[ID], &mut runs);
    assert_eq!(runs, [1]);
    fed.feed(&chain.stored(1..2));
    assert!(fed.applied.gapless);
    assert!(fed.holds(&chain.keys));
    // the hole also closes when what is behind it goes
    fed.feed(&batch(vec![removed(&chain.hashes[2..3])]));
    assert!(!fed.applied.gapless);
    fed.feed(&batch(vec![removed(&chain.hashes[3..])]));
    assert!(fed.applied.gapless);
    assert!(fed.holds(&chain.keys[..2]));
}

#[test]
fn lora_and_salt_separate_key_spaces() {
    let mut fed = Fed::new(64);
    let spaces = [
        (None, None),
        (Some("sql"), None),
        (None, Some("s")),
        (Some("sql"), Some("s")),
    ];
    let mut keys = Vec::new();
    for (lora, salt) in spaces {
        let chain = Chain::in_space(tokens(1, 2), lora, salt);
        let first: Vec<&str> = lora.into_iter().chain(salt).collect();
        let first = if first.is_empty() {
            Value::Nil
        } else {
            list(&first)
        };
        let mut event = changed(chain.event(0..2), "extra_keys", extras(first, 2));
        if let Some(lora) = lora {
            event = changed(changed(event, "lora_name", lora), "lora_id", 1);
        }
        fed.feed(&batch(vec![event]));
        keys.extend(chain.keys);
    }
    assert_eq!(keys.len(), 8);
    assert!(fed.holds(&keys));
}

#[test]
fn a_salt_that_equals_the_lora_name_is_still_a_salt() {
    let mut fed = Fed::new(64);
    let chain = Chain::in_space(tokens(1, 1), Some("x"), Some("x"));
    let event = changed(chain.event(0..1), "extra_keys", extras(list(&["x", "x"]), 1));
    fed.feed(&batch(vec![changed(event, "lora_name", "x")]));
    assert!(fed.holds(&chain.keys));
}

#[test]
fn tagged_extra_keys_mean_the_same_as_untagged_ones() {
    let mut fed = Fed::new(64);
    let chain = Chain::in_space(tokens(1, 1), Some("sql"), Some("s"));
    let tagged = Value::Array(vec![
        list(&["lora", "sql", "/adapters/sql"]),
        list(&["cache_salt", "s"]),
    ]);
    let event = changed(chain.event(0..1), "extra_keys", extras(tagged, 1));
    fed.feed(&batch(vec![changed(event, "lora_name", "sql")]));
    assert!(fed.holds(&chain.keys));
}

#[test]
fn multimodal_items_change_the_content_and_not_the_key_space() {
    let item = |tag: &[&str]| {
        let mut parts: Vec<Value> = tag.iter().map(|&tag| tag.into()).collect();
        parts.extend([Value::from("image-hash"), Value::from(-4)]);
        Value::Array(vec![Value::Array(parts)])
    };
    let chain = Chain::new(1, 2);
    let root = plain::root(None, None, BLOCK);
    let first = root.child(chain.contents[0].with_item("image-hash", -4));
    let expected = [first, first.child(chain.contents[1])];
    for form in [item(&[]), item(&["mm"])] {
        let mut fed = Fed::new(64);
        fed.feed(&batch(vec![changed(
            chain.event(0..2),
            "extra_keys",
            extras(form, 2),
        )]));
        assert!(fed.holds(&expected));
    }
    // 0.18 and older send the bare identifier, before the salt
    let mut fed = Fed::new(64);
    let salted = Chain::in_space(tokens(1, 1), None, Some("s"));
    let event = changed(
        salted.event(0..1),
        "extra_keys",
        extras(list(&["image-hash", "s"]), 1),
    );
    fed.feed(&batch(vec![event]));
    let root = plain::root(None, Some("s"), BLOCK);
    assert!(fed.holds(&[root.child(salted.contents[0].with_item("image-hash", 0))]));
}

#[test]
fn lora_stores_that_do_not_say_enough_are_not_indexed() {
    let chain = Chain::new(1, 2);
    let number_only = changed(chain.event(0..2), "lora_id", 3);
    let no_extra_keys = changed(with(chain.event(0..2), "extra_keys", None), "lora_name", "sql");
    for event in [number_only, no_extra_keys] {
        let mut fed = Fed::new(64);
        fed.feed(&batch(vec![event]));
        assert!(fed.holds(&[]));
        assert_eq!(
            (fed.source.stats().unnamed_lora, fed.source.stats().orphans),
            (1, 0)
        );
    }
}

#[test]
fn an_engine_that_shows_no_salts_is_asked_for_through_open_reservations() {
    let mut fed = Fed::new(64);
    let salted = Chain::in_space(tokens(1, 2), None, Some("s"));
    let plain_chain = Chain::new(2, 1);
    let root = plain::root(None, Some("s"), BLOCK);
    let event = with(salted.event(0..2), "extra_keys", None);
    let contents = salted.contents.clone();
    let mut adopt = |wanted: &[ContentHash]| {
        (wanted == contents).then(|| Adoption {
            parent: root,
            prefix: Vec::new(),
        })
    };
    fed.feed_adopting(&batch(vec![event]), &mut adopt);
    fed.feed_adopting(
        &batch(vec![with(plain_chain.event(0..1), "extra_keys", None)]),
        &mut adopt,
    );
    assert!(fed.holds(&[&salted.keys[..], &plain_chain.keys].concat()));
}

#[test]
fn only_local_full_attention_blocks_on_the_gpu_are_indexed() {
    let chain = Chain::new(1, 2);
    let event = || chain.event(0..2);
    let left_out = [
        changed(event(), "medium", "CPU"),
        changed(event(), "medium", "STORAGE"),
        changed(event(), "medium", "TAPE"),
        changed(event(), "locality", "REMOTE"),
        changed(event(), "kv_cache_spec_kind", "sliding_window"),
        changed(event(), "kv_cache_spec_kind", "mamba"),
        changed(event(), "block_size", 32),
        changed(event(), "block_size", 0),
        changed(event(), "block_size", -16),
        changed(event(), "token_ids", list(&tokens(1, 1))),
        changed(event(), "extra_keys", Value::Array(vec![Value::Nil])),
        changed(event(), "group_idx", 70_000),
    ];
    for event in left_out {
        let mut fed = Fed::new(64);
        fed.feed(&batch(vec![event.clone()]));
        assert!(fed.holds(&[]), "{event}");
        assert_eq!(fed.source.state(), SourceState::Live);
    }
    for kind in ["full_attention", "mla_attention", "sink_full_attention"] {
        let mut fed = Fed::new(64);
        let event = changed(changed(event(), "kv_cache_spec_kind", kind), "locality", "LOCAL");
        fed.feed(&batch(vec![event]));
        assert!(fed.holds(&chain.keys), "{kind}");
    }
}

#[test]
fn a_removal_in_a_group_that_is_not_indexed_removes_nothing() {
    let mut fed = Fed::new(64);
    let chain = Chain::new(1, 1);
    let window = changed(
        changed(chain.event(0..1), "kv_cache_spec_kind", "sliding_window"),
        "group_idx",
        1,
    );
    fed.feed(&batch(vec![chain.event(0..1), window]));
    fed.feed(&batch(vec![changed(removed(&chain.hashes), "group_idx", 1)]));
    assert!(fed.holds(&chain.keys));
    fed.feed(&batch(vec![removed(&chain.hashes)]));
    assert!(fed.holds(&[]));
}

#[test]
fn a_block_of_another_size_than_its_group_is_left_out() {
    let mut fed = Fed::new(64);
    let chain = Chain::new(1, 1);
    fed.feed(&chain.stored(0..1));
    let partial = changed(
        encode::stored(&[9], Some(chain.hashes[0]), &[1, 2, 3, 4]),
        "block_size",
        4,
    );
    fed.feed(&batch(vec![partial]));
    assert!(fed.holds(&chain.keys));
    assert_eq!(fed.source.block_size().unwrap().get(), BLOCK);
}

#[test]
fn offloaded_blocks_are_counted_for_themselves_and_bounded() {
    let mut fed = Fed::new(2);
    let placeholder = |hash: u64| {
        let event = changed(encode::stored(&[hash], None, &[]), "block_size", 0);
        changed(event, "medium", "CPU")
    };
    let chain = Chain::new(1, 1);
    fed.feed(&chain.stored(0..1));
    fed.feed(&batch((0..20).map(placeholder).collect()));
    fed.feed(&batch(vec![placeholder(chain.hashes[0]), placeholder(3)]));
    assert_eq!(
        (fed.source.stats().offloaded, fed.source.stats().refused),
        (8, 13)
    );
    fed.feed(&batch(vec![changed(removed(&[3, 4]), "medium", "CPU")]));
    assert_eq!(fed.source.stats().offloaded, 7);
    fed.feed(&batch(vec![changed(removed(&[3, 3]), "medium", "CPU")]));
    assert_eq!(fed.source.stats().offloaded, 6);
    // neither touched what the GPU holds
    assert!(fed.holds(&chain.keys));
}

#[test]
fn batches_of_another_rank_are_left_out() {
    let mut fed = Fed::with(SourceConfig {
        rank: Some(1),
        ..plain::config(false)
    });
    let chain = Chain::new(1, 2);
    fed.feed(&chain.stored(0..1));
    assert!(fed.holds(&[]));
    assert_eq!(fed.source.stats().skipped, 1);
}

#[test]
fn everything_cleared_leaves_nothing_and_makes_a_partial_source_whole() {
    let mut fed = Fed::new(64);
    let chain = Chain::new(1, 3);
    fed.feed(b"\xc1");
    assert_eq!(fed.source.state(), SourceState::Partial);
    fed.feed(&chain.stored(1..3));
    fed.feed(&batch(vec![
        encode::all_cleared(),
        encode::all_cleared(),
        chain.event(0..1),
    ]));
    assert!(fed.holds(&chain.keys[..1]));
    assert_eq!(
        (fed.source.state(), fed.source.stats().orphans),
        (SourceState::Live, 0)
    );
    assert_eq!(fed.source.stats().clears, 2);
}

#[test]
fn at_the_bound_orphans_go_first_then_copies_are_forgotten_then_stores_are_refused() {
    let mut fed = Fed::new(4);
    let chain = Chain::new(1, 12);
    for number in 1..=4 {
        fed.feed(&encode::orphan(number));
    }
    fed.feed(&encode::orphan(5));
    assert_eq!(
        (fed.source.stats().orphans, fed.source.stats().orphans_dropped),
        (4, 1)
    );
    fed.feed(&chain.stored(0..8));
    assert!(fed.holds(&chain.keys[..8]));
    assert_eq!(
        (fed.source.stats().orphans, fed.source.stats().orphans_dropped),
        (0, 5)
    );
    assert_eq!(fed.source.state(), SourceState::Live);
    fed.feed(&chain.stored(7..8));
    fed.feed(&chain.stored(8..10));
    assert!(fed.holds(&chain.keys[..8]));
    let stats = fed.source.stats();
    assert_eq!(
        (stats.copies_forgotten, stats.refused, stats.degraded),
        (1, 1, true)
    );
    assert_eq!(fed.source.state(), SourceState::Partial);
    assert!(stats.used <= stats.bound);
    // the forgotten copy does not keep the block for ever
    fed.feed(&batch(vec![removed(&chain.hashes[7..8])]));
    assert!(fed.holds(&chain.keys[..7]));
}

#[test]
fn an_orphan_run_is_adopted_by_its_contents_and_what_is_before_it_is_inferred() {
    let mut fed = Fed::new(64);
    let chain = Chain::new(1, 8);
    let (keys, contents) = (chain.keys.clone(), chain.contents.clone());
    let mut adopt = |wanted: &[ContentHash]| {
        let at = (1..contents.len()).find(|&at| contents[at..].starts_with(wanted))?;
        Some(Adoption {
            parent: keys[at - 1],
            prefix: keys[..at].to_vec(),
        })
    };
    fed.feed_adopting(&chain.stored(5..7), &mut adopt);
    assert!(fed.holds(&chain.keys[..7]));
    assert!(fed.applied.gapless);
    assert_eq!(fed.source.stats().orphans, 0);
    // what was computed is told as a store, what was there before is not
    assert_eq!(fed.applied.stores, [(keys[4], keys[5]), (keys[5], keys[6])]);
    // blocks that follow need no second search
    fed.feed(&chain.stored(7..8));
    // the block before the run is now known by its hash, those further up go with it
    fed.feed(&batch(vec![removed(&[
        chain.hashes[7],
        chain.hashes[6],
        chain.hashes[5],
    ])]));
    assert!(fed.holds(&chain.keys[..5]));
    fed.feed(&batch(vec![removed(&chain.hashes[4..5])]));
    assert!(fed.holds(&[]));
}

#[test]
fn orphans_before_an_adopted_run_take_their_places_if_they_fit() {
    let mut fed = Fed::new(64);
    let chain = Chain::new(1, 8);
    fed.feed(&chain.stored(3..5));
    let adoption = |keys: &[BlockKey]| Adoption {
        parent: keys[4],
        prefix: keys[..5].to_vec(),
    };
    let mut other = chain.keys.clone();
    other[3] = BlockKey::from_raw(1);
    fed.feed_adopting(&chain.stored(5..6), &mut |_| Some(adoption(&other)));
    assert!(
        fed.holds(&[]),
        "an orphan that does not fit is evidence against the match"
    );
    let keys = chain.keys.clone();
    fed.feed_adopting(&chain.stored(5..6), &mut |_| Some(adoption(&keys)));
    assert!(fed.holds(&chain.keys[..6]));
    // block 2 is the first with a hash that was never announced as stored
    fed.feed(&batch(vec![removed(&[
        chain.hashes[5],
        chain.hashes[5],
        chain.hashes[4],
        chain.hashes[3],
    ])]));
    assert!(fed.holds(&chain.keys[..3]));
}

#[test]
fn an_adoption_that_contradicts_itself_is_refused() {
    let chain = Chain::new(1, 4);
    let keys = chain.keys.clone();
    for adoption in [
        Adoption {
            parent: keys[0],
            prefix: Vec::new(),
        },
        Adoption {
            parent: keys[0],
            prefix: vec![keys[1]],
        },
    ] {
        let mut fed = Fed::new(64);
        fed.feed_adopting(&chain.stored(1..2), &mut |_| Some(adoption.clone()));
        assert!(fed.holds(&[]));
        assert_eq!(fed.source.stats().orphans, 1);
    }
}

#[test]
fn one_batch_of_orphans_causes_few_searches() {
    let mut fed = Fed::new(4_096);
    let events = (0..1_000)
        .map(|n| encode::stored(&[n], Some(!n), &[7; BLOCK as usize]))
        .collect();
    let mut searches = 0;
    fed.feed_adopting(&batch(events), &mut |_| {
        searches += 1;
        None
    });
    assert_eq!(searches, 64);
}

#[test]
fn what_the_engine_says_was_cached_is_held_until_a_cache_full_of_blocks_was_stored() {
    let mut fed = Fed::new(10);
    let (chain, other) = (Chain::new(1, 4), Chain::new(2, 12));
    let infer = |fed: &mut Fed| {
        let mut out = lmetric_kvevents::Outcome::default();
        fed.source.infer(&chain.keys[..3], &mut out);
        fed.applied.take(out);
    };
    infer(&mut fed);
    assert!(fed.holds(&chain.keys[..3]));
    fed.feed(&other.stored(0..9));
    infer(&mut fed);
    fed.feed(&other.stored(9..10));
    assert!(fed.holds(&[&chain.keys[..3], &other.keys[..10]].concat()));
    fed.feed(&batch(vec![removed(&other.hashes[9..10])]));
    for _ in 0..9 {
        fed.feed(&batch(vec![other.event(9..10), removed(&other.hashes[9..10])]));
    }
    assert!(fed.holds(&other.keys[..9]));
}

#[test]
fn an_inferred_block_that_is_stored_after_all_goes_with_its_removal() {
    let mut fed = Fed::new(64);
    let chain = Chain::new(1, 3);
    let mut out = lmetric_kvevents::Outcome::default();
    fed.source.infer(&chain.keys[..2], &mut out);
    assert_eq!(
        out.ops,
        [Op::Infer { key: chain.keys[0] }, Op::Infer { key: chain.keys[1] }]
    );
    fed.applied.take(out);
    fed.feed(&chain.stored(0..3));
    assert!(fed.holds(&chain.keys));
    fed.feed(&batch(vec![removed(&[
        chain.hashes[2],
        chain.hashes[1],
        chain.hashes[0],
    ])]));
    assert!(fed.holds(&[]));
}

#[test]
fn two_hashes_of_one_key_hold_it_until_both_are_gone() {
    let mut fed = Fed::new(64);
    let chain = Chain::new(1, 1);
    fed.feed(&chain.stored(0..1));
    fed.feed(&batch(vec![encode::stored(&[77], None, &tokens(1, 1))]));
    fed.feed(&batch(vec![removed(&chain.hashes)]));
    assert!(fed.holds(&chain.keys));
    fed.feed(&batch(vec![removed(&[77])]));
    assert!(fed.holds(&[]));
}

#[test]
fn messages_of_an_earlier_subscription_are_fenced_off() {
    let mut source = lmetric_kvevents::Source::new(plain::config(true));
    let mut out = lmetric_kvevents::Outcome::default();
    let old = source.connected(&mut out);
    let Some(lmetric_kvevents::Command::Replay { from: 0, id }) = out.command.take() else {
        panic!()
    };
    let chain = Chain::new(1, 3);
    source.restarted(&mut out);
    assert_eq!(out.command.take(), Some(lmetric_kvevents::Command::Resubscribe));
    out.ops.clear();
    source.live(old, 0, &chain.stored(0..1), &mut |_| None, &mut out);
    source.replayed(id, 0, &chain.stored(0..1), &mut |_| None, &mut out);
    source.replay_ended(id, &mut |_| None, &mut out);
    assert_eq!(out, lmetric_kvevents::Outcome::default());
    assert_eq!((source.stats().fenced, source.state()), (2, SourceState::Down));
    let new = source.connected(&mut out);
    source.live(old, 1, &chain.stored(0..1), &mut |_| None, &mut out);
    source.disconnected(old);
    assert_eq!(source.state(), SourceState::Stale);
    source.disconnected(new);
    assert_eq!(source.state(), SourceState::Down);
}
