//! The API server's own count of the requests it got.

use std::collections::BTreeMap;

use anyhow::Context;
use http::Request;

use super::Cluster;

const FAMILY: &str = "apiserver_request_total{";

/// Verbs that change something.
const WRITING: [&str; 6] = ["POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"];

/// Requests since the API server started, by `verb resource[/subresource]`.
pub type Writes = BTreeMap<String, u64>;

impl Cluster {
    /// Every write that the API server counted.
    pub async fn writes(&self) -> anyhow::Result<Writes> {
        Ok(parse(&self.counts().await?, |verb, _| WRITING.contains(&verb)))
    }

    /// Every request about one resource, reads and watches that have ended included.
    pub async fn requests(&self, resource: &str) -> anyhow::Result<Writes> {
        Ok(parse(&self.counts().await?, |_, of| of == resource))
    }

    async fn counts(&self) -> anyhow::Result<String> {
        let request = Request::get("/metrics").body(Vec::new())?;
        let page = self.api.request_text(request).await;
        page.context("the API server's metrics")
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

fn parse(page: &str, counts: impl Fn(&str, &str) -> bool) -> Writes {
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
        let mut resource = label("resource").unwrap_or_default().to_owned();
        if !counts(verb, &resource) {
            continue;
        }
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
        let now = parse(PAGE, |verb, _| WRITING.contains(&verb));
        let of_pods = parse(PAGE, |_, resource| resource == "pods");
        assert_eq!(
            of_pods,
            Writes::from([("LIST pods".to_owned(), 9), ("PATCH pods/status".to_owned(), 4)])
        );
        assert_eq!(now.len(), 2);
        assert_eq!(now["PATCH pods/status"], 4);
        let before = Writes::from([("PATCH pods/status".to_owned(), 3)]);
        let more = writes_between(&before, &now, &["leases"]);
        assert_eq!(more, Writes::from([("PATCH pods/status".to_owned(), 1)]));
    }
}
