//! vLLM's command line as its own parser reads it, before any flag has a meaning.

/// One flag and the words after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Flag {
    /// Long name without dashes, words joined with `-`.
    pub(super) name: String,
    /// What follows it, up to the next flag.
    pub(super) values: Vec<String>,
}

/// vLLM's short flags.
const SHORT: [(&str, &str); 5] = [
    ("-tp", "tensor-parallel-size"),
    ("-pp", "pipeline-parallel-size"),
    ("-dp", "data-parallel-size"),
    ("-dpr", "data-parallel-rank"),
    ("-q", "quantization"),
];

/// The words before the first flag, then the flags. `--a_b=v` is `--a-b v`; a negative number is a value.
pub(super) fn split(words: impl IntoIterator<Item = String>) -> (Vec<String>, Vec<Flag>) {
    let mut leading = Vec::new();
    let mut flags: Vec<Flag> = Vec::new();
    for word in words {
        if let Some(flag) = flag(&word) {
            flags.push(flag);
        } else if let Some(last) = flags.last_mut() {
            last.values.push(word);
        } else {
            leading.push(word);
        }
    }
    (leading, flags)
}

fn flag(word: &str) -> Option<Flag> {
    let (head, value) = match word.split_once('=') {
        Some((head, value)) => (head, Some(value.to_owned())),
        None => (word, None),
    };
    let name = if let Some(long) = head.strip_prefix("--") {
        long.replace('_', "-")
    } else {
        let letter = head.strip_prefix('-')?.chars().next()?;
        if !letter.is_ascii_alphabetic() {
            return None;
        }
        SHORT
            .iter()
            .find(|(short, _)| *short == head)
            .map_or(head, |(_, long)| long)
            .to_owned()
    };
    Some(Flag {
        name,
        values: value.into_iter().collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> (Vec<String>, Vec<(String, String)>) {
        let (leading, flags) = split(line.split_whitespace().map(str::to_owned));
        let flags = flags.into_iter().map(|flag| (flag.name, flag.values.join(" ")));
        (leading, flags.collect())
    }

    #[test]
    fn flags_are_read_as_vllm_reads_them() {
        for (line, name, values) in [
            ("--port 80", "port", "80"),
            ("--port=80", "port", "80"),
            ("--max_num_seqs=2", "max-num-seqs", "2"),
            ("--served-model-name a b", "served-model-name", "a b"),
            ("--enable-lora", "enable-lora", ""),
            ("--seed -1", "seed", "-1"),
            ("-tp 4", "tensor-parallel-size", "4"),
            ("-O3", "-O3", ""),
            ("--lora-modules sql=/a b=/c", "lora-modules", "sql=/a b=/c"),
            ("--x={\"a\":\"b=c\"}", "x", "{\"a\":\"b=c\"}"),
        ] {
            assert_eq!(
                words(line),
                (vec![], vec![(name.to_owned(), values.to_owned())]),
                "{line}"
            );
        }
        assert_eq!(words("some/model --port 80").0, ["some/model"]);
    }
}
