//! What the picker's configuration takes and refuses; each refusal names the file, the field and the remedy.

use std::{path::Path, time::Duration};

use lmetric_api::{
    Endpoints, Hotspot, KvPorts, PageAccess, PickerConfig, PodEndpoints, Pods, Policy, Record, Repository,
    Site, Tls, TokenizerSource,
};

const FILE: &str = "/etc/lmetric/picker.yaml";

fn parse(text: &str) -> Result<PickerConfig, lmetric_api::ConfigError> {
    PickerConfig::parse(text, Path::new(FILE))
}

#[test]
fn only_the_endpoints_are_required() {
    let config = parse("endpoints: {file: endpoints.yaml}").expect("minimal configuration");
    assert_eq!(
        config.endpoints,
        Endpoints::File("/etc/lmetric/endpoints.yaml".into())
    );
    assert_eq!(config.listen.ext_proc.to_string(), "0.0.0.0:9002");
    assert_eq!(config.listen.health.to_string(), "0.0.0.0:9003");
    assert_eq!(config.listen.admin.to_string(), "127.0.0.1:9090");
    assert_eq!(config.tls, Tls::SelfSigned);
    assert_eq!(config.policy, Policy::LMETRIC);
    assert_eq!(config.hotspot, Hotspot::Filter);
    assert_eq!(config.tokens.budget, Duration::from_millis(300));
    assert_eq!(config.scrape.busy, Duration::from_secs(1));
    assert_eq!(config.limits.body_bytes, 67_108_864);
    assert_eq!(config.prefill_rate, 8_000.0);
    assert!(config.overlay);
    assert_eq!(config.page, PageAccess::Loopback);
}

#[test]
fn every_field_can_be_written() {
    let config = parse(
        r#"
listen: {extProc: "0.0.0.0:9002", health: "0.0.0.0:9003", admin: "127.0.0.1:9090"}
tls: {mode: Files, certFile: tls.crt, keyFile: /secret/tls.key}
policy: least-request
shadow: vllm
record: {to: File, file: /var/log/requests.jsonl, maxBytes: 1048576, files: 2}
hotspot: LoadOnly
endpoints: {file: /run/endpoints.yaml}
models:
- {names: [qwen2-7b, qwen], tokenizer: /models/qwen2-7b, imageTokens: 256}
- {names: [other]}
- {names: [hub], tokenizer: "hf://Qwen/Qwen2-7B@v1", endpoint: "https://mirror.example/", tokenFile: token}
- {names: [scope], tokenizer: "ms://Qwen/Qwen2-7B"}
tokenizerCache: cache
tokens: {budget: 300ms, threads: 4, queue: 512}
scrape: {busy: 250ms, idle: 2s, timeout: 500ms}
events: {topic: "kv"}
limits: {bodyBytes: 1048576, drain: 1m}
prefillRate: 9000
speed: 4
overlay: false
page: Anyone
log: info,lmetric_epp=debug
"#,
    )
    .expect("full configuration");
    assert_eq!(
        config.tls,
        Tls::Files {
            cert_file: "/etc/lmetric/tls.crt".into(),
            key_file: "/secret/tls.key".into(),
        }
    );
    assert_eq!(config.policy, Policy::LeastRequest);
    assert_eq!(config.hotspot, Hotspot::LoadOnly);
    assert_eq!(config.models[0].name(), "qwen2-7b");
    assert_eq!(config.models[0].image_tokens, 256);
    assert_eq!(
        config.models[0].tokenizer,
        Some(TokenizerSource::Folder("/models/qwen2-7b".into()))
    );
    assert_eq!(config.models[1].tokenizer, None);
    let hub = Repository {
        site: Site::HuggingFace,
        name: "Qwen/Qwen2-7B".to_owned(),
        revision: "v1".to_owned(),
        endpoint: Some("https://mirror.example".to_owned()),
        token_file: Some("/etc/lmetric/token".into()),
    };
    let sources: Vec<_> = config.models[2..]
        .iter()
        .map(|group| group.tokenizer.clone())
        .collect();
    let scope = Repository {
        site: Site::ModelScope,
        revision: "master".to_owned(),
        endpoint: None,
        token_file: None,
        ..hub.clone()
    };
    assert_eq!(
        sources,
        [hub, scope].map(|repository| Some(TokenizerSource::Repository(repository)))
    );
    assert_eq!(config.tokenizer_cache, Some("/etc/lmetric/cache".into()));
    assert_eq!(config.limits.drain, Duration::from_mins(1));
    assert_eq!(config.speed, 4.0);
    assert!(!config.overlay);
    assert_eq!(config.page, PageAccess::Anyone);
}

#[test]
fn a_shadow_is_a_policy_and_a_recording_has_a_place() {
    let record = |text: &str| {
        let config = parse(&format!("endpoints: {{file: e.yaml}}\nrecord: {text}\n"));
        config
            .map(|config| config.record)
            .map_err(|error| error.to_string())
    };
    let plain = parse("endpoints: {file: e.yaml}").unwrap();
    assert_eq!((plain.shadow, plain.record), (None, Record::Off));
    let config = parse("endpoints: {file: e.yaml}\nshadow: {name: bailian, lambda: 0.55}\n").unwrap();
    assert_eq!(
        config.shadow.map(|policy| policy.to_string()).as_deref(),
        Some("bailian(lambda=0.55)")
    );
    let unnamed = parse("endpoints: {file: e.yaml}\nshadow: polyserve\n")
        .unwrap_err()
        .to_string();
    assert!(
        unnamed.contains("shadow.model: polyserve simulates engines"),
        "{unnamed}"
    );

    assert_eq!(record("{to: Off}"), Ok(Record::Off));
    assert_eq!(record("{to: Stdout}"), Ok(Record::Stdout));
    assert_eq!(
        record("{to: File, file: r.jsonl}"),
        Ok(Record::File {
            path: "/etc/lmetric/r.jsonl".into(),
            max_bytes: 256 << 20,
            files: 4
        })
    );
    for (text, says) in [
        ("{to: File}", "record.file: is missing; to: File needs file"),
        ("{to: Stdout, files: 2}", "record.files: is only used by to: File"),
        ("{to: file}", "record.to: "),
        (
            "{to: File, file: r, maxBytes: 5}",
            "record.maxBytes: 5 is out of range",
        ),
        ("{to: File, file: r, files: 0}", "record.files: 0 is out of range"),
        ("{to: File, file: r, path: x}", "unknown field"),
    ] {
        let error = record(text).unwrap_err();
        assert!(error.contains(says), "{text}: {error}");
    }
}

#[test]
fn a_policy_may_carry_parameters() {
    for (text, policy) in [
        ("dynamo", "dynamo"),
        ("{name: bailian, lambda: 0.55}", "bailian(lambda=0.55)"),
        ("{name: lmetric, crowd: tokens}", "lmetric(crowd=tokens)"),
        (
            "{name: llm-d-ttft, model: qwen3-30b-a3b, gpu: H20-3e}",
            "llm-d-ttft(model=qwen3-30b-a3b,gpu=H20-3e)",
        ),
    ] {
        let config = parse(&format!("endpoints: {{file: e.yaml}}\npolicy: {text}\n")).unwrap();
        assert_eq!(config.policy.to_string(), policy);
    }
}

/// (what is added to a good file, field named, words of the remedy)
const BAD: &[(&str, &str, &str)] = &[
    ("polcy: lmetric", "polcy", "policy"),
    ("policy: lmetrics", "policy", "round-robin"),
    ("hotspot: On", "hotspot", "LoadOnly"),
    ("listen: {extProc: localhost}", "listen.extProc", "ip:port"),
    ("listen: {health: \"0.0.0.0\"}", "listen.health", "ip:port"),
    ("listen: {admin: 9090}", "listen.admin", "ip:port"),
    ("listen: {grpc: \"0.0.0.0:1\"}", "listen.grpc", "extProc"),
    (
        "listen: {health: \"127.0.0.1:9002\"}",
        "listen.health",
        "port of its own",
    ),
    (
        "listen: {admin: \"0.0.0.0:9003\"}",
        "listen.admin",
        "port of its own",
    ),
    (
        "listen: {extProcTls: \"0.0.0.0:9003\"}",
        "listen.health",
        "port of its own",
    ),
    (
        "listen: {extProcTls: \"0.0.0.0:9004\"}\ntls: {mode: Off}",
        "listen.extProcTls",
        "SelfSigned",
    ),
    ("tls: {mode: On}", "tls.mode", "SelfSigned"),
    ("tls: {mode: Files}", "tls.certFile", "certFile and keyFile"),
    (
        "tls: {mode: Files, certFile: a.pem}",
        "tls.keyFile",
        "certFile and keyFile",
    ),
    ("tls: {mode: Off, certFile: a.pem}", "tls.certFile", "mode: Files"),
    ("tls: {keyFile: a.pem}", "tls.keyFile", "mode: Files"),
    (
        "tls: {mode: Files, certFile: \"\", keyFile: k}",
        "tls.certFile",
        "write a path",
    ),
    ("models: [{names: []}]", "models[0].names", "list the names"),
    ("models: [{tokenizer: /m}]", "models[0].names", "add it"),
    (
        "models: [{names: [\"\"]}]",
        "models[0].names[0]",
        "write the model's name",
    ),
    (
        "models: [{names: [a]}, {names: [b, a]}]",
        "models[1].names[1]",
        "one group only",
    ),
    (
        "models: [{names: [a], tokeniser: /m}]",
        "models[0].tokeniser",
        "tokenizer",
    ),
    (
        "models: [{names: [a], tokenizer: \"\"}]",
        "models[0].tokenizer",
        "write a path",
    ),
    (
        "models: [{names: [a], tokenizer: \"s3://bucket/a\"}]",
        "models[0].tokenizer",
        "hf://ORG/NAME",
    ),
    (
        "models: [{names: [a], tokenizer: \"hf://a/../b\"}]",
        "models[0].tokenizer",
        "hf://ORG/NAME",
    ),
    (
        "models: [{names: [a], tokenizer: \"ms://a/b@\"}]",
        "models[0].tokenizer",
        "ms://ORG/NAME",
    ),
    (
        "models: [{names: [a], tokenizer: \"hf://a/b\", endpoint: mirror.example}]",
        "models[0].endpoint",
        "https://",
    ),
    (
        "models: [{names: [a], tokenizer: /m, endpoint: \"https://mirror.example\"}]",
        "models[0].endpoint",
        "hf://ORG/NAME",
    ),
    (
        "models: [{names: [a], tokenFile: token}]",
        "models[0].tokenFile",
        "remove it",
    ),
    ("tokenizerCache: \"\"", "tokenizerCache", "write a path"),
    ("\"two\\nlines\": 1", "two\\nlines", "remove it"),
    (
        "models: [{names: [a], imageTokens: 2000000}]",
        "models[0].imageTokens",
        "1000000",
    ),
    ("tokens: {budget: 300}", "tokens.budget", "300ms"),
    ("tokens: {budget: soon}", "tokens.budget", "300ms"),
    ("tokens: {budget: 1m}", "tokens.budget", "10s"),
    ("tokens: {threads: 0}", "tokens.threads", "from 1 to 64"),
    ("tokens: {queue: 0}", "tokens.queue", "from 1 to 65536"),
    ("scrape: {busy: 100ms}", "scrape.busy", "250ms"),
    ("scrape: {busy: 10s, idle: 5s}", "scrape.idle", "at least as long"),
    ("scrape: {timeout: 0s}", "scrape.timeout", "10ms"),
    ("events: {topics: x}", "events.topics", "topic"),
    ("events: {topic: {a: b}}", "events.topic", "text"),
    ("limits: {bodyBytes: 12}", "limits.bodyBytes", "from 1024"),
    ("limits: {bodyBytes: 64MiB}", "limits.bodyBytes", "whole number"),
    ("limits: {drain: 2h}", "limits.drain", "3600s"),
    ("prefillRate: 0", "prefillRate", "from 1.0"),
    ("prefillRate: fast", "prefillRate", "a number"),
    ("speed: 0", "speed", "from 0.01"),
    ("speed: .nan", "speed", "from 0.01"),
    ("overlay: maybe", "overlay", "true or false"),
    ("page: Everybody", "page", "one of Loopback, Anyone, Off"),
    ("log: \"\"", "log", "info"),
    (
        "policy: [lmetric]",
        "policy",
        "one of lmetric, lmetric-marginal, vllm",
    ),
    ("policy: {lambda: 0.5}", "policy.name", "add it"),
    (
        "policy: {name: bailian, lamda: 0.5}",
        "policy.lamda",
        "write lambda",
    ),
    (
        "policy: {name: bailian, lambda: 7}",
        "policy",
        "write a number from 0 to 1",
    ),
    (
        "policy: llm-d-ttft",
        "policy.model",
        "{name: llm-d-ttft, model: qwen2-7b",
    ),
    ("scrape: {busy: 1s", "(file)", "correct the YAML"),
    ("models: {names: [a]}", "models", "sequence"),
    ("scrape: fast", "scrape", "{name: value}"),
];

#[test]
fn a_bad_configuration_is_one_line_that_names_file_field_and_remedy() {
    for (text, field, remedy) in BAD {
        let error = parse(&format!("endpoints: {{file: endpoints.yaml}}\n{text}\n"))
            .expect_err(&format!("taken: {text}"));
        let line = error.to_string();
        assert!(line.starts_with("/etc/lmetric/picker.yaml: "), "{text}: {line}");
        assert_eq!(error.field, *field, "{text}: {line}");
        assert!(error.remedy.contains(remedy), "{text}: remedy in {line}");
        assert!(!line.contains('\n'), "{text}: {line}");
    }
}

#[test]
fn without_endpoints_or_with_nonsense_the_file_is_refused() {
    for (text, field) in [
        ("", "endpoints"),
        ("policy: lmetric", "endpoints"),
        ("endpoints: {}", "endpoints.file"),
        ("endpoints: {file: \"\"}", "endpoints.file"),
        ("endpoints: {file: a, files: b}", "endpoints.files"),
        ("endpoints: endpoints.yaml", "endpoints"),
        ("just words", "(file)"),
    ] {
        let error = parse(text).expect_err(&format!("taken: {text}"));
        assert_eq!(error.field, field, "{text:?}: {error}");
        assert!(!error.remedy.is_empty());
    }
}

fn pods(text: &str) -> Result<PodEndpoints, lmetric_api::ConfigError> {
    let models = "models: [{names: [qwen, default]}]";
    match parse(&format!("endpoints: {{kubernetes: {text}}}\n{models}\n"))?.endpoints {
        Endpoints::Kubernetes(pods) => Ok(pods),
        Endpoints::File(file) => panic!("{}", file.display()),
    }
}

#[test]
fn endpoints_may_be_pods() {
    let all = "{selector: {app: vllm}, ports: [8000, 8001], ranks: 2, kvEvents: {port: 5557, replayPort: 5657}, blockSize: 32, model: m}";
    let expected = PodEndpoints {
        pods: Some(Pods {
            selector: [("app".to_owned(), "vllm".to_owned())].into(),
            ports: vec![8000, 8001],
        }),
        ranks: Some(2),
        kv_events: Some(KvPorts {
            port: 5557,
            replay_port: Some(5657),
        }),
        block_size: Some(32),
        model: Some("m".to_owned()),
    };
    assert_eq!(pods(all), Ok(expected));
    let least = pods("{}").expect("another object names the pods");
    assert_eq!((least.pods, least.kv_events, least.ranks), (None, None, None));
    assert_eq!(least.model.as_deref(), Some("qwen"), "the first tokenizer group");
}

#[test]
fn on_kubernetes_engines_reach_the_admin_port() {
    let pods = "endpoints: {kubernetes: {selector: {app: vllm}, ports: [8000]}}\n";
    let admin = |text: &str| {
        parse(&format!("{pods}{text}"))
            .expect("good")
            .listen
            .admin
            .to_string()
    };
    assert_eq!(admin(""), "0.0.0.0:9090");
    assert_eq!(admin("listen: {admin: \"[::]:9091\"}\n"), "[::]:9091");
}

#[test]
fn pods_that_cannot_be_are_refused() {
    for (text, field, remedy) in [
        ("{selector: {a: b}}", "ports", "[8000]"),
        ("{ports: [8000]}", "selector", "--pool-name"),
        ("{selector: {a: b}, ports: [8000, 8000]}", "ports", "once"),
        ("{selector: {a: b}, ports: [0]}", "ports", "65535"),
        (
            "{selector: {a: b}, ports: [1, 2, 3, 4, 5, 6, 7, 8, 9]}",
            "ports",
            "once",
        ),
        ("{ranks: 0}", "ranks", "1 to 64"),
        ("{ranks: 65}", "ranks", "1 to 64"),
        ("{kvEvents: {port: 0}}", "kvEvents", "65535"),
        ("{ranks: 2, kvEvents: {port: 65535}}", "kvEvents", "room"),
        (
            "{ranks: 2, kvEvents: {port: 5557, replayPort: 5558}}",
            "kvEvents.replayPort",
            "ranks",
        ),
        ("{kvEvents: {replayPort: 1}}", "kvEvents.port", "add it"),
        ("{blockSize: 0}", "blockSize", "tokens per block"),
        ("{model: \"\"}", "model", "name of the model"),
        ("{labels: {a: b}}", "labels", "selector"),
    ] {
        let error = pods(text).expect_err(text);
        assert_eq!(error.field, format!("endpoints.kubernetes.{field}"), "{error}");
        assert!(error.remedy.contains(remedy), "{error}");
    }
    let both = parse("endpoints: {file: a, kubernetes: {}}").expect_err("both");
    assert!(both.to_string().contains("keep one"), "{both}");
}
