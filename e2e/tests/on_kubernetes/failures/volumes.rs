//! Volumes that nobody makes, and one that cannot be attached.

use std::time::Duration;

use anyhow::Context;
use lmetric_testkit::cluster::path;
use serde_json::{Value, json};

use super::told::{Fact, Words, told};
use super::{change, healed, make, pool};
use crate::support::{Stage, on_steady_stage};

/// A CSI driver that no node has.
const DRIVER: &str = "nobody.e2e.local";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e"]
async fn a_storage_class_that_does_not_exist_is_volume_pending_until_it_comes() -> anyhow::Result<()> {
    on_steady_stage("class-missing", 1, async |stage| {
        let class = "e2e-fast";
        let mut pool = pool(stage, 1);
        pool["spec"]["cache"] = json!({"type": "PVC", "size": "1Gi", "storageClassName": class});
        make(stage, &pool).await?;
        let events = stage.path("v1", "events", "");
        let fact = Fact::of(events, |event| {
            event["reason"] == "ProvisioningFailed" && event["involvedObject"]["name"] == "p-cache"
        });
        let words = Words {
            conditions: &[
                ("Ready", "False", "VolumePending"),
                ("Degraded", "True", "VolumePending"),
            ],
            message: &[
                "claim p-cache",
                "storage class e2e-fast, which does not exist",
                "create it",
                "kubectl get storageclass",
            ],
        };
        told(stage, &fact, &words).await?;
        let made = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": class},
            "provisioner": "kubernetes.io/no-provisioner",
        });
        let classes = path("storage.k8s.io/v1", "storageclasses", "", "");
        stage.cluster.create(&classes, &made).await?;
        let source = json!({"hostPath": {"path": "/var/tmp/e2e-fast", "type": "DirectoryOrCreate"}});
        volume(stage, "e2e-fast", class, "ReadWriteMany", &source).await?;
        healed(stage, 1).await?;
        for (version, plural) in [
            ("storage.k8s.io/v1", "storageclasses"),
            ("v1", "persistentvolumes"),
        ] {
            stage
                .cluster
                .delete(&path(version, plural, "", "e2e-fast"))
                .await?;
        }
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e"]
async fn a_volume_that_cannot_be_attached_is_volume_attach_in_the_attachers_words() -> anyhow::Result<()> {
    on_steady_stage("attach", 2, async |stage| {
        let name = "e2e-held-elsewhere";
        let source = json!({"csi": {"driver": DRIVER, "volumeHandle": "disk-1"}});
        volume(stage, name, "", "ReadWriteOnce", &source).await?;
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "weights"},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": name,
                "resources": {"requests": {"storage": "1Gi"}},
            },
        });
        let claims = stage.path("v1", "persistentvolumeclaims", "");
        stage.cluster.create(&claims, &claim).await?;
        let mut pool = pool(stage, 1);
        pool["spec"]["cache"] = json!({"type": "ExistingClaim", "claimName": "weights"});
        make(stage, &pool).await?;
        refuse_to_attach(stage, name).await?;
        let events = stage.path("v1", "events", "");
        let fact = Fact::of(events, |event| event["reason"] == "FailedAttachVolume");
        let words = Words {
            conditions: &[
                ("Ready", "False", "VolumeAttach"),
                ("Degraded", "True", "VolumeAttach"),
            ],
            message: &[
                "p-engine-",
                "disk-1 is attached to node9",
                "who else holds it",
                "ReadWriteMany",
            ],
        };
        told(stage, &fact, &words).await?;
        change(
            stage,
            &json!({"spec": {"cache": {"type": "None", "claimName": null}}}),
        )
        .await?;
        healed(stage, 1).await?;
        stage
            .cluster
            .delete(&stage.path("v1", "persistentvolumeclaims", "weights"))
            .await?;
        stage
            .cluster
            .delete(&path("v1", "persistentvolumes", "", name))
            .await
    })
    .await
}

async fn volume(stage: &Stage, name: &str, class: &str, access: &str, source: &Value) -> anyhow::Result<()> {
    let mut volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": [access], "storageClassName": class,
            "persistentVolumeReclaimPolicy": "Retain",
        },
    });
    for (kind, fields) in source.as_object().context("a source")? {
        volume["spec"][kind] = fields.clone();
    }
    stage
        .cluster
        .create(&path("v1", "persistentvolumes", "", ""), &volume)
        .await?;
    Ok(())
}

/// Does what the driver's attacher does with a disk that another node holds.
async fn refuse_to_attach(stage: &Stage, volume: &str) -> anyhow::Result<()> {
    let list = path("storage.k8s.io/v1", "volumeattachments", "", "");
    let wanted = |attachment: &&Value| attachment["spec"]["source"]["persistentVolumeName"] == volume;
    let attachments = stage
        .cluster
        .until_list(
            "the volume to be attached",
            Duration::from_mins(1),
            &list,
            "",
            |items| items.iter().any(|item| wanted(&item)),
        )
        .await?;
    let attachment = attachments.iter().find(wanted).context("an attachment")?;
    let name = attachment["metadata"]["name"].as_str().context("a name")?;
    let error = json!({"status": {
        "attached": false,
        "attachError": {"message": "disk-1 is attached to node9", "time": "2026-01-01T00:00:00Z"},
    }});
    stage
        .cluster
        .merge(&format!("{list}/{name}/status"), &error)
        .await?;
    Ok(())
}
