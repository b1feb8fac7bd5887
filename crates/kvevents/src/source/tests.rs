use super::sequence::{Sequence, Verdict};

#[test]
fn what_waits_for_a_replay_is_bounded_and_the_rest_is_asked_for_again() {
    let mut sequence = Sequence::new(true);
    assert!(sequence.connected());
    let payload = vec![0; 64 * 1024];
    for seq in 0..10_000 {
        assert_eq!(sequence.live(seq, &payload), Verdict::Drop);
    }
    assert!(sequence.buffered_bytes() <= 8 * 1024 * 1024);
    assert!(sequence.buffered_bytes() > 7 * 1024 * 1024);
    assert_eq!(sequence.replay_ended(), Verdict::Drop);
    let mut applied = 0;
    while let Some((seq, _, verdict)) = sequence.kept() {
        assert_eq!((seq, verdict), (applied, Verdict::Apply));
        sequence.applied(seq, 0);
        applied += 1;
    }
    assert_eq!(sequence.buffered_bytes(), 0);
    assert_eq!(sequence.live(10_000, &payload), Verdict::Replay);
    assert_eq!(sequence.replay_from(), applied);
}

#[test]
fn many_small_messages_are_bounded_too() {
    let mut sequence = Sequence::new(true);
    sequence.connected();
    for seq in 0..10_000 {
        sequence.live(seq, &[]);
    }
    sequence.replay_ended();
    let mut kept = 0;
    while let Some((seq, _, _)) = sequence.kept() {
        sequence.applied(seq, 0);
        kept += 1;
    }
    assert_eq!(kept, 4_096);
}

#[test]
fn a_number_that_falls_back_is_a_restart_with_replay_and_without() {
    let mut with = Sequence::new(true);
    with.connected();
    with.replay_ended();
    let mut without = Sequence::new(false);
    without.connected();
    for sequence in [&mut with, &mut without] {
        for seq in 0..5 {
            assert_eq!(sequence.live(seq, b""), Verdict::Apply);
            sequence.applied(seq, 0);
        }
    }
    assert_eq!(with.live(2, b""), Verdict::Restarted);
    assert_eq!(without.live(2, b""), Verdict::RestartedHere);
    without.applied(2, 0);
    assert!(without.is_partial());
    assert_eq!(without.live(0, b""), Verdict::RestartedHere);
    without.applied(0, 0);
    assert!(!without.is_partial());
}

#[test]
fn the_largest_number_is_a_number_like_any_other() {
    let mut sequence = Sequence::new(true);
    sequence.connected();
    sequence.replay_ended();
    assert_eq!(sequence.live(u64::MAX, b""), Verdict::Replay);
    assert_eq!(sequence.replayed(u64::MAX, 0), Verdict::Apply);
    sequence.applied(u64::MAX, 0);
    assert_eq!(sequence.replayed(u64::MAX, 0), Verdict::Apply);
    sequence.replay_ended();
    assert_eq!(sequence.live(u64::MAX, b""), Verdict::Restarted);
}
