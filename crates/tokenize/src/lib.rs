//! Prompts to token ids, as the engine would: tokenizer, chat template, segment cache. No I/O but loading files.
