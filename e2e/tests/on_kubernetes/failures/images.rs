//! Images that nobody has.

use serde_json::json;

use super::told::{Fact, Words, told};
use super::{NOWHERE, answers, change, healed, make, pool, pool_with_envoy, serving};
use crate::support::on_steady_stage;

const PULLING: &[&str] = &["ErrImagePull", "ImagePullBackOff"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e"]
async fn an_image_that_does_not_exist_is_image_pull_until_it_is_corrected() -> anyhow::Result<()> {
    on_steady_stage("image-missing", 2, async |stage| {
        let mut pool = pool(stage, 1);
        pool["spec"]["engine"]["image"] = NOWHERE.into();
        make(stage, &pool).await?;
        let words = Words {
            conditions: &[("Ready", "False", "ImagePull"), ("Degraded", "True", "ImagePull")],
            message: &[NOWHERE, "correct spec.engine.image", "spec.engine.pullSecrets"],
        };
        told(stage, &Fact::waiting(stage, "engine", PULLING), &words).await?;
        let image = &stage.cluster.images().vllm;
        change(stage, &json!({"spec": {"engine": {"image": image}}})).await?;
        healed(stage, 1).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e"]
async fn a_new_image_that_does_not_exist_leaves_the_old_engine_serving() -> anyhow::Result<()> {
    on_steady_stage("image-wrong", 2, async |stage| {
        serving(stage, &pool_with_envoy(stage, 1)).await?;
        change(stage, &json!({"spec": {"engine": {"image": NOWHERE}}})).await?;
        let words = Words {
            conditions: &[("Degraded", "True", "ImagePull"), ("Ready", "True", "Serving")],
            message: &[NOWHERE, "correct spec.engine.image", "spec.engine.pullSecrets"],
        };
        told(stage, &Fact::waiting(stage, "engine", PULLING), &words).await?;
        answers(stage).await?;
        let image = &stage.cluster.images().vllm;
        change(stage, &json!({"spec": {"engine": {"image": image}}})).await?;
        healed(stage, 1).await?;
        answers(stage).await
    })
    .await
}
