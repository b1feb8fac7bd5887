use super::*;

/// What an operator passes.
const POOL: &str = r#"Qwen/Qwen3-30B-A3B --host 0.0.0.0 --port 8000 --served-model-name qwen3-30b q --revision main --dtype auto
    --max-model-len 60000 --kv-cache-dtype auto --gpu-memory-utilization 0.85 --max-num-seqs 128 --block-size 32
    --tensor-parallel-size 2 --enable-prefix-caching --enable-prompt-tokens-details --shutdown-timeout 30
    --kv-events-config={"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:6557","replay_endpoint":"tcp://*:6657"}
    --enable-lora --max-loras 4 --lora-modules sql=hf://x {"name":"law","path":"/law"}"#;

fn read(line: &str, own: &str) -> Result<Serve, ServeError> {
    let words = line.split_whitespace().map(str::to_owned);
    Serve::read(words, |name| (name == FLAGS).then(|| own.to_owned()))
}

#[test]
fn typed_flags_have_their_effect_and_the_rest_is_named() {
    let Serve { fleets, ignored } = read(POOL, "").unwrap();
    let [args] = fleets.as_slice() else {
        panic!("{fleets:?}")
    };
    assert_eq!(args.first_address, Ipv4Addr::UNSPECIFIED);
    assert_eq!((args.port, args.kv_port, args.replay_port), (8000, 6557, 6657));
    assert_eq!(args.served_model_name, ["qwen3-30b", "q"]);
    assert_eq!(args.profile, "qwen3-30b-a3b");
    assert_eq!(args.max_model_len, Some(60_000));
    assert_eq!((args.max_num_seqs, args.block_size), (128, 32));
    assert_eq!(args.shutdown_timeout, Duration::from_secs(30));
    assert!(!args.no_kv_events && !args.no_prompt_tokens_details && !args.no_enable_prefix_caching);
    let adapters: Vec<_> = args
        .lora_modules
        .iter()
        .map(|module| module.name.as_str())
        .collect();
    assert_eq!(adapters, ["sql", "law"]);
    assert_eq!(
        ignored,
        [
            "--revision",
            "--dtype",
            "--kv-cache-dtype",
            "--tensor-parallel-size",
            "--max-loras"
        ]
    );
}

#[test]
fn what_vllm_leaves_off_by_default_is_off() {
    let serve = read("some/model", "").unwrap();
    let args = &serve.fleets[0];
    assert!(args.no_kv_events && args.no_prompt_tokens_details);
    assert_eq!(args.served_model_name, ["some/model"]);
    assert_eq!(args.profile, "qwen2-7b");
    assert!(args.tokenizer.is_none());
}

#[test]
fn with_several_ports_each_rank_has_its_own() {
    let line = r#"m --data-parallel-size 3 --data-parallel-multi-port-external-lb --kv-events-config {"enable_kv_cache_events":true,"replay_endpoint":"tcp://*:5657"}"#;
    let ports: Vec<_> = read(line, "")
        .unwrap()
        .fleets
        .iter()
        .map(|args| {
            (
                args.port,
                args.kv_port,
                args.replay_port,
                args.data_parallel_rank,
                args.data_parallel_size,
            )
        })
        .collect();
    assert_eq!(
        ports,
        [
            (8000, 5557, 5657, 0, 1),
            (8001, 5558, 5658, 1, 1),
            (8002, 5559, 5659, 2, 1)
        ]
    );
    let serve = read("m --data-parallel-size 3", "").unwrap();
    assert_eq!(serve.fleets.len(), 1);
    assert_eq!(serve.fleets[0].data_parallel_size, 3);
}

#[test]
fn the_simulators_own_flags_come_from_the_environment() {
    let serve = read("Qwen/Qwen3-30B-A3B", "--speed 8 --profile qwen2-7b --log warn").unwrap();
    let args = &serve.fleets[0];
    assert_eq!(
        (args.speed, args.profile.as_str(), args.log.as_str()),
        (8.0, "qwen2-7b", "warn")
    );
}

#[test]
fn a_wrong_value_is_named_with_its_flag() {
    for (line, said) in [
        ("", "no model"),
        ("m --port x", "--port: \"x\""),
        ("m --port", "--port: [] is not one value"),
        ("m --host example", "--host: \"example\" is no IPv4 address"),
        ("m --max-model-len 6q", "--max-model-len: \"6q\" is no number"),
        ("m --kv-events-config {", "--kv-events-config: EOF"),
        (
            r#"m --kv-events-config {"endpoint":"tcp://x"}"#,
            "\"tcp://x\" is no endpoint",
        ),
        (
            r#"m --kv-events-config {"publisher":"kafka"}"#,
            "unknown publisher \"kafka\"",
        ),
        ("m --lora-modules a=/a", "--lora-modules without --enable-lora"),
        ("m --enable-lora --lora-modules a", "\"a\" is not name=path"),
        (
            "m --port 65535 --data-parallel-size 2 --data-parallel-multi-port-external-lb",
            "--port: 65535 leaves no port for rank 1",
        ),
    ] {
        let error = read(line, "").unwrap_err().to_string();
        assert!(error.contains(said), "{line}: {error}");
    }
    let error = read("m", "--no-such-flag").unwrap_err().to_string();
    assert!(
        error.contains("VLLM_SIM_FLAGS") && error.contains("--no-such-flag"),
        "{error}"
    );
}
