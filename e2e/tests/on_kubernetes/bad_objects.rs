//! The API server refuses what makes no sense, in words that a person can act on.
//!
//! The table is `crates/api/testdata/bad-pools`: a file is one object and what the refusal has to say; with two objects, the second is a
//! change of the first that is refused.

use std::path::Path;

use anyhow::{Context, bail, ensure};
use http::Method;
use lmetric_testkit::cluster::{Cluster, path};
use serde_json::{Value, json};

use crate::crds::established;

const JSON: &str = "application/json";

#[tokio::test]
#[ignore = "needs the cluster: make e2e-core"]
async fn every_bad_object_is_refused_with_its_remedy() -> anyhow::Result<()> {
    let cluster = Cluster::enter().await?;
    established(&cluster).await?;
    let pools = namespace(&cluster, "bad-objects").await?;
    let folder = cluster.root().join("crates/api/testdata/bad-pools");
    let (mut count, mut wrong) = (0, Vec::new());
    for file in std::fs::read_dir(folder)? {
        let file = file?.path();
        count += 1;
        if let Err(error) = refused(&cluster, &pools, &file).await {
            wrong.push(format!("{}: {error:#}", file.display()));
        }
    }
    ensure!(count >= 40, "only {count} bad objects");
    ensure!(
        wrong.is_empty(),
        "{} of {count}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    cluster.delete(&path("v1", "namespaces", "", "bad-objects")).await
}

#[tokio::test]
#[ignore = "needs the cluster: make e2e-core"]
async fn every_good_object_is_accepted() -> anyhow::Result<()> {
    let cluster = Cluster::enter().await?;
    established(&cluster).await?;
    let pools = namespace(&cluster, "good-objects").await?;
    for file in std::fs::read_dir(cluster.root().join("crates/api/testdata/good-pools"))? {
        let file = file?.path();
        for mut object in documents(&std::fs::read_to_string(&file)?)? {
            object["metadata"]["namespace"] = "good-objects".into();
            let try_out = format!("{pools}?dryRun=All&fieldValidation=Strict");
            cluster
                .create(&try_out, &object)
                .await
                .with_context(|| file.display().to_string())?;
        }
    }
    cluster
        .delete(&path("v1", "namespaces", "", "good-objects"))
        .await
}

/// A namespace in which no pod can be made; the path of its pools.
async fn namespace(cluster: &Cluster, name: &str) -> anyhow::Result<String> {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    cluster.create(&path("v1", "namespaces", "", ""), &object).await?;
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "no-pods"}, "spec": {"hard": {"pods": "0"}}});
    cluster
        .create(&path("v1", "resourcequotas", name, ""), &quota)
        .await?;
    Ok(path("lmetric.io/v1alpha1", "inferencepools", name, ""))
}

async fn refused(cluster: &Cluster, pools: &str, file: &Path) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(file)?;
    let expected = text
        .lines()
        .next()
        .and_then(|line| line.strip_prefix("# expect: "))
        .context("its first line is not `# expect: TEXT`")?;
    let mut objects = documents(&text)?;
    let bad = objects.pop().context("no object")?;
    let answer = match objects.pop() {
        None => {
            let try_out = format!("{pools}?dryRun=All&fieldValidation=Strict");
            cluster.request(Method::POST, &try_out, Some((JSON, &bad))).await
        }
        Some(first) => {
            cluster.create(pools, &first).await?;
            let one = format!(
                "{pools}/{}",
                first["metadata"]["name"].as_str().context("a name")?
            );
            let answer = cluster
                .request(
                    Method::PATCH,
                    &format!("{one}?dryRun=All"),
                    Some(("application/merge-patch+json", &bad)),
                )
                .await;
            cluster.delete(&one).await?;
            answer
        }
    };
    match answer {
        Ok(_) => bail!("it was accepted"),
        Err(error) => {
            let said = format!("{error:#}");
            ensure!(
                said.contains(expected),
                "wanted {expected:?}, the API server said: {said}"
            );
            Ok(())
        }
    }
}

fn documents(text: &str) -> anyhow::Result<Vec<Value>> {
    let parts = text.split("\n---\n").filter(|part| !part.trim().is_empty());
    parts.map(|part| Ok(serde_yaml::from_str(part)?)).collect()
}
