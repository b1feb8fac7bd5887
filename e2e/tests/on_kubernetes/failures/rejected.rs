//! Pods that the API server lets nobody make.

use anyhow::ensure;
use lmetric_testkit::cluster::path;
use serde_json::{Value, json};

use super::told::{Fact, Words, told};
use super::{change, healed, pool, serving};
use crate::support::{Stage, condition, on_steady_stage};

const REJECTED: &[(&str, &str, &str)] = &[("Degraded", "True", "PodsRejected"), ("Ready", "True", "Serving")];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e"]
async fn a_missing_priority_class_or_service_account_names_the_field_that_asks_for_it() -> anyhow::Result<()>
{
    on_steady_stage("class-and-account", 2, async |stage| {
        serving(stage, &pool(stage, 1)).await?;
        let (asks, restored) = (
            json!({"spec": {"placement": {"priorityClassName": "e2e-first"}}}),
            json!({"spec": {"placement": {"priorityClassName": null}}}),
        );
        change(stage, &asks).await?;
        let words = Words {
            conditions: REJECTED,
            message: &[
                "e2e-first",
                "create that PriorityClass",
                "spec.placement.priorityClassName",
            ],
        };
        told(stage, &Fact::refused(stage, "PriorityClass"), &words).await?;
        change(stage, &restored).await?;
        healed(stage, 1).await?;

        change(stage, &json!({"spec": {"serviceAccountName": "reader"}})).await?;
        let words = Words {
            conditions: REJECTED,
            message: &["reader", "create that ServiceAccount", "spec.serviceAccountName"],
        };
        told(stage, &Fact::refused(stage, "reader"), &words).await?;
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader"}});
        stage
            .cluster
            .create(&stage.path("v1", "serviceaccounts", ""), &account)
            .await?;
        healed(stage, 1).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e"]
async fn a_quota_and_pod_security_are_pods_rejected_and_what_serves_goes_on() -> anyhow::Result<()> {
    on_steady_stage("quota", 3, async |stage| {
        serving(stage, &pool(stage, 1)).await?;
        quota(stage, 2).await?;
        change(stage, &json!({"spec": {"replicas": 2}})).await?;
        let words = Words {
            conditions: REJECTED,
            message: &[
                "exceeded quota: few",
                "kubectl get resourcequota",
                "spec.replicas",
            ],
        };
        told(stage, &Fact::refused(stage, "exceeded quota"), &words).await?;
        quota(stage, 9).await?;
        healed(stage, 2).await?;

        enforce(stage, json!("restricted")).await?;
        change(
            stage,
            &json!({"spec": {"podTemplate": {"metadata": {"annotations": {"a": "b"}}}}}),
        )
        .await?;
        let words = Words {
            conditions: REJECTED,
            message: &[
                "violates PodSecurity",
                "pod-security.kubernetes.io/enforce",
                "spec.podTemplate",
            ],
        };
        told(stage, &Fact::refused(stage, "violates PodSecurity"), &words).await?;
        enforce(stage, json!(null)).await?;
        healed(stage, 2).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e"]
async fn an_object_that_a_quota_refuses_is_apply_refused_until_the_quota_is_raised() -> anyhow::Result<()> {
    on_steady_stage("apply-refused", 1, async |stage| {
        let hard = |count: &str| json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "no-services"}, "spec": {"hard": {"services": count}}});
        let quotas = stage.path("v1", "resourcequotas", "");
        stage.cluster.create(&quotas, &hard("0")).await?;
        let counted = stage.path("v1", "resourcequotas", "no-services");
        stage
            .cluster
            .until("the quota to be counted", super::HEALING, &counted, |quota| quota["status"]["hard"]["services"] == "0")
            .await?;
        super::make(stage, &pool(stage, 1)).await?;
        let pool = stage.reason("p", "Degraded", "ApplyRefused", super::HEALING).await?;
        let message = condition(&pool, "Degraded").2;
        for word in ["Service p-", "exceeded quota: no-services", "raise the quota"] {
            ensure!(message.contains(word), "{word} is not in {message}");
        }
        stage.cluster.merge(&counted, &hard("5")).await?;
        healed(stage, 1).await
    })
    .await
}

/// At most so many pods in the namespace, once the API server has taken note.
async fn quota(stage: &Stage, pods: u32) -> anyhow::Result<()> {
    let quota: Value = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": {"pods": pods.to_string()}},
    });
    let one = stage.path("v1", "resourcequotas", "few");
    if stage.cluster.find(&one).await?.is_none() {
        stage
            .cluster
            .create(&stage.path("v1", "resourcequotas", ""), &quota)
            .await?;
    } else {
        stage.cluster.merge(&one, &quota).await?;
    }
    let counted = pods.to_string();
    stage
        .cluster
        .until("the quota to be counted", super::HEALING, &one, |quota| {
            quota["status"]["hard"]["pods"] == counted.as_str()
        })
        .await?;
    Ok(())
}

/// What the namespace enforces of Pod Security.
async fn enforce(stage: &Stage, level: Value) -> anyhow::Result<()> {
    let label = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": level}}});
    let home = path("v1", "namespaces", "", &stage.namespace);
    stage.cluster.merge(&home, &label).await?;
    Ok(())
}
