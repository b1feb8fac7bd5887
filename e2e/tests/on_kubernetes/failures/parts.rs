//! A picker or an Envoy that does not come up, and a pool without engines.

use serde_json::json;

use super::told::{Fact, Words, told};
use super::{NOWHERE, answers, change, healed, make, pool_with_envoy};
use crate::support::{STARTING, condition, on_steady_stage};

const PULLING: &[&str] = &["ErrImagePull", "ImagePullBackOff"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e"]
async fn a_picker_and_then_an_envoy_that_do_not_come_up_and_a_count_of_zero_are_told() -> anyhow::Result<()> {
    on_steady_stage("parts", 1, async |stage| {
        let mut pool = pool_with_envoy(stage, 1);
        pool["spec"]["picker"]["image"] = NOWHERE.into();
        pool["spec"]["gateway"]["standalone"]["image"] = NOWHERE.into();
        make(stage, &pool).await?;
        stage
            .cluster
            .until(
                "the engine to be ready",
                STARTING,
                &stage.pool_path("p"),
                |pool| pool["status"]["readyReplicas"] == 1,
            )
            .await?;
        let words = Words {
            conditions: &[
                ("Ready", "False", "PickerDown"),
                ("PickerReady", "False", "PickerDown"),
                ("Degraded", "True", "ImagePull"),
            ],
            message: &["p-picker-", NOWHERE, "correct spec.picker.image"],
        };
        told(stage, &Fact::waiting(stage, "picker", PULLING), &words).await?;

        change(stage, &json!({"spec": {"picker": {"image": null}}})).await?;
        stage
            .cluster
            .until(
                "the picker to be ready",
                STARTING,
                &stage.pool_path("p"),
                |pool| condition(pool, "PickerReady").0 == "True",
            )
            .await?;
        let words = Words {
            conditions: &[
                ("Ready", "False", "EnvoyDown"),
                ("PickerReady", "True", "AsExpected"),
                ("Degraded", "True", "ImagePull"),
            ],
            message: &["p-envoy-", NOWHERE, "correct spec.gateway.standalone.image"],
        };
        told(stage, &Fact::waiting(stage, "envoy", PULLING), &words).await?;

        change(
            stage,
            &json!({"spec": {"gateway": {"standalone": {"image": null}}}}),
        )
        .await?;
        healed(stage, 1).await?;
        answers(stage).await?;

        change(stage, &json!({"spec": {"replicas": 0}})).await?;
        let engines = stage.path("apps/v1", "deployments", "");
        let none = Fact::of(engines, |deployment| {
            deployment["metadata"]["name"] == "p-engine" && deployment["spec"]["replicas"] == 0
        });
        let words = Words {
            conditions: &[
                ("Ready", "False", "ScaledToZero"),
                ("Available", "False", "ScaledToZero"),
                ("Degraded", "False", "AsExpected"),
            ],
            message: &["spec.replicas is 0", "raise it"],
        };
        told(stage, &none, &words).await?;
        change(stage, &json!({"spec": {"replicas": 1}})).await?;
        healed(stage, 1).await?;
        answers(stage).await
    })
    .await
}
