use std::{net::SocketAddr, path::Path};

use lmetric_testkit::{Answered, Asked, Mirror};
use rstest::rstest;

use super::*;
use crate::testing::tiny_qwen2;

fn any() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn tiny(name: &str) -> Vec<u8> {
    let folder = tiny_qwen2();
    std::fs::read(folder.join(name)).expect("a file of the test tokenizer")
}

fn repository(site: Site, endpoint: &str) -> Repository {
    Repository {
        site,
        name: "org/name".to_owned(),
        revision: site.default_revision().to_owned(),
        endpoint: Some(endpoint.to_owned()),
        token_file: None,
    }
}

fn hub(folder: &Path) -> Hub {
    Hub::new(Cache::new(folder), Environment::default())
}

fn with_token(folder: &Path, token: &str) -> Hub {
    let defaults = SiteDefaults {
        endpoint: None,
        token: Some(token.to_owned()),
    };
    let environment = Environment {
        hugging_face: defaults.clone(),
        model_scope: defaults,
    };
    Hub::new(Cache::new(folder), environment)
}

fn paths(mirror: &Mirror) -> Vec<String> {
    mirror.asked().into_iter().map(|asked| asked.path).collect()
}

/// The file that a path asks for, in either site's form.
fn file(asked: &Asked) -> &str {
    let path = &asked.path;
    path.rsplit_once("FilePath=")
        .or_else(|| path.rsplit_once('/'))
        .map_or("", |(_, file)| file)
}

fn two_files(asked: &Asked) -> Answered {
    match file(asked) {
        name @ ("tokenizer.json" | "tokenizer_config.json") => Answered::new(200, tiny(name)),
        _ => Answered::new(404, ""),
    }
}

#[tokio::test]
async fn the_files_are_asked_for_as_the_site_has_them_and_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let mirror = Mirror::start(any(), two_files).await.expect("a port");
    let mut wanted = repository(Site::HuggingFace, &mirror.url());
    wanted.revision = "refs/pr/1".to_owned();
    let files = with_token(folder.path(), "secret")
        .files(&wanted)
        .await
        .expect("files");
    assert!(!files.kept);
    lmetric_tokenize::ModelTokenizer::load(&files.folder).expect("a tokenizer");
    assert_eq!(
        paths(&mirror),
        [
            "tokenizer.json",
            "tokenizer_config.json",
            "chat_template.jinja",
            "chat_template.json",
            "additional_chat_templates/tool_use.jinja"
        ]
        .map(|name| format!("/org/name/resolve/refs%2Fpr%2F1/{name}"))
    );
    let shown: Vec<_> = mirror
        .asked()
        .iter()
        .map(|asked| asked.headers["authorization"].clone())
        .collect();
    assert_eq!(shown, vec!["Bearer secret"; 5]);
    let again = hub(folder.path()).files(&wanted).await.expect("files");
    assert_eq!(again, Files { kept: true, ..files });
    assert_eq!(mirror.asked().len(), 5, "what is kept is not asked for again");
    let entries = std::fs::read_dir(folder.path()).expect("a folder").count();
    assert_eq!(entries, 1, "nothing half done is left");
}

#[tokio::test]
async fn model_scope_has_addresses_of_its_own_and_says_no_in_json() {
    let folder = tempfile::tempdir().expect("a folder");
    let mirror = Mirror::start(any(), |asked| match two_files(asked) {
        Answered { status: 404, .. } => Answered::new(200, r#"{"Code": 10010205001, "Success": false}"#),
        found => found,
    })
    .await
    .expect("a port");
    let wanted = repository(Site::ModelScope, &mirror.url());
    let files = hub(folder.path()).files(&wanted).await.expect("files");
    assert_eq!(
        paths(&mirror)[..2],
        ["tokenizer.json", "tokenizer_config.json"]
            .map(|name| format!("/api/v1/models/org/name/repo?Revision=master&FilePath={name}"))
    );
    assert!(!files.folder.join("chat_template.json").exists());
}

#[tokio::test]
async fn all_files_are_of_the_commit_of_the_first() {
    let folder = tempfile::tempdir().expect("a folder");
    let mirror = Mirror::start(any(), |asked| two_files(asked).header("x-repo-commit", "abc123"))
        .await
        .expect("a port");
    let wanted = repository(Site::HuggingFace, &mirror.url());
    hub(folder.path()).files(&wanted).await.expect("files");
    let revisions: Vec<_> = paths(&mirror)
        .iter()
        .filter_map(|path| path.split('/').nth(4).map(str::to_owned))
        .collect();
    assert_eq!(revisions, ["main", "abc123", "abc123", "abc123", "abc123"]);
}

#[tokio::test]
async fn a_redirect_is_followed_and_other_hosts_see_no_token() {
    let folder = tempfile::tempdir().expect("a folder");
    let storage = Mirror::start(any(), two_files).await.expect("a port");
    let elsewhere = storage.url();
    let mirror = Mirror::start(any(), move |asked| {
        if asked.path.starts_with("/moved") {
            return two_files(asked);
        }
        let to = match file(asked) {
            "tokenizer.json" => format!("{elsewhere}/tokenizer.json"),
            name => format!("/moved/{name}"),
        };
        Answered::new(307, "").header("location", to)
    })
    .await
    .expect("a port");
    let wanted = repository(Site::HuggingFace, &mirror.url());
    with_token(folder.path(), "secret")
        .files(&wanted)
        .await
        .expect("files");
    let elsewhere = storage.asked();
    assert_eq!(elsewhere.len(), 1);
    assert!(
        !elsewhere[0].headers.contains_key("authorization") && !elsewhere[0].headers.contains_key("cookie"),
        "{elsewhere:?}"
    );
    assert!(
        mirror
            .asked()
            .iter()
            .all(|asked| asked.headers.contains_key("authorization"))
    );
}

#[rstest]
#[case(401, Some("GatedRepo"), &["status 401 (GatedRepo)", "secretRef"], true)]
#[case(403, None, &["status 403;", "secretRef"], true)]
#[case(404, Some("RevisionNotFound"), &["status 404 (RevisionNotFound)", "check repository, revision and endpoint"], true)]
#[case(503, None, &["status 503", "model.endpoint"], false)]
#[case(404, Some("a b\nc"), &["status 404;"], true)]
#[tokio::test]
async fn a_refusal_names_the_address_and_the_remedy(
    #[case] status: u16,
    #[case] code: Option<&'static str>,
    #[case] words: &[&str],
    #[case] is_lasting: bool,
) {
    let folder = tempfile::tempdir().expect("a folder");
    let code = code.map(|code| code.replace('\n', " "));
    let mirror = Mirror::start(any(), move |_| {
        let answer = Answered::new(status, "<html>");
        match &code {
            Some(code) => answer.header("x-error-code", code.clone()),
            None => answer,
        }
    })
    .await
    .expect("a port");
    let wanted = repository(Site::HuggingFace, &mirror.url());
    let error = hub(folder.path()).files(&wanted).await.expect_err("refused");
    assert_eq!(error.is_lasting(), is_lasting);
    let text = error.to_string();
    let url = format!("{}/org/name/resolve/main/tokenizer.json: ", mirror.url());
    assert!(text.starts_with(&url) && !text.contains('\n'), "{text}");
    for words in words {
        assert!(text.contains(words), "{text}");
    }
}

#[tokio::test]
async fn sizes_are_bounded_and_nothing_is_kept_of_what_is_too_large() {
    let client = HubClient::default();
    let mirror = Mirror::start(any(), |_| Answered::new(200, vec![b'x'; 2_000]))
        .await
        .expect("a port");
    let too_large = client.get(&mirror.url(), None, 1_999).await;
    assert_eq!(too_large, Err(GetError::TooLarge(1_999)));
    let whole = client.get(&mirror.url(), None, 2_000).await.expect("fits");
    assert_eq!(whole.body.len(), 2_000);
}

#[rstest]
#[case("ftp://elsewhere/x")]
#[case("//elsewhere/x")]
#[case("https:///x")]
#[tokio::test]
async fn a_strange_redirect_is_not_followed(#[case] to: &'static str) {
    let mirror = Mirror::start(any(), move |_| Answered::new(302, "").header("location", to))
        .await
        .expect("a port");
    let error = HubClient::default()
        .get(&mirror.url(), None, 10)
        .await
        .expect_err(to);
    assert!(matches!(error, GetError::Redirect(_)), "{error:?}");
}

#[tokio::test]
async fn redirects_in_a_circle_end() {
    let mirror = Mirror::start(any(), |_| Answered::new(302, "").header("location", "/again"))
        .await
        .expect("a port");
    let error = HubClient::default()
        .get(&mirror.url(), None, 10)
        .await
        .expect_err("a circle");
    assert!(matches!(error, GetError::Redirect(_)), "{error:?}");
    assert!(mirror.asked().len() < 10);
}

#[tokio::test]
async fn a_token_in_a_file_is_read_at_each_attempt_and_stands_above_the_environments() {
    let folder = tempfile::tempdir().expect("a folder");
    let token_file = folder.path().join("token");
    let cache = folder.path().join("cache");
    let mirror = Mirror::hub(any(), &tiny_qwen2(), Some("right"))
        .await
        .expect("a port");
    let mut wanted = repository(Site::HuggingFace, &mirror.url());
    wanted.token_file = Some(token_file.clone());
    let hub = with_token(&cache, "wrong");
    let error = hub.files(&wanted).await.expect_err("no file yet");
    assert!(matches!(error, HubError::Forbidden { .. }), "{error}");
    std::fs::write(&token_file, "right\n").expect("writes");
    hub.files(&wanted).await.expect("the file came");
}

#[tokio::test]
async fn a_folder_that_cannot_be_written_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("a-file");
    std::fs::write(&file, "").expect("writes");
    let mirror = Mirror::start(any(), two_files).await.expect("a port");
    let wanted = repository(Site::HuggingFace, &mirror.url());
    let error = hub(&file)
        .files(&wanted)
        .await
        .expect_err("no folder")
        .to_string();
    assert!(
        error.contains("a-file") && error.contains("tokenizerCache"),
        "{error}"
    );
}

#[test]
fn the_token_is_in_no_log() {
    let defaults = SiteDefaults {
        endpoint: None,
        token: Some("hf_secret".to_owned()),
    };
    assert!(!format!("{defaults:?}").contains("secret"));
}
