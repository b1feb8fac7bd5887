//! What an object looked like after our last apply, so that nothing is written again.
//!
//! Lost at a restart, when each object is applied once more; the API server sees no change then and writes nothing.

use std::collections::HashMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use lmetric_api::pool::names::{annotation, label};
use parking_lot::Mutex;

/// One object after our last apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// Hash of what was applied.
    pub hash: String,
    /// UID of the object.
    pub uid: Option<String>,
    /// Its generation, or its resourceVersion for kinds that have none: anything else means that somebody changed it.
    pub mark: String,
}

impl Remembered {
    /// Of an object that the API server returned.
    pub fn of(hash: &str, meta: &ObjectMeta) -> Self {
        Self {
            hash: hash.to_owned(),
            uid: meta.uid.clone(),
            mark: mark(meta),
        }
    }
}

fn mark(meta: &ObjectMeta) -> String {
    match meta.generation {
        Some(generation) => format!("generation {generation}"),
        None => meta.resource_version.clone().unwrap_or_default(),
    }
}

/// Everything that was applied. An object's key is its kind, namespace and name.
#[derive(Debug, Default)]
pub struct Memory {
    objects: Mutex<HashMap<(String, String, String), Remembered>>,
}

impl Memory {
    pub(super) fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<Remembered> {
        self.objects
            .lock()
            .get(&(kind.to_owned(), namespace.to_owned(), name.to_owned()))
            .cloned()
    }

    pub(super) fn put(&self, kind: &str, namespace: &str, name: &str, object: Remembered) {
        self.objects
            .lock()
            .insert((kind.to_owned(), namespace.to_owned(), name.to_owned()), object);
    }

    pub(super) fn forget(&self, kind: &str, namespace: &str, name: &str) {
        self.objects
            .lock()
            .remove(&(kind.to_owned(), namespace.to_owned(), name.to_owned()));
    }

    /// Forgets every object of a pool that is gone: all that begin with its name.
    pub fn forget_pool(&self, namespace: &str, pool: &str) {
        self.objects.lock().retain(|(_, at, name), _| {
            let of_pool = name == pool || name.strip_prefix(pool).is_some_and(|rest| rest.starts_with('-'));
            at != namespace || !of_pool
        });
    }
}

/// What to do about an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It is as it should be.
    Keep,
    /// Apply it.
    Apply,
    /// The store may be behind: ask the API server.
    Look,
    /// Somebody else's.
    Conflict,
}

/// Whose object it would be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner<'a> {
    pub(super) uid: &'a str,
    pub(super) pool: &'a str,
    /// Whether an ownerless object with our labels is ours: claims, which may outlive their pool.
    pub(super) adopts: bool,
}

/// Decides by what is known of the object that has the name, `fresh` if the API server itself just said so.
pub(super) fn step(
    live: Option<&ObjectMeta>,
    remembered: Option<&Remembered>,
    payload: &ObjectMeta,
    hash: &str,
    owner: Owner<'_>,
    fresh: bool,
) -> Step {
    let Some(live) = live else {
        return if fresh { Step::Apply } else { Step::Look };
    };
    if !is_ours(live, owner) {
        return if fresh { Step::Conflict } else { Step::Look };
    }
    if live.deletion_timestamp.is_some() {
        return Step::Keep;
    }
    let noted = live
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get(annotation::APPLIED))
        .is_some_and(|noted| noted == hash);
    let labelled = payload.labels.as_ref().is_none_or(|wanted| {
        let has = live.labels.as_ref();
        wanted
            .iter()
            .all(|(key, value)| has.and_then(|has| has.get(key)) == Some(value))
    });
    let same = remembered.is_some_and(|known| *known == Remembered::of(hash, live));
    if noted && labelled && same {
        return Step::Keep;
    }
    let applied_by_us = remembered.is_some_and(|known| known.hash == hash && known.uid == live.uid);
    if applied_by_us && !fresh {
        Step::Look
    } else {
        Step::Apply
    }
}

/// Ours by owner reference, or, where that may be absent, by its labels.
fn is_ours(live: &ObjectMeta, owner: Owner<'_>) -> bool {
    let owners = live.owner_references.as_deref().unwrap_or_default();
    if owners.iter().any(|reference| reference.uid == owner.uid) {
        return true;
    }
    let labels = live.labels.as_ref();
    let says = |key: &str, value: &str| {
        labels
            .and_then(|labels| labels.get(key))
            .is_some_and(|is| is == value)
    };
    owner.adopts
        && owners.is_empty()
        && says(label::POOL, owner.pool)
        && says(label::MANAGED_BY, label::MANAGED_BY_VALUE)
}
