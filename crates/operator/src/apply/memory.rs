//! What an object looked like after our last apply, so that nothing is written again.
//!
//! Lost at a restart, when each object is applied once more; the API server sees no change then and writes nothing.

use std::collections::HashMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use lmetric_api::pool::names::{FIELD_MANAGER, annotation, label};
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
    /// The same, of an object that has to get its owner back.
    Adopt,
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
    /// What makes an object ours that nobody controls.
    pub(super) adopts: Adopts,
}

/// What an object that has lost its owner has to show, besides our labels with this pool's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Adopts {
    /// Nothing more: a claim may outlive its pool, and backups bring it back without its history.
    Labelled,
    /// That this operator applied it: labels alone are easily copied with the rest of an object.
    Applied,
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
    let owned = is_owned(live, owner);
    if !owned && !is_left_to(live, owner) {
        // who applied an object is not kept in the store
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
    if !owned
        && payload
            .owner_references
            .as_ref()
            .is_some_and(|owners| !owners.is_empty())
    {
        return Step::Adopt;
    }
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

fn is_owned(live: &ObjectMeta, owner: Owner<'_>) -> bool {
    let owners = live.owner_references.as_deref().unwrap_or_default();
    owners.iter().any(|reference| reference.uid == owner.uid)
}

/// Whether it was this pool's, or that of an earlier one of the same name, and nobody's since.
fn is_left_to(live: &ObjectMeta, owner: Owner<'_>) -> bool {
    let owners = live.owner_references.as_deref().unwrap_or_default();
    if owners.iter().any(|reference| reference.controller == Some(true)) {
        return false;
    }
    let labels = live.labels.as_ref();
    let says = |key: &str, value: &str| {
        labels
            .and_then(|labels| labels.get(key))
            .is_some_and(|is| is == value)
    };
    if !says(label::POOL, owner.pool) || !says(label::MANAGED_BY, label::MANAGED_BY_VALUE) {
        return false;
    }
    match owner.adopts {
        Adopts::Labelled => true,
        Adopts::Applied => live.managed_fields.iter().flatten().any(|entry| {
            entry.manager.as_deref() == Some(FIELD_MANAGER) && entry.operation.as_deref() == Some("Apply")
        }),
    }
}
