//! Flags of vLLM that the operator sets, so that `engine.args` may not.

/// A flag and the field that sets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnedFlag {
    /// The flag's words, without the dashes at its start.
    pub flag: &'static str,
    /// What to use instead.
    pub instead: &'static str,
}

const fn owned(flag: &'static str, instead: &'static str) -> OwnedFlag {
    OwnedFlag { flag, instead }
}

/// Long flags, without the `no-` that turns some of them off. A flag owns everything that begins with it followed by a dot, such as `--kv-events-config.topic`.
pub const OWNED: &[OwnedFlag] = &[
    owned("model", "spec.model.uri"),
    owned("model-tag", "spec.model.uri"),
    owned("revision", "spec.model.revision"),
    owned("served-model-name", "spec.model.servedNames"),
    owned("max-model-len", "spec.model.maxModelLen"),
    owned("dtype", "spec.model.dtype"),
    owned("quantization", "spec.model.quantization"),
    owned("kv-cache-dtype", "spec.model.kvCacheDtype"),
    owned("trust-remote-code", "spec.model.trustRemoteCode"),
    owned("download-dir", "spec.cache"),
    owned("enable-lora", "spec.model.adapters"),
    owned("lora-modules", "spec.model.adapters"),
    owned("max-loras", "spec.model.maxLoras"),
    owned("max-lora-rank", "spec.model.maxLoraRank"),
    owned("host", "nothing: engines listen on every address"),
    owned("port", "spec.engine.port"),
    owned("uds", "spec.engine.port"),
    owned("gpu-memory-utilization", "spec.engine.gpuMemoryUtilization"),
    owned("max-num-seqs", "spec.engine.maxNumSeqs"),
    owned("block-size", "spec.engine.blockSize"),
    owned("kv-events-config", "spec.engine.kvEvents"),
    owned(
        "enable-prefix-caching",
        "nothing: prefix caching is what the picker works with",
    ),
    owned("enable-prompt-tokens-details", "nothing: it is always on"),
    owned("tensor-parallel-size", "spec.parallelism.tensor"),
    owned("pipeline-parallel-size", "spec.parallelism.pipeline"),
    owned("shutdown-timeout", "spec.lifecycle.drainTimeout"),
    owned("config", "the flags of that file, here in args"),
    owned("headless", "spec.replicas"),
    owned("nnodes", "spec.replicas"),
    owned("node-rank", "spec.replicas"),
];

/// Beginnings of flags: every flag that begins so is owned.
pub const FAMILIES: &[OwnedFlag] = &[
    owned("data-parallel-", "spec.parallelism.data"),
    owned(
        "ssl-",
        "TLS at the gateway; probes, picker and Envoy speak plain HTTP to engines",
    ),
];

/// Short forms of owned flags.
pub const SHORT: &[(&str, &str)] = &[
    ("-q", "spec.model.quantization"),
    ("-tp", "spec.parallelism.tensor"),
    ("-pp", "spec.parallelism.pipeline"),
    ("-dp", "spec.parallelism.data"),
    ("-dpn", "spec.parallelism.data"),
    ("-dpl", "spec.parallelism.data"),
    ("-dpa", "spec.parallelism.data"),
    ("-dpp", "spec.parallelism.data"),
    ("-dpb", "spec.parallelism.data"),
    ("-dph", "spec.parallelism.data"),
    ("-dpe", "spec.parallelism.data"),
];

/// What to use instead of `arg`, if the operator owns it. vLLM takes underscores for dashes, so this does too.
pub fn instead_of(arg: &str) -> Option<&'static str> {
    let end = arg.find(['=', ' ', '.']).unwrap_or(arg.len());
    let word = &arg[..end];
    if let Some((_, instead)) = SHORT.iter().find(|(short, _)| *short == word) {
        return Some(instead);
    }
    let words = word.strip_prefix("--")?.replace('_', "-");
    let words = words.strip_prefix("no-").unwrap_or(&words);
    let exact = OWNED.iter().find(|owned| owned.flag == words);
    exact
        .or_else(|| FAMILIES.iter().find(|owned| words.starts_with(owned.flag)))
        .map(|owned| owned.instead)
}

/// The same as a regular expression (RE2) for CEL. Its length counts in the estimated cost, so a dot stands for both
/// dash and underscore.
pub(super) fn pattern() -> String {
    let any = |flag: &str| flag.replace('-', ".");
    let exact = OWNED.iter().map(|owned| any(owned.flag));
    let families = FAMILIES.iter().map(|owned| format!("{}[^=. ]*", any(owned.flag)));
    let long: Vec<_> = exact.chain(families).collect();
    let short: Vec<_> = SHORT
        .iter()
        .map(|(short, _)| short.trim_start_matches('-'))
        .collect();
    format!(
        "^(--(no.)?({})|-({}))([=. ].*)?$",
        long.join("|"),
        short.join("|")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_an_owned_flag_is_known() {
        for (arg, instead) in [
            ("--port", "spec.engine.port"),
            ("--port=9000", "spec.engine.port"),
            ("--port 9000", "spec.engine.port"),
            ("--tensor_parallel_size=2", "spec.parallelism.tensor"),
            ("--kv-events-config.topic", "spec.engine.kvEvents"),
            (
                "--no-enable-prefix-caching",
                "nothing: prefix caching is what the picker works with",
            ),
            ("--no_trust_remote_code", "spec.model.trustRemoteCode"),
            ("-tp", "spec.parallelism.tensor"),
            ("-tp=4", "spec.parallelism.tensor"),
            ("--data-parallel-rank=1", "spec.parallelism.data"),
            (
                "--ssl_keyfile",
                "TLS at the gateway; probes, picker and Envoy speak plain HTTP to engines",
            ),
        ] {
            assert_eq!(instead_of(arg), Some(instead), "{arg}");
        }
        for arg in [
            "--max-num-batched-tokens",
            "--portal",
            "port",
            "-O3",
            "9000",
            "--models",
        ] {
            assert_eq!(instead_of(arg), None, "{arg}");
        }
    }
}
