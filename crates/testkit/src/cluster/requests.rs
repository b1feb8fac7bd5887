//! The API server's own count of the requests it got.

use std::collections::BTreeMap;

use anyhow::Context;
use http::Request;

use super::Cluster;

const FAMILY: &str = "apiserver_request_total{";

/// Writing requests since the API server started, by `verb resource[/subresource]`.
pub type Writes = BTreeMap<String, u64>;

impl Cluster {
    /// Every write that the API server counted.
    pub async fn writes(&self) -> anyhow::Result<Writes> {
        let request = Request::get("/metrics").body(Vec::new())?;
        Ok(parse(
            &self
                .api
                .request_text(request)
                .await
                .context("the API server's metrics")?,
        ))
    }
}

/// What was written between two counts, apart from `ignored` resources.
pub fn writes_between(before: &Writes, after: &Writes, ignored: &[&str]) -> Writes {
    after
        .iter()
        .filter(|(what, _)| {
            let resource = what.split_once(' ').map_or("", |(_, resource)| resource);
            !ignored.contains(&resource)
        })
        .filter_map(|(what, count)| {
            let more = count - before.get(what).copied().unwrap_or(0).min(*count);
            (more > 0).then(|| (what.clone(), more))
        })
        .collect()
}

fn parse(page: &str) -> Writes {
    let mut writes = Writes::new();
    for line in page.lines() {
        let Some((labels, count)) = line.strip_prefix(FAMILY).and_then(|rest| rest.rsplit_once("} ")) else {
            continue;
        };
        let label = |name: &str| {
            let start = labels.find(&format!("{name}=\""))? + name.len() + 2;
            labels[start..].split('"').next()
        };
        let verb = label("verb").unwrap_or_default();
        if !matches!(
            verb,
            "POST" | "PUT" | "PATCH" | "APPLY" | "DELETE" | "DELETECOLLECTION"
        ) {
            continue;
        }
        let mut resource = label("resource").unwrap_or_default().to_owned();
        if let Some(sub) = label("subresource").filter(|sub| !sub.is_empty()) {
            resource = format!("{resource}/{sub}");
        }
        let count = count.parse::<f64>().unwrap_or_default() as u64;
        *writes.entry(format!("{verb} {resource}")).or_default() += count;
    }
    writes
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = r#"# HELP apiserver_request_total x
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="pods",scope="namespace",subresource="status",verb="PATCH",version="v1"} 3
apiserver_request_total{code="409",component="apiserver",dry_run="",group="",resource="pods",scope="namespace",subresource="status",verb="PATCH",version="v1"} 1
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="pods",scope="cluster",subresource="",verb="LIST",version="v1"} 9
apiserver_request_total{code="200",group="coordination.k8s.io",resource="leases",subresource="",verb="PUT",version="v1"} 40
"#;

    #[test]
    fn only_writes_count_and_leases_can_be_left_out() {
        let now = parse(PAGE);
        assert_eq!(now.len(), 2);
        assert_eq!(now["PATCH pods/status"], 4);
        let before = Writes::from([("PATCH pods/status".to_owned(), 3)]);
        let more = writes_between(&before, &now, &["leases"]);
        assert_eq!(more, Writes::from([("PATCH pods/status".to_owned(), 1)]));
    }
}
