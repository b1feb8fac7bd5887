//! The order of messages: gaps, replays, restarts. Knows nothing of what the messages say.
//!
//! A publisher numbers its messages from 0; nothing in them names its incarnation. Within one connection
//! numbers only rise, so a number that falls back means a restart. After a reconnection the last message
//! applied is asked for again: if it is there with the same bytes, the publisher is the same one.

use std::collections::VecDeque;

/// Most messages, and most of their bytes, that are kept while a replay runs. What does not fit makes a gap
/// that the next replay fills.
const MOST_BUFFERED: usize = 4_096;
const MOST_BUFFERED_BYTES: usize = 8 * 1024 * 1024;

/// Replays that may follow each other without the stream becoming whole.
const MOST_RESUMES: u8 = 3;

/// What to do with a message, or next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is the next one.
    Apply,
    /// It was applied before, or waits its turn.
    Drop,
    /// Messages before it are lost: forget what was known, then apply it.
    ClearAndApply,
    /// The publisher is a new one: forget everything and subscribe again.
    Restarted,
    /// The publisher is a new one and has no replay: forget everything and apply this, its first we see.
    RestartedHere,
    /// Ask for a replay; the message, if it is a live one, waits.
    Replay,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Down,
    /// A replay was asked for.
    Replaying {
        /// Whether its first message must be the last one applied.
        probing: bool,
        /// Whether it has brought a message.
        begun: bool,
        /// Nothing is known to be missing: the publisher is only asked whether it is still the same.
        quiet: bool,
    },
    Following,
}

#[derive(Debug)]
pub(super) struct Sequence {
    replay: bool,
    phase: Phase,
    /// The number that the next message should have.
    next: u64,
    /// Hash of the last payload applied.
    last: u64,
    /// Highest number seen live on this connection.
    seen: Option<u64>,
    /// A replay has shown that the publisher on this connection is the one we know.
    verified: bool,
    /// Messages are missing that no replay can bring.
    partial: bool,
    resumes: u8,
    gaps: u64,
    buffer: VecDeque<(u64, Box<[u8]>)>,
    buffered: usize,
}

impl Sequence {
    pub(super) fn new(replay: bool) -> Self {
        Self {
            replay,
            phase: Phase::Down,
            next: 0,
            last: 0,
            seen: None,
            verified: false,
            partial: false,
            resumes: 0,
            gaps: 0,
            buffer: VecDeque::new(),
            buffered: 0,
        }
    }

    pub(super) fn is_down(&self) -> bool {
        self.phase == Phase::Down
    }

    pub(super) fn is_repairing(&self) -> bool {
        matches!(self.phase, Phase::Replaying { quiet: false, .. })
    }

    pub(super) fn is_partial(&self) -> bool {
        self.partial
    }

    pub(super) fn gaps(&self) -> u64 {
        self.gaps
    }

    pub(super) fn last_seq(&self) -> Option<u64> {
        self.next.checked_sub(1)
    }

    /// Bytes that wait for a replay to end.
    #[cfg(test)]
    pub(super) fn buffered_bytes(&self) -> usize {
        self.buffered
    }

    /// Something was lost that is not a message.
    pub(super) fn set_partial(&mut self, partial: bool) {
        self.partial = partial;
    }

    /// A subscription is up. True: ask for a replay from [`Sequence::replay_from`].
    pub(super) fn connected(&mut self) -> bool {
        self.seen = None;
        self.verified = false;
        self.resumes = 0;
        self.forget_buffer();
        if self.replay {
            self.phase = Phase::Replaying {
                probing: self.next > 0,
                begun: false,
                quiet: false,
            };
        } else {
            self.phase = Phase::Following;
            self.partial |= self.next == 0;
        }
        self.replay
    }

    pub(super) fn disconnected(&mut self) {
        self.phase = Phase::Down;
        self.forget_buffer();
    }

    /// The publisher is a new one, or is taken for one.
    pub(super) fn restarted(&mut self) {
        self.next = 0;
        self.last = 0;
        self.partial = false;
        self.disconnected();
    }

    /// Asks the publisher, while nothing is known to be missing, whether it is still the same. True: ask
    /// for a replay.
    pub(super) fn probe(&mut self) -> bool {
        let idle = self.replay && self.phase == Phase::Following;
        if idle {
            self.phase = Phase::Replaying {
                probing: self.next > 0,
                begun: false,
                quiet: true,
            };
        }
        idle
    }

    /// Where a replay that is asked for now begins.
    pub(super) fn replay_from(&self) -> u64 {
        match self.phase {
            Phase::Replaying { probing: true, .. } => self.next.saturating_sub(1),
            _ => self.next,
        }
    }

    /// A live message. `Drop` may mean that it was kept for later.
    pub(super) fn live(&mut self, seq: u64, payload: &[u8]) -> Verdict {
        if self.phase == Phase::Down {
            return Verdict::Drop;
        }
        if self.seen.is_some_and(|seen| seq <= seen) {
            return self.fell_back(seq);
        }
        let first = self.seen.replace(seq).is_none();
        if self.phase != Phase::Following {
            self.keep(seq, payload);
            return Verdict::Drop;
        }
        if seq == self.next {
            self.resumes = 0;
            return Verdict::Apply;
        }
        if seq < self.next {
            return if first && !self.verified {
                self.fell_back(seq)
            } else {
                Verdict::Drop
            };
        }
        self.ahead(seq, payload)
    }

    /// A message that was kept, now that the replay is over.
    pub(super) fn kept(&mut self) -> Option<(u64, Box<[u8]>, Verdict)> {
        if self.phase != Phase::Following {
            return None;
        }
        let (seq, payload) = self.buffer.pop_front()?;
        self.buffered -= payload.len();
        let verdict = match seq.cmp(&self.next) {
            std::cmp::Ordering::Equal => Verdict::Apply,
            std::cmp::Ordering::Less if self.verified => Verdict::Drop,
            std::cmp::Ordering::Less => self.fell_back(seq),
            std::cmp::Ordering::Greater => self.ahead_of_kept(seq, &payload),
        };
        Some((seq, payload, verdict))
    }

    /// A message of the replay.
    pub(super) fn replayed(&mut self, seq: u64, hash: u64) -> Verdict {
        let Phase::Replaying {
            probing,
            begun,
            quiet,
        } = self.phase
        else {
            return Verdict::Drop;
        };
        if probing {
            let last = self.next.saturating_sub(1);
            if seq < last {
                return Verdict::Drop;
            }
            self.phase = Phase::Replaying {
                probing: false,
                begun: true,
                quiet,
            };
            if seq == last {
                return if hash == self.last {
                    Verdict::Drop
                } else {
                    Verdict::Restarted
                };
            }
            // the last message applied is no longer kept: whether this publisher sent it cannot be known
            return self.lost(seq);
        }
        if seq < self.next {
            return Verdict::Drop;
        }
        self.phase = Phase::Replaying {
            probing,
            begun: true,
            quiet,
        };
        if seq == self.next {
            return Verdict::Apply;
        }
        if !begun {
            // the ring begins above what was asked for
            return self.lost(seq);
        }
        self.gaps += 1;
        if self.resumes < MOST_RESUMES {
            self.resume();
            return Verdict::Replay;
        }
        self.lost(seq)
    }

    /// The replay came to its end. `Replay`: ask again from [`Sequence::replay_from`].
    pub(super) fn replay_ended(&mut self) -> Verdict {
        match self.phase {
            Phase::Replaying { probing: true, .. } => Verdict::Restarted,
            Phase::Replaying { .. } => {
                self.verified = true;
                self.phase = Phase::Following;
                Verdict::Drop
            }
            Phase::Down | Phase::Following => Verdict::Drop,
        }
    }

    /// There will be no replay: go on with what comes.
    pub(super) fn replay_failed(&mut self) {
        if let Phase::Replaying { quiet, .. } = self.phase {
            self.phase = Phase::Following;
            self.resumes = MOST_RESUMES;
            self.partial |= self.next == 0 && !quiet;
        }
    }

    /// `seq` was applied.
    pub(super) fn applied(&mut self, seq: u64, hash: u64) {
        if seq == 0 && self.next == 0 {
            self.partial = false;
        }
        self.next = seq.saturating_add(1);
        self.last = hash;
    }

    fn fell_back(&mut self, seq: u64) -> Verdict {
        if self.replay {
            return Verdict::Restarted;
        }
        self.partial = seq > 0;
        self.next = seq;
        self.seen = Some(seq);
        Verdict::RestartedHere
    }

    fn ahead(&mut self, seq: u64, payload: &[u8]) -> Verdict {
        if self.next == 0 && !self.replay {
            // joined in the middle, and nobody can tell what was before
            self.partial = true;
            self.next = seq;
            return Verdict::Apply;
        }
        self.gaps += 1;
        if self.replay && self.resumes < MOST_RESUMES {
            self.resume();
            self.keep(seq, payload);
            return Verdict::Replay;
        }
        self.resumes = 0;
        self.lost(seq)
    }

    fn ahead_of_kept(&mut self, seq: u64, payload: &[u8]) -> Verdict {
        let verdict = self.ahead(seq, payload);
        if verdict == Verdict::Replay {
            // `ahead` kept it at the end; it belongs before those that are still kept
            if let Some(last) = self.buffer.pop_back() {
                self.buffer.push_front(last);
            }
        }
        verdict
    }

    /// Messages before `seq` are gone for good.
    fn lost(&mut self, seq: u64) -> Verdict {
        let nothing_known = self.next == 0;
        self.partial = true;
        self.next = seq;
        if nothing_known {
            Verdict::Apply
        } else {
            Verdict::ClearAndApply
        }
    }

    fn resume(&mut self) {
        self.resumes += 1;
        self.phase = Phase::Replaying {
            probing: false,
            begun: false,
            quiet: false,
        };
    }

    fn keep(&mut self, seq: u64, payload: &[u8]) {
        if self.buffer.len() < MOST_BUFFERED && self.buffered + payload.len() <= MOST_BUFFERED_BYTES {
            self.buffered += payload.len();
            self.buffer.push_back((seq, payload.into()));
        }
    }

    fn forget_buffer(&mut self) {
        self.buffer = VecDeque::new();
        self.buffered = 0;
    }
}
