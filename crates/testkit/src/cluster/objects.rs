//! Objects by their path, as JSON: read, listed, made, changed, deleted, awaited.

use std::time::Duration;

use anyhow::Context;
use http::{Method, Request, StatusCode};
use serde_json::Value;

use super::Cluster;
use crate::wait::poll;

/// How often the API server is asked while something is awaited.
const EVERY: Duration = Duration::from_millis(200);

/// The path of an object, or with an empty name of its list: `path("apps/v1", "deployments", "default", "x")`.
pub fn path(api_version: &str, plural: &str, namespace: &str, name: &str) -> String {
    let root = if api_version.contains('/') { "apis" } else { "api" };
    let parts = ["", root, api_version, "namespaces", namespace, plural, name];
    let cluster_wide = namespace.is_empty();
    parts
        .iter()
        .enumerate()
        .filter(|(at, part)| *at == 0 || !(part.is_empty() || cluster_wide && (3..5).contains(at)))
        .map(|(_, part)| *part)
        .collect::<Vec<_>>()
        .join("/")
}

impl Cluster {
    /// One request to the API server; none if it says 404.
    pub async fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, &Value)>,
    ) -> anyhow::Result<Option<Value>> {
        let mut request = Request::builder().method(method.clone()).uri(path);
        let mut bytes = Vec::new();
        if let Some((content_type, body)) = body {
            request = request.header("content-type", content_type);
            bytes = body.to_string().into_bytes();
        }
        match self.api.request::<Value>(request.body(bytes)?).await {
            Ok(value) => Ok(Some(value)),
            Err(kube::Error::Api(status)) if status.code == StatusCode::NOT_FOUND.as_u16() => Ok(None),
            Err(error) => Err(error).with_context(|| format!("{method} {path}")),
        }
    }

    /// An object, if it exists.
    pub async fn find(&self, path: &str) -> anyhow::Result<Option<Value>> {
        self.request(Method::GET, path, None).await
    }

    /// An object that must exist.
    pub async fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.find(path)
            .await?
            .with_context(|| format!("{path} does not exist"))
    }

    /// The items of a list; `selector` is a label selector or empty.
    pub async fn list(&self, path: &str, selector: &str) -> anyhow::Result<Vec<Value>> {
        let selector = selector.replace('=', "%3D").replace(',', "%2C");
        let list = self.get(&format!("{path}?labelSelector={selector}")).await?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// Makes an object; `path` is that of the list.
    pub async fn create(&self, path: &str, object: &Value) -> anyhow::Result<Value> {
        self.request(Method::POST, path, Some(("application/json", object)))
            .await?
            .with_context(|| format!("{path} does not exist"))
    }

    /// Changes an object by a merge patch.
    pub async fn merge(&self, path: &str, patch: &Value) -> anyhow::Result<Value> {
        self.request(Method::PATCH, path, Some(("application/merge-patch+json", patch)))
            .await?
            .with_context(|| format!("{path} does not exist"))
    }

    /// Deletes an object and what it owns, in the background; one that does not exist is no error.
    pub async fn delete(&self, path: &str) -> anyhow::Result<()> {
        self.request(Method::DELETE, path, None).await?;
        Ok(())
    }

    /// Waits until an object exists and `holds` is true of it.
    pub async fn until(
        &self,
        what: &str,
        limit: Duration,
        path: &str,
        holds: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Value> {
        let value = poll(what, limit, EVERY, || async {
            match self.find(path).await? {
                Some(value) if holds(&value) => Ok(value),
                Some(value) => Err(anyhow::anyhow!("{}", brief(&value))),
                None => Err(anyhow::anyhow!("{path} does not exist")),
            }
        });
        Ok(value.await?)
    }

    /// Waits until an object is gone.
    pub async fn gone(&self, path: &str, limit: Duration) -> anyhow::Result<()> {
        let what = format!("{path} to be gone");
        let gone = poll(&what, limit, EVERY, || async {
            match self.find(path).await? {
                None => Ok(()),
                Some(value) => Err(anyhow::anyhow!("{}", brief(&value))),
            }
        });
        Ok(gone.await?)
    }

    /// Waits until `holds` is true of a list's items.
    pub async fn until_list(
        &self,
        what: &str,
        limit: Duration,
        path: &str,
        selector: &str,
        holds: impl Fn(&[Value]) -> bool,
    ) -> anyhow::Result<Vec<Value>> {
        let items = poll(what, limit, EVERY, || async {
            let items = self.list(path, selector).await?;
            if holds(&items) {
                Ok(items)
            } else {
                let names = items.iter().map(brief).collect::<Vec<_>>();
                Err(anyhow::anyhow!("{} items: {}", items.len(), names.join("; ")))
            }
        });
        Ok(items.await?)
    }
}

/// Name and status, without what is not read in a failure.
fn brief(object: &Value) -> String {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let mut status = object["status"].clone();
    if let Some(conditions) = status["conditions"].as_array_mut() {
        for condition in conditions {
            if let Some(fields) = condition.as_object_mut() {
                fields.retain(|key, _| matches!(key.as_str(), "type" | "status" | "reason" | "message"));
            }
        }
    }
    let mut text = format!("{name} {status}");
    if text.len() > 2_000 {
        text.truncate(text.floor_char_boundary(2_000));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_the_api_server() {
        assert_eq!(path("v1", "pods", "a", "b"), "/api/v1/namespaces/a/pods/b");
        assert_eq!(path("v1", "nodes", "", "n"), "/api/v1/nodes/n");
        assert_eq!(
            path("lmetric.io/v1alpha1", "inferencepools", "a", ""),
            "/apis/lmetric.io/v1alpha1/namespaces/a/inferencepools"
        );
    }
}
