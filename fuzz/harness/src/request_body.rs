//! Request bodies: read as the picker reads them, tokenized as an engine would.
//!
//! An input: an octet with the API, then the body.

use std::sync::LazyLock;

use bytes::Bytes;
use lmetric_epp::request::{Asked, Head, ParsedRequest, PromptInput, read};
use lmetric_tokenize::{ModelTokenizer, Options, Tokenized, engine, estimate_chat, estimate_text};

use crate::{assert_one_line, folders};

/// Paths of the APIs, by number.
pub const PATHS: [&str; 7] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/embeddings",
    "/v1/messages",
    "/inference/v1/generate",
    "/v1/rerank",
];

/// Most answers that a prompt may ask for.
const MOST_ANSWERS: u32 = 16_384;

static MODEL: LazyLock<ModelTokenizer> = LazyLock::new(|| {
    let folder = folders::repository("crates/tokenize/testdata/tiny-qwen2");
    let options = Options {
        trust_request_chat_template: true,
        ..Options::default()
    };
    ModelTokenizer::load_with(&folder, options).expect("the tokenizer of the tests")
});

/// Reads it twice: the same comes of it, the body stays as it is, and every prompt becomes the same tokens twice.
pub fn run(input: &[u8]) {
    let Some((&api, body)) = input.split_first() else {
        return;
    };
    let path = PATHS[usize::from(api) % PATHS.len()];
    let asked = || Asked {
        head: Head {
            path: path.to_owned(),
            request_id: Some("r".to_owned()),
            ..Head::default()
        },
        subset: None,
        body: Bytes::copy_from_slice(body),
    };
    let request = read(asked());
    assert_eq!(request, read(asked()), "read differently the second time");
    match request {
        Ok(request) => read_soundly(&request, body),
        Err(refusal) => {
            assert_eq!(refusal.kind.status(), 400);
            assert_one_line(&refusal.to_string());
        }
    }
}

fn read_soundly(request: &ParsedRequest, body: &[u8]) {
    assert_eq!(request.body, body, "the engine gets another body");
    assert!((1..=MOST_ANSWERS).contains(&request.n), "n is {}", request.n);
    assert!(request.weight() >= 1);
    assert!(request.prompts.len() <= request.prompt_count.max(1) as usize);
    assert!(request.prompts.len() <= body.len());
    for prompt in &request.prompts {
        match prompt {
            PromptInput::Tokens(tokens) => sound(tokens, body.len()),
            PromptInput::Text {
                text,
                add_special_tokens,
            } => {
                sound(&estimate_text(text), body.len());
                let encode = || MODEL.encode_text(text, *add_special_tokens);
                let Ok(tokens) = encode() else { continue };
                sound(&tokens, body.len());
                assert_eq!(Ok(tokens), encode().map_err(drop));
            }
            PromptInput::Chat(chat) => {
                drop(estimate_chat(chat));
                drop(engine::render_chat("m", chat));
                let encode = || MODEL.encode_chat(chat).map_err(|error| error.to_string());
                let tokens = encode();
                assert_eq!(tokens, encode(), "the segment cache changes the tokens");
                if let Err(error) = tokens {
                    assert_one_line(&error);
                }
            }
        }
    }
}

/// Every token has at least a byte of the body, but for the few that a tokenizer adds.
fn sound(tokens: &Tokenized, octets: usize) {
    assert!(
        tokens.ids.len() <= octets + 16,
        "{} tokens of {octets} octets",
        tokens.ids.len()
    );
}
