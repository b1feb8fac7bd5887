//! Captured replays hold the messages of their live file, in both framings.

use lmetric_kvevents::wire::Framed;

use crate::captures::{self, Line, Replay};

fn check(name: &str, frames_of_a_batch: usize) {
    let live = captures::live(name);
    let exchanges = captures::replays(name);
    let mut batches = 0;
    for Replay {
        socket,
        start,
        total,
        messages,
    } in exchanges
    {
        let (end, body) = messages.split_last().unwrap();
        let body = if socket == "req" {
            // a REQ socket gets the first message only, without the empty frame
            assert_eq!(messages.len(), 1);
            &messages[..]
        } else {
            assert_eq!(Framed::of(end), Some(Framed::End), "{name} from {start}");
            body
        };
        let mut least = start;
        for frames in body {
            let Some(Framed::Batch { seq, payload }) = Framed::of(frames) else {
                panic!("{name}: {frames:02x?}")
            };
            assert_eq!(frames.len(), frames_of_a_batch - usize::from(socket == "req"));
            let line = live.iter().find(|line| line.seq == seq).unwrap();
            assert_eq!(payload, line.payload(), "{name} seq {seq}");
            assert!(seq >= least);
            least = seq + 1;
            batches += 1;
        }
        if socket != "req" && start == 0 {
            let oldest = live.iter().map(|line| line.seq).min().unwrap();
            let first = body.first().map(|frames| Framed::of(frames).unwrap());
            assert!(matches!(first, Some(Framed::Batch { seq, .. }) if seq == oldest || total < live.len()));
        }
    }
    assert!(batches > 0);
}

#[test]
fn replays_with_a_topic_frame_hold_the_live_messages() {
    check("events/main-b16-sha256", 4);
    check("events/evict-b16-28blocks", 4);
    check("events/connect-mode-default-block", 4);
}

#[test]
fn replays_without_a_topic_frame_hold_the_live_messages() {
    check("events-0.16/main-b16-sha256-seed0", 3);
    check("events-0.16/evict-b16-28blocks-unset-bytes", 3);
}

#[test]
fn live_messages_are_told_apart_by_their_last_two_frames() {
    for name in captures::all_live() {
        for line in captures::live(&name) {
            let Line { frames, seq, .. } = &line;
            assert!(
                matches!(Framed::of(frames), Some(Framed::Batch { seq: of, payload }) if of == *seq && payload == line.payload())
            );
        }
    }
}

#[test]
fn other_frames_are_no_message() {
    let seq = 7_u64.to_be_bytes();
    assert_eq!(Framed::of(&[&seq[..]]), None);
    assert_eq!(Framed::of(&[&seq[1..], b"x"]), None);
    assert_eq!(Framed::of(&[&u64::MAX.to_be_bytes()[..], b"x"]), None);
    let nothing: [&[u8]; 0] = [];
    assert_eq!(Framed::of(&nothing), None);
}
