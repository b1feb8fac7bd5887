use std::{
    net::SocketAddr,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use lmetric_api::{Repository, Site};
use lmetric_testkit::{Answered, Mirror};

use super::*;
use crate::{
    metrics::PlaceMetrics,
    scrape::EngineClient,
    testing::tiny_qwen2,
    tokens::{EngineTokens, GroupMap, Pool, Rung},
};
use hub::{Cache, Environment};

struct Bench {
    tokenizers: Tokenizers,
    ladder: Arc<Ladder>,
    states: States,
    tasks: Tasks,
    cache: tempfile::TempDir,
}

fn bench() -> Bench {
    let settings = lmetric_api::Tokens {
        budget: Duration::from_secs(1),
        threads: 1,
        queue: 8,
    };
    let ladder = Arc::new(Ladder::new(
        GroupMap::new(),
        Pool::new(1, 8).expect("threads"),
        EngineTokens::new(EngineClient::default(), 8),
        settings,
        PlaceMetrics::new(&mut lmetric_telemetry::registry()),
    ));
    let cache = tempfile::tempdir().expect("a folder");
    let (tasks, _) = Tasks::new();
    let tokenizers = Tokenizers::new(TokenizersParts {
        ladder: ladder.clone(),
        hub: Hub::new(Cache::new(cache.path()), Environment::default()),
        tasks: tasks.clone(),
        pauses: Pauses {
            first: Duration::from_millis(20),
            longest: Duration::from_millis(60),
        },
    });
    Bench {
        states: tokenizers.states(),
        tokenizers,
        ladder,
        tasks,
        cache,
    }
}

impl Bench {
    async fn until(&self, what: &str, holds: impl Fn(&State) -> bool) {
        for _ in 0..1_000 {
            if self.states.now().get("m").is_some_and(&holds) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("waited 10 s for {what}: {:?}", self.states.now());
    }
}

fn any() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn model(tokenizer: Option<TokenizerSource>) -> ModelGroup {
    ModelGroup {
        names: vec!["m".to_owned()],
        tokenizer,
        image_tokens: 7,
    }
}

fn from(mirror: &str) -> TokenizerSource {
    TokenizerSource::Repository(Repository {
        site: Site::HuggingFace,
        name: "org/name".to_owned(),
        revision: "main".to_owned(),
        endpoint: Some(mirror.to_owned()),
        token_file: None,
    })
}

#[tokio::test]
async fn a_site_that_comes_late_is_tried_until_it_is_there() {
    let mut bench = bench();
    let tries = AtomicUsize::new(0);
    let mirror = Mirror::start(any(), move |asked| {
        let file = asked.path.rsplit('/').next().unwrap_or_default();
        match tries.fetch_add(1, SeqCst) {
            0..2 => Answered::new(503, ""),
            2 => Answered::new(401, ""),
            _ => std::fs::read(tiny_qwen2().join(file))
                .map_or(Answered::new(404, ""), |bytes| Answered::new(200, bytes)),
        }
    })
    .await
    .expect("a port");
    bench.tokenizers.set(&[model(Some(from(&mirror.url())))]);
    assert_eq!(
        bench.ladder.first_rung("m"),
        Rung::Engine,
        "requests do not wait for it"
    );
    bench
        .until("the tokenizer", |state| state.state == "loaded")
        .await;
    assert_eq!(bench.ladder.first_rung("m"), Rung::Tokenizer);
    let state = bench.states.now()["m"].clone();
    assert_eq!((state.failures, state.error), (3, None));
    assert_eq!(state.source.as_deref(), Some("hf://org/name@main"));
    let asked = mirror.asked().len();
    bench.tokenizers.set(&[model(Some(from(&mirror.url())))]);
    assert_eq!(
        bench.ladder.first_rung("m"),
        Rung::Tokenizer,
        "the same again changes nothing"
    );
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(mirror.asked().len(), asked);
}

#[tokio::test]
async fn a_failure_is_told_of_and_another_source_ends_it() {
    let mut bench = bench();
    let mirror = Mirror::start(any(), |_| Answered::new(404, ""))
        .await
        .expect("a port");
    bench.tokenizers.set(&[model(Some(from(&mirror.url())))]);
    bench
        .until("failures", |state| state.failures > 1 && state.error.is_some())
        .await;
    assert_eq!(bench.states.now()["m"].state, "waiting");
    bench
        .tokenizers
        .set(&[model(Some(TokenizerSource::Folder(tiny_qwen2())))]);
    bench
        .until("the tokenizer", |state| state.state == "loaded")
        .await;
    let asked = mirror.asked().len();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(mirror.asked().len(), asked, "the site is asked no more");
    bench.tokenizers.set(&[]);
    assert!(bench.states.now().is_empty());
}

#[tokio::test]
async fn files_that_a_disk_has_spoilt_are_downloaded_again() {
    let mut bench = bench();
    let mirror = Mirror::hub(any(), &tiny_qwen2(), None).await.expect("a port");
    let hub = Hub::new(Cache::new(bench.cache.path()), Environment::default());
    let TokenizerSource::Repository(repository) = from(&mirror.url()) else {
        panic!("a repository");
    };
    let files = hub.files(&repository).await.expect("files");
    std::fs::write(files.folder.join("tokenizer.json"), "{").expect("writes");
    bench.tokenizers.set(&[model(Some(from(&mirror.url())))]);
    bench
        .until("the tokenizer", |state| state.state == "loaded")
        .await;
    assert_eq!(bench.states.now()["m"].failures, 0);
}

#[tokio::test]
async fn a_tokenizer_that_is_no_longer_wanted_is_not_taken() {
    let bench = bench();
    let tokenizer = Arc::new(ModelTokenizer::load(&tiny_qwen2()).expect("the test tokenizer"));
    let [old, new] = ["http://old", "http://new"].map(from);
    bench.ladder.set_models(&[model(Some(new.clone()))]);
    assert!(!bench.ladder.install(&"m".into(), &old, &tokenizer));
    assert_eq!(bench.ladder.first_rung("m"), Rung::Engine);
    assert!(bench.ladder.install(&"m".into(), &new, &tokenizer));
    assert_eq!(bench.ladder.first_rung("m"), Rung::Tokenizer);
    bench.tasks.token().cancel();
}
