//! One ext-proc stream: what a gateway sends, in whatever order, and what it gets.
//!
//! An input: an octet with the largest body (bits 0 and 1), the conformance mode (bit 2) and how long a pick takes
//! (bits 3 and 4); an octet with the announced body modes (0: none are); then acts, see `act`.

mod act;
mod ledger;
mod sent;

use std::time::Duration;

use act::Act;
use arbitrary::Unstructured;
use ledger::Ledger;
use lmetric_epp::stream::{Driver, Limits};
use lmetric_proto::ext_proc::{ProcessingRequest, ProcessingResponse};
use sent::Sent;
use tokio::{
    sync::mpsc,
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::Status;

/// Nothing takes this long by the stream's clock, which stands still while there is something to do.
const PATIENCE: Duration = Duration::from_mins(1);
const PLACING: Duration = Duration::from_secs(5);

/// Plays the gateway's side to its end: every message is answered at most once and as the protocol says, the stream
/// ends, and nothing stays reserved.
pub fn run(input: &[u8]) {
    let mut input = Unstructured::new(input);
    let (Ok(how), Ok(modes)) = (input.arbitrary::<u8>(), input.arbitrary::<u8>()) else {
        return;
    };
    let acts = act::read(&mut input, modes);
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
    else {
        return;
    };
    runtime.block_on(play(how, acts));
}

/// The gateway's end of the stream.
struct Gateway {
    messages: Option<mpsc::UnboundedSender<Result<ProcessingRequest, Status>>>,
    replies: Option<JoinHandle<Vec<ProcessingResponse>>>,
    ending: CancellationToken,
    sent: Sent,
}

async fn play(how: u8, acts: Vec<Act>) {
    let ledger = Ledger::new(Duration::from_millis(
        [0, 5, 300, 20_000][usize::from(how >> 3 & 3)],
    ));
    let limits = Limits {
        body_bytes: [100, 16 << 10, 200 << 10, usize::MAX][usize::from(how & 3)],
        placing: PLACING,
    };
    let ending = CancellationToken::new();
    let mut driver = Driver::new(ledger.clone(), limits, ending.clone());
    if how & 4 != 0 {
        driver.obey_conformance();
    }
    let stats = driver.stats();
    let (messages, received) = mpsc::unbounded_channel();
    let (replies, mut replied) = mpsc::channel(2);
    let stream = tokio::spawn(async move {
        driver.run(UnboundedReceiverStream::new(received), replies).await;
    });
    let replies = tokio::spawn(async move {
        let mut all = Vec::new();
        while let Some(Ok(reply)) = replied.recv().await {
            all.push(reply);
        }
        all
    });
    let mut gateway = Gateway {
        messages: Some(messages),
        replies: Some(replies),
        ending,
        sent: Sent::default(),
    };
    for act in acts {
        gateway.act(act).await;
    }
    gateway.messages = None;
    let ended = timeout(PATIENCE, stream).await.expect("the stream has an end");
    ended.expect("the stream ends well");
    if let Some(replies) = gateway.replies {
        gateway.sent.check(&replies.await.expect("replies are kept"));
    }
    assert_eq!(stats.open(), 0, "a stream is counted as open");
    ledger.check_empty();
}

impl Gateway {
    async fn act(&mut self, act: Act) {
        match act {
            Act::Send(message) => {
                if let Some(messages) = &self.messages {
                    self.sent.note(&message);
                    // the picker may have ended the stream
                    drop(messages.send(Ok(*message)));
                }
            }
            Act::Fail(status) => {
                if let Some(messages) = &self.messages {
                    drop(messages.send(Err(status)));
                }
            }
            Act::HalfClose => self.messages = None,
            Act::Leave => {
                if let Some(replies) = self.replies.take() {
                    replies.abort();
                }
            }
            Act::Drain => self.ending.cancel(),
            Act::Pass(time) => sleep(time).await,
        }
    }
}
