use std::{path::Path, time::Duration};

use futures::stream;
use lmetric_prefix::SharedIndex;
use lmetric_telemetry::Tasks;

use super::*;
use crate::{
    guard::Place,
    health::Health,
    metrics::PlaceMetrics,
    scrape::EngineClient,
    server::ExtProcServer,
    stream::Limits,
    testing::tiny_qwen2,
    tokenizers::{
        Pauses, TokenizersParts,
        hub::{Cache, Environment, Hub},
    },
    tokens::{EngineTokens, GroupMap, Pool, Rung},
};

const START: &str = "endpoints: {kubernetes: {selector: {app: vllm}, ports: [8000]}}\n";

struct Nobody;

impl Place for Nobody {
    async fn place(
        &self,
        _request: Arc<crate::request::ParsedRequest>,
    ) -> Result<crate::guard::Placement, crate::refusal::Refusal> {
        Err(crate::refusal::Refusal::new(
            crate::refusal::RefusalKind::NoEndpoint,
            "none",
        ))
    }
}

struct Bench {
    reload: Reload,
    logs: Logs,
    limits: LiveLimits,
    settings: watch::Receiver<PodEndpoints>,
    metrics: ReloadMetrics,
    groups: Groups,
    ladder: Arc<Ladder>,
    scrape: ScrapeSettings,
    status: ReloadStatus,
    scheduler: Arc<Scheduler>,
}

async fn bench(line: &str, texts: Vec<String>) -> Bench {
    let words = std::iter::once("lmetric-epp").chain(line.split_whitespace());
    let (args, _) = Args::read(words.map(Into::into)).unwrap();
    let file = PathBuf::from("configmap/ns/p-picker/picker.yaml");
    let (running, endpoints) = settle(&args, START, &file).expect("a good configuration");
    let Endpoints::Kubernetes(pods) = endpoints else {
        panic!("pods");
    };
    let (sender, settings) = watch::channel(pods);
    let logs = Logs::detached(&running.log).expect("a good filter");
    let limits = Limits {
        body_bytes: running.limits.body_bytes,
        ..Limits::default()
    };
    let server = ExtProcServer::new(Arc::new(Nobody), limits, None, Health::new().await);
    let metrics = ReloadMetrics::new(&mut lmetric_telemetry::registry());
    let (tasks, _) = Tasks::new();
    let ladder = Arc::new(Ladder::new(
        GroupMap::new(),
        Pool::new(1, 8).expect("threads"),
        EngineTokens::new(EngineClient::default(), 8),
        running.tokens,
        PlaceMetrics::new(&mut lmetric_telemetry::registry()),
    ));
    let tokenizers = Tokenizers::new(TokenizersParts {
        ladder: ladder.clone(),
        hub: Hub::new(Cache::new(Path::new("/nonexistent")), Environment::default()),
        tasks,
        pauses: Pauses::default(),
    });
    let groups = Groups::default();
    let scrape = ScrapeSettings::new(running.scrape, running.speed);
    let status = ReloadStatus::new(&file, true);
    let scheduler = Arc::new(Scheduler::new(
        scheduler_config(&running),
        Arc::new(SharedIndex::default()),
    ));
    let parts = ReloadParts {
        groups: groups.clone(),
        tokenizers,
        ladder: ladder.clone(),
        scrape: scrape.clone(),
        status: status.clone(),
        scheduler: scheduler.clone(),
        logs: logs.clone(),
        limits: server.live_limits(),
    };
    let written = Written {
        file,
        texts: Box::pin(stream::iter(texts).chain(stream::pending())),
        args,
        settings: sender,
    };
    Bench {
        limits: server.live_limits(),
        reload: Reload::new(written, running, parts, metrics.clone()),
        logs,
        settings,
        metrics,
        groups,
        ladder,
        scrape,
        status,
        scheduler,
    }
}

fn taken(changed: &[&'static str], waiting: &[&'static str]) -> Taken {
    Taken {
        changed: changed.to_vec(),
        waiting: waiting.to_vec(),
    }
}

#[tokio::test]
async fn what_can_change_at_once_does() {
    let mut bench = bench("", Vec::new()).await;
    assert_eq!(bench.reload.take(START), Ok(Taken::default()));
    let text = format!(
        "{START}policy: random\nshadow: vllm\nhotspot: Off\nlog: warn\nlimits: {{bodyBytes: 1024, drain: 5s}}\nprefillRate: 9000\n"
    );
    assert_eq!(
        bench.reload.take(&text),
        Ok(taken(
            &["policy", "shadow", "hotspot", "prefillRate", "log", "limits"],
            &[]
        ))
    );
    let shadow = bench.scheduler.shadow().expect("it has one now");
    assert_eq!(
        (shadow.live_policy.as_str(), shadow.shadow_policy.as_str()),
        ("random", "vllm")
    );
    assert_eq!(bench.logs.filter(), "warn");
    assert_eq!(bench.limits.body_bytes(), 1_024);
    assert_eq!(bench.limits.drain(), Some(Duration::from_secs(5)));
    assert_eq!(bench.reload.take(&text), Ok(Taken::default()), "nothing new");
    let text = text.replace("[8000]", "[8000, 8001]");
    assert_eq!(bench.reload.take(&text), Ok(taken(&["endpoints"], &[])));
    let pods = bench.settings.borrow().pods.clone().expect("selected");
    assert_eq!(pods.ports, [8000, 8001]);
}

#[tokio::test]
async fn what_is_bound_or_built_waits_for_a_restart() {
    let mut bench = bench("", Vec::new()).await;
    let text = format!(
        "{START}tls: {{mode: Off}}\nspeed: 2\nlisten: {{admin: \"0.0.0.0:1\"}}\n\
         tokenizerCache: elsewhere\nevents: {{topic: kv}}\nrecord: {{to: Stdout}}\npage: Off\n\
         limits: {{bodyBytes: 1073741824}}\n"
    );
    assert_eq!(
        bench.reload.take(&text),
        Ok(taken(
            &["limits"],
            &[
                "listen",
                "tls",
                "tokenizerCache",
                "events",
                "record",
                "speed",
                "page",
                "limits.bodyBytes"
            ]
        ))
    );
    let most = bench.limits.body_bytes();
    assert!(
        (64 << 20..80 << 20).contains(&most),
        "{most}: as large as messages may be"
    );
}

#[tokio::test]
async fn models_tokenizing_and_scraping_change_at_once() {
    let mut bench = bench("", Vec::new()).await;
    let folder = tiny_qwen2();
    let text = |models: &str| {
        format!(
            "{START}models: [{{names: [m, alias]{models}}}]\ntokens: {{threads: 3, budget: 1s}}\nscrape: {{busy: 2s}}\n"
        )
    };
    let mut regrouped = bench.groups.changes();
    let changed = taken(&["models", "tokens", "scrape", "endpoints"], &[]);
    assert_eq!(bench.reload.take(&text("")), Ok(changed));
    assert_eq!(bench.groups.get("alias").as_deref(), Some("m"));
    assert!(regrouped.has_changed().expect("it lives"));
    regrouped.mark_unchanged();
    assert_eq!(bench.scrape.now().busy, Duration::from_secs(2));
    assert_eq!(bench.ladder.first_rung("m"), Rung::Engine);
    let tokenizer = format!(", tokenizer: {}", folder.display());
    assert_eq!(bench.reload.take(&text(&tokenizer)), Ok(taken(&["models"], &[])));
    for _ in 0..500 {
        if bench.ladder.first_rung("m") == Rung::Tokenizer {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(bench.ladder.first_rung("m"), Rung::Tokenizer);
    assert_eq!(bench.reload.take(&text(&tokenizer)), Ok(Taken::default()));
    assert_eq!(bench.reload.take(&text("")), Ok(taken(&["models"], &[])));
    assert_eq!(bench.ladder.first_rung("m"), Rung::Engine);
}

#[tokio::test]
async fn flags_stand_above_every_new_configuration() {
    let mut bench = bench("--log error --drain-timeout 7s --grpc-port 1", Vec::new()).await;
    let text = format!("{START}log: debug\nlimits: {{drain: 9s}}\nlisten: {{extProc: \"0.0.0.0:2\"}}\n");
    assert_eq!(bench.reload.take(&text), Ok(Taken::default()));
    assert_eq!(bench.logs.filter(), "error");
}

#[tokio::test]
async fn a_bad_configuration_changes_nothing_and_says_so() {
    let mut bench = bench("", Vec::new()).await;
    for bad in [
        "policy: random\nlog: warn\n",
        &format!("{START}policy: best\nlog: warn\n"),
        &format!("{START}policy: random\nlog: a=loud\n"),
        "endpoints: {kubernetes: {}}\npolicy: random\n",
    ] {
        let error = bench.reload.take(bad).expect_err(bad).to_string();
        assert!(
            error.starts_with("configmap/ns/p-picker/picker.yaml: "),
            "{error}"
        );
    }
    assert_eq!(bench.logs.filter(), "info");
    let text = format!("{START}policy: random\n");
    assert_eq!(
        bench.reload.take(&text),
        Ok(taken(&["policy"], &[])),
        "it was lmetric still"
    );
}

#[tokio::test]
async fn after_a_bad_configuration_the_next_good_one_counts() {
    for (texts, good, filter) in [
        (vec!["log: warn".to_owned()], false, "info"),
        (
            vec!["log: warn".to_owned(), format!("{START}log: error\n")],
            true,
            "error",
        ),
    ] {
        let Bench {
            reload,
            logs,
            metrics,
            status,
            ..
        } = bench("", texts).await;
        let token = CancellationToken::new();
        let running = tokio::spawn(reload.run(token.clone()));
        for _ in 0..500 {
            if metrics.is_good() == good && logs.filter() == filter {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!((metrics.is_good(), logs.filter().as_str()), (good, filter));
        assert_eq!(status.now().error.is_none(), good, "{:?}", status.now());
        assert_eq!(status.now().changes, u64::from(good));
        token.cancel();
        running.await.expect("ends");
    }
}
