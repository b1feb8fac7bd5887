//! An answer in five chunks: the first after a fixed delay, the others one after the other, each with a fifth of the tokens.

use std::{
    convert::Infallible,
    fmt::Write,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures::Stream;
use hyper::body::Frame;

use super::{
    chats::{ANSWERED, MODEL, Turn},
    engine::Busy,
};

/// From the end of a request to the first chunk of its answer.
pub const DELAY: Duration = Duration::from_millis(20);
/// From chunk to chunk.
const GAP: Duration = Duration::from_millis(5);
const CHUNKS: usize = 5;

struct Answering {
    busy: Busy,
    turn: Turn,
    remembers: bool,
    first: Instant,
    sent: usize,
    cached: usize,
}

/// The body of the answer to a request that is complete now, once the delay is over: its head comes with the first chunk.
pub async fn answer(
    busy: Busy,
    turn: Turn,
    remembers: bool,
) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> {
    let answering = Answering {
        busy,
        turn,
        remembers,
        first: Instant::now() + DELAY,
        sent: 0,
        cached: 0,
    };
    answering.busy.engine().timer.until(answering.first).await;
    futures::stream::unfold(answering, Answering::next)
}

impl Answering {
    async fn next(mut self) -> Option<(Result<Frame<Bytes>, Infallible>, Self)> {
        if self.sent == CHUNKS {
            return None;
        }
        let engine = self.busy.engine();
        engine.timer.until(self.first + GAP * self.sent as u32).await;
        if self.remembers {
            if self.sent == 0 {
                self.cached = engine.prefill(&self.turn);
            }
            let tokens = |chunks: usize| chunks * ANSWERED / CHUNKS;
            engine.decode(&self.turn, tokens(self.sent), tokens(self.sent + 1));
        }
        self.sent += 1;
        let chunk = chunk(&self.turn, self.sent, self.cached);
        Some((Ok(Frame::data(Bytes::from(chunk))), self))
    }
}

/// The `number`th chunk as vLLM writes it, from 1 on; the last one has the usage and the end.
fn chunk(turn: &Turn, number: usize, cached: usize) -> String {
    let text = part(turn.answer(), number);
    // all else that JSON escapes was taken out
    let text = text.replace('\n', "\\n");
    let reason = if number == CHUNKS { "\"stop\"" } else { "null" };
    let mut chunk = String::with_capacity(text.len() + 600);
    let head = format!(
        "data: {{\"id\":\"chatcmpl-bench\",\"object\":\"chat.completion.chunk\",\"created\":1796000000,\"model\":\"{MODEL}\","
    );
    let _ = write!(
        chunk,
        "{head}\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}},\"logprobs\":null,\"finish_reason\":{reason}}}]}}\n\n"
    );
    if number == CHUNKS {
        let (prompt, all) = (turn.prompt(), turn.prompt() + ANSWERED);
        let _ = write!(
            chunk,
            "{head}\"choices\":[],\"usage\":{{\"prompt_tokens\":{prompt},\"total_tokens\":{all},\"completion_tokens\":{ANSWERED},\
             \"prompt_tokens_details\":{{\"cached_tokens\":{cached}}}}}}}\n\ndata: [DONE]\n\n"
        );
    }
    chunk
}

fn part(text: &str, number: usize) -> &str {
    let at = |number: usize| text.len() * number / CHUNKS;
    // answers are ASCII, so every place is between two characters
    text.get(at(number - 1)..at(number)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_parts_are_the_whole_text() {
        let text = "the engine stores a block";
        let parts: String = (1..=CHUNKS).map(|number| part(text, number)).collect();
        assert_eq!(parts, text);
    }
}
