//! Which object or list a path means.

/// A path of the API, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// `/api/v1` or `/apis/group/version`.
    pub(super) root: String,
    /// Empty for cluster-wide objects and for lists over all namespaces.
    pub(super) namespace: String,
    pub(super) plural: String,
    /// Empty for a list.
    pub(super) name: String,
    /// `status`, `scale`, or empty.
    pub(super) subresource: String,
}

impl Place {
    pub(super) fn read(path: &str) -> Option<Self> {
        let mut parts = path.trim_start_matches('/').split('/');
        let root = match parts.next()? {
            "api" => format!("/api/{}", parts.next()?),
            "apis" => format!("/apis/{}/{}", parts.next()?, parts.next()?),
            _ => return None,
        };
        let rest: Vec<_> = parts.collect();
        let (namespace, rest) = match rest.as_slice() {
            // a namespace itself is an object, too
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() && rest != ["status"] => {
                (*namespace, rest)
            }
            rest => ("", rest),
        };
        let (plural, rest) = rest.split_first()?;
        let part = |index: usize| rest.get(index).copied().unwrap_or_default().to_owned();
        Some(Self {
            root,
            namespace: namespace.to_owned(),
            plural: (*plural).to_owned(),
            name: part(0),
            subresource: part(1),
        })
    }

    pub(super) fn api_version(&self) -> &str {
        self.root
            .strip_prefix("/apis/")
            .or_else(|| self.root.strip_prefix("/api/"))
            .unwrap_or_default()
    }

    /// Path of the object, without its subresource.
    pub(super) fn path(&self) -> String {
        let Self {
            root,
            namespace,
            plural,
            name,
            subresource: _,
        } = self;
        if namespace.is_empty() {
            format!("{root}/{plural}/{name}")
        } else {
            format!("{root}/namespaces/{namespace}/{plural}/{name}")
        }
    }

    /// Whether the object of `other` is an item of this list.
    pub(super) fn lists(&self, other: &Self) -> bool {
        self.root == other.root
            && self.plural == other.plural
            && (self.namespace.is_empty() || self.namespace == other.namespace)
            && (self.name.is_empty() || self.name == other.name)
    }
}
