//! The engine's command line.

use std::fmt::Display;

use lmetric_api::pool::{InferencePoolSpec, Source};
use serde_json::json;

use super::volumes;
use crate::{build::ports, validated::Validated};

/// After the drain tool has ended, an engine ends what is left within this time.
const SHUTDOWN_SECONDS: i64 = 20;
/// First version with `--shutdown-timeout`; before it, SIGTERM cuts at once.
const SHUTDOWN_TIMEOUT_SINCE: (u32, u32, u32) = (0, 18, 0);

/// What follows `vllm serve`.
pub(super) fn args(validated: &Validated) -> Vec<String> {
    let spec = &validated.pool.spec;
    let mut args = Args::default();
    args.word(location(&validated.source));
    model(&mut args, validated);
    adapters(&mut args, validated);
    parallelism(&mut args, spec);
    engine(&mut args, spec);
    args.0.extend(spec.engine.args.iter().cloned());
    args.0
}

/// Where an engine finds what `source` names: a repository, or a path in its container.
pub(super) fn location(source: &Source) -> String {
    match source {
        Source::HuggingFace(repository) | Source::ModelScope(repository) => repository.clone(),
        Source::Claim { claim, path } => match path.as_str() {
            "" => volumes::claim_path(claim),
            path => format!("{}/{path}", volumes::claim_path(claim)),
        },
        Source::File(path) => path.clone(),
        Source::S3(uri) => uri.clone(),
    }
}

fn model(args: &mut Args, validated: &Validated) {
    let spec = &validated.pool.spec;
    let model = &spec.model;
    args.word("--served-model-name");
    args.0.extend(model.names(&validated.name));
    args.text("--revision", &model.revision);
    args.value_if("--max-model-len", model.max_model_len);
    args.text("--dtype", model.dtype.as_str());
    args.text("--quantization", &model.quantization);
    args.text("--kv-cache-dtype", &model.kv_cache_dtype);
    if model.trust_remote_code {
        args.word("--trust-remote-code");
    }
    let chosen = |arg: &String| arg.starts_with("--load-format") || arg.starts_with("--load_format");
    if matches!(validated.source, Source::S3(_)) && !spec.engine.args.iter().any(chosen) {
        args.value("--load-format", "runai_streamer");
    }
}

fn adapters(args: &mut Args, validated: &Validated) {
    if validated.adapters.is_empty() {
        return;
    }
    let model = &validated.pool.spec.model;
    args.word("--enable-lora");
    args.word("--lora-modules");
    for (name, source) in &validated.adapters {
        args.word(format!("{name}={}", location(source)));
    }
    args.value("--max-loras", model.max_loras);
    args.value("--max-lora-rank", model.max_lora_rank);
}

fn parallelism(args: &mut Args, spec: &InferencePoolSpec) {
    let parallelism = spec.parallelism;
    args.value("--tensor-parallel-size", parallelism.tensor);
    args.value("--pipeline-parallel-size", parallelism.pipeline);
    if parallelism.data > 1 {
        args.value("--data-parallel-size", parallelism.data);
        // a port for each rank, so that the picker chooses ranks as it chooses engines
        args.word("--data-parallel-multi-port-external-lb");
    }
}

fn engine(args: &mut Args, spec: &InferencePoolSpec) {
    let engine = &spec.engine;
    args.value("--gpu-memory-utilization", &engine.gpu_memory_utilization);
    args.value("--max-num-seqs", engine.max_num_seqs);
    args.value("--block-size", engine.block_size);
    args.word("--enable-prefix-caching");
    args.word("--enable-prompt-tokens-details");
    let events = json!({
        "enable_kv_cache_events": true,
        "publisher": "zmq",
        "endpoint": format!("tcp://*:{}", ports::events(spec).first),
        "replay_endpoint": format!("tcp://*:{}", ports::replay(spec).first),
    });
    args.value("--kv-events-config", events);
    args.value("--port", engine.port);
    if engine
        .vllm_version()
        .is_some_and(|version| version >= SHUTDOWN_TIMEOUT_SINCE)
    {
        let seconds = SHUTDOWN_SECONDS.min(spec.lifecycle.drain_timeout.seconds_up());
        args.value("--shutdown-timeout", seconds);
    }
}

#[derive(Default)]
struct Args(Vec<String>);

impl Args {
    fn word(&mut self, word: impl Into<String>) {
        self.0.push(word.into());
    }

    fn value(&mut self, flag: &str, value: impl Display) {
        self.word(flag);
        self.word(value.to_string());
    }

    fn value_if(&mut self, flag: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.value(flag, value);
        }
    }

    /// Nothing for an empty text or `auto`, which is what the engine does without the flag.
    fn text(&mut self, flag: &str, value: &str) {
        if !value.is_empty() && value != "auto" {
            self.value(flag, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::build::testing;

    fn line(changes: Value) -> String {
        args(&testing::pool(changes)).join(" ")
    }

    #[test]
    fn a_small_pool_gets_what_the_picker_needs() {
        assert_eq!(
            line(json!({})),
            "Qwen/Qwen3-30B-A3B --served-model-name Qwen/Qwen3-30B-A3B --tensor-parallel-size 1 \
             --pipeline-parallel-size 1 --gpu-memory-utilization 0.85 --max-num-seqs 256 --block-size 16 \
             --enable-prefix-caching --enable-prompt-tokens-details --kv-events-config \
             {\"enable_kv_cache_events\":true,\"publisher\":\"zmq\",\"endpoint\":\"tcp://*:5557\",\
             \"replay_endpoint\":\"tcp://*:5657\"} --port 8000 --shutdown-timeout 20"
        );
    }

    #[test]
    fn every_field_of_the_model_is_a_flag() {
        let line = line(json!({"model": {
            "revision": "main", "servedNames": ["qwen3-30b", "default"], "maxModelLen": 60000, "dtype": "bfloat16",
            "quantization": "fp8", "kvCacheDtype": "fp8_e4m3", "trustRemoteCode": true,
        }}));
        assert!(
            line.starts_with(
                "Qwen/Qwen3-30B-A3B --served-model-name qwen3-30b default --revision main --max-model-len 60000 \
                 --dtype bfloat16 --quantization fp8 --kv-cache-dtype fp8_e4m3 --trust-remote-code --tensor"
            ),
            "{line}"
        );
    }

    #[test]
    fn adapters_come_from_where_they_are() {
        let line = line(json!({"model": {
            "adapters": [{"name": "sql", "uri": "hf://acme/sql"}, {"name": "legal", "uri": "pvc://adapters/legal/v2"}],
            "maxLoras": 2, "maxLoraRank": 64,
        }}));
        assert!(
            line.contains(
                " --enable-lora --lora-modules sql=acme/sql legal=/var/lib/lmetric/claims/adapters/legal/v2 --max-loras 2 \
                 --max-lora-rank 64 "
            ),
            "{line}"
        );
    }

    #[test]
    fn data_parallel_ranks_have_ports_of_their_own() {
        let line = line(json!({"parallelism": {"tensor": 2, "pipeline": 2, "data": 2}}));
        assert!(
            line.contains(
                " --tensor-parallel-size 2 --pipeline-parallel-size 2 --data-parallel-size 2 \
                 --data-parallel-multi-port-external-lb "
            ),
            "{line}"
        );
    }

    #[test]
    fn a_flag_that_the_version_lacks_is_left_out() {
        for (image, version, has) in [
            ("vllm/vllm-openai:v0.18.0", "", true),
            ("vllm/vllm-openai:v0.17.1", "", false),
            ("registry.example:5000/vllm:latest", "", false),
            ("registry.example:5000/vllm:latest", "0.33.0", true),
            ("vllm/vllm-openai:v0.33.0", "0.16.0", false),
        ] {
            let line = line(json!({"engine": {"image": image, "version": version}}));
            assert_eq!(
                line.contains("--shutdown-timeout"),
                has,
                "{image} {version}: {line}"
            );
        }
    }

    #[test]
    fn a_drain_timeout_of_zero_cuts_at_once() {
        let line = line(json!({"lifecycle": {"drainTimeout": "0s"}}));
        assert!(line.ends_with("--shutdown-timeout 0"), "{line}");
    }

    #[test]
    fn a_source_is_a_repository_or_a_path() {
        for (uri, starts) in [
            (
                "ms://Qwen/Qwen3-8B",
                "Qwen/Qwen3-8B --served-model-name Qwen/Qwen3-8B ",
            ),
            (
                "pvc://weights/qwen/8b",
                "/var/lib/lmetric/claims/weights/qwen/8b --served-model-name qwen ",
            ),
            (
                "pvc://weights",
                "/var/lib/lmetric/claims/weights --served-model-name qwen ",
            ),
            ("file:///opt/model", "/opt/model --served-model-name qwen "),
            (
                "s3://bucket/qwen",
                "s3://bucket/qwen --served-model-name qwen --load-format runai_streamer ",
            ),
        ] {
            let line = line(json!({"model": {"uri": uri}}));
            assert!(line.starts_with(starts), "{uri}: {line}");
        }
    }

    #[test]
    fn the_pools_own_flags_come_last() {
        let line = line(json!({"engine": {"args": ["--max-num-batched-tokens", "16384", "-O3"]}}));
        assert!(line.ends_with(" --max-num-batched-tokens 16384 -O3"), "{line}");
    }
}
