//! Secrets that are not there, or lack a key.

use serde_json::json;

use super::told::{Fact, Words, told};
use super::{healed, make, pool};
use crate::support::on_steady_stage;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e"]
async fn a_missing_secret_and_then_its_missing_key_are_secret_missing() -> anyhow::Result<()> {
    on_steady_stage("secret-missing", 1, async |stage| {
        let mut pool = pool(stage, 1);
        pool["spec"]["model"]["secretRef"] = json!({"name": "hub", "key": "token"});
        make(stage, &pool).await?;
        let conditions = &[("Ready", "False", "SecretMissing"), ("Degraded", "True", "SecretMissing")];
        let words = Words {
            conditions,
            message: &["secret \"hub\" not found", "create the Secret"],
        };
        let fact = Fact::waiting(stage, "engine", &["CreateContainerConfigError"]);
        told(stage, &fact, &words).await?;
        let secret = |data: serde_json::Value| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hub"}, "stringData": data});
        let list = stage.path("v1", "secrets", "");
        stage.cluster.create(&list, &secret(json!({"other": "x"}))).await?;
        let fact = Fact::of_pods(stage, "engine", |pod| {
            let message = &pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"];
            message.as_str().is_some_and(|words| words.contains("couldn't find key"))
        });
        let words = Words {
            conditions,
            message: &["couldn't find key token", "create the Secret with that key"],
        };
        told(stage, &fact, &words).await?;
        let hub = stage.path("v1", "secrets", "hub");
        stage.cluster.merge(&hub, &secret(json!({"token": "x"}))).await?;
        healed(stage, 1).await
    })
    .await
}
