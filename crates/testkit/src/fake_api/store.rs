//! Objects by path, with the rules by which an API server changes them.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use tokio::sync::watch;

use super::place::Place;

/// Why a request is refused.
#[derive(Debug)]
pub(super) struct Wrong {
    pub(super) code: u16,
    pub(super) reason: String,
    pub(super) message: String,
}

impl Wrong {
    pub(super) fn new(code: u16, reason: &str, message: &str) -> Self {
        Self {
            code,
            reason: reason.to_owned(),
            message: message.to_owned(),
        }
    }

    pub(super) fn not_found(path: &str) -> Self {
        Self::new(404, "NotFound", &format!("{path} not found"))
    }
}

/// One change, as a watch shows it.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) version: u64,
    pub(super) place: Place,
    /// ADDED, MODIFIED, DELETED or ERROR.
    pub(super) kind: &'static str,
    pub(super) object: Value,
}

/// A watch: what it shows now, and where the further changes are.
pub(super) struct Watching {
    pub(super) place: Place,
    pub(super) first: Vec<Value>,
    pub(super) seen: u64,
    pub(super) changes: watch::Receiver<Vec<Change>>,
}

pub(super) struct Store {
    objects: BTreeMap<String, (Place, Value)>,
    /// What each field manager applied last, by path and manager.
    applied: BTreeMap<(String, String), Value>,
    version: u64,
    changes: watch::Sender<Vec<Change>>,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            applied: BTreeMap::new(),
            version: 100,
            changes: watch::Sender::new(Vec::new()),
        }
    }
}

impl Store {
    pub(super) fn get(&self, path: &str) -> Option<&Value> {
        self.objects.get(path).map(|(_, object)| object)
    }

    pub(super) fn paths(&self) -> Vec<String> {
        self.objects.keys().cloned().collect()
    }

    pub(super) fn list(&self, list: &Place, selector: &str) -> Value {
        let items: Vec<_> = self
            .items(list)
            .filter(|object| selects(selector, object))
            .cloned()
            .collect();
        json!({
            "kind": "List", "apiVersion": list.api_version(),
            "metadata": {"resourceVersion": self.version.to_string()}, "items": items,
        })
    }

    fn items(&self, list: &Place) -> impl Iterator<Item = &Value> {
        self.objects
            .values()
            .filter(|(place, _)| list.lists(place))
            .map(|(_, object)| object)
    }

    pub(super) fn watch(&self, list: &Place, from: u64, snapshot: bool) -> Watching {
        let mut first = Vec::new();
        if snapshot {
            first.extend(
                self.items(list)
                    .map(|object| json!({"type": "ADDED", "object": object})),
            );
            first.push(json!({"type": "BOOKMARK", "object": {
                "kind": "Bookmark", "apiVersion": list.api_version(),
                "metadata": {"resourceVersion": self.version.to_string(), "annotations": {"k8s.io/initial-events-end": "true"}},
            }}));
        }
        Watching {
            place: list.clone(),
            first,
            seen: if snapshot || from == 0 { self.version } else { from },
            changes: self.changes.subscribe(),
        }
    }

    pub(super) fn create(&mut self, place: &Place, object: Value) -> Result<Value, Wrong> {
        let mut place = place.clone();
        if place.name.is_empty() {
            let name = object["metadata"]["name"].as_str();
            // as the server does for Events: a name that nobody else has
            place.name = name.map_or_else(
                || {
                    format!(
                        "{}{}",
                        object["metadata"]["generateName"].as_str().unwrap_or("x-"),
                        self.version + 1
                    )
                },
                str::to_owned,
            );
        }
        if self.objects.contains_key(&place.path()) {
            let text = format!("{} {:?} already exists", place.plural, place.name);
            return Err(Wrong::new(409, "AlreadyExists", &text));
        }
        Ok(self.put(&place, object))
    }

    pub(super) fn replace(&mut self, place: &Place, object: Value) -> Result<Value, Wrong> {
        let current = self
            .get(&place.path())
            .ok_or_else(|| Wrong::not_found(&place.path()))?;
        let version = &object["metadata"]["resourceVersion"];
        if version.is_string() && *version != current["metadata"]["resourceVersion"] {
            return Err(Wrong::new(
                409,
                "Conflict",
                "the object has been modified; please apply your changes to the latest version",
            ));
        }
        let object = within(place, current.clone(), object);
        Ok(self.put(place, object))
    }

    pub(super) fn merge(&mut self, place: &Place, patch: &Value) -> Result<Value, Wrong> {
        let current = self
            .get(&place.path())
            .ok_or_else(|| Wrong::not_found(&place.path()))?;
        let mut merged = current.clone();
        overlay(&mut merged, patch);
        let object = within(place, current.clone(), merged);
        Ok(self.put(place, object))
    }

    /// What the manager applied before and leaves out now is dropped; lists are replaced whole.
    pub(super) fn apply(&mut self, place: &Place, patch: Value, manager: &str) -> Result<Value, Wrong> {
        let path = place.path();
        if manager.is_empty() {
            return Err(Wrong::new(
                422,
                "Invalid",
                "fieldManager is required for apply patch",
            ));
        }
        let key = (format!("{path}/{}", place.subresource), manager.to_owned());
        let before = self.applied.insert(key, patch.clone()).unwrap_or_default();
        let object = match self.get(&path) {
            None if !place.subresource.is_empty() => return Err(Wrong::not_found(&path)),
            None => patch,
            Some(current) => {
                let mut merged = current.clone();
                drop_left_out(&mut merged, &before, &patch);
                overlay(&mut merged, &patch);
                within(place, current.clone(), merged)
            }
        };
        Ok(self.put(place, object))
    }

    pub(super) fn delete(&mut self, place: &Place) -> Result<Value, Wrong> {
        let path = place.path();
        let (place, object) = self
            .objects
            .remove(&path)
            .ok_or_else(|| Wrong::not_found(&path))?;
        self.applied.retain(|(key, _), _| !key.starts_with(&path));
        self.version += 1;
        self.changed(place, "DELETED", object.clone());
        Ok(object)
    }

    pub(super) fn remove_and_expire(&mut self, place: &Place) {
        let Some((place, _)) = self.objects.remove(&place.path()) else {
            return;
        };
        self.version += 1;
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "too old resource version", "reason": "Expired", "code": 410,
        });
        self.changed(place, "ERROR", status);
    }

    /// Stores it, with the server's own metadata; nothing changes if it is equal.
    pub(super) fn put(&mut self, place: &Place, mut object: Value) -> Value {
        let path = place.path();
        let current = self.get(&path).cloned();
        if !object["metadata"].is_object() {
            object["metadata"] = Value::Object(Map::new());
        }
        let old = current
            .as_ref()
            .map_or(&Value::Null, |object| &object["metadata"]);
        let (uid, born) = (old["uid"].clone(), old["creationTimestamp"].clone());
        let (version, generation) = (old["resourceVersion"].clone(), old["generation"].as_u64());
        let metadata = &mut object["metadata"];
        metadata["name"] = place.name.clone().into();
        if !place.namespace.is_empty() {
            metadata["namespace"] = place.namespace.clone().into();
        }
        let given = metadata["uid"].as_str().map(str::to_owned);
        metadata["uid"] = match uid {
            Value::Null => given
                .unwrap_or_else(|| format!("uid-{}", self.version + 1))
                .into(),
            uid => uid,
        };
        metadata["creationTimestamp"] = match born {
            Value::Null => "2026-01-01T00:00:00Z".into(),
            born => born,
        };
        metadata["resourceVersion"] = version;
        metadata["generation"] = generation.unwrap_or(1).into();
        if let Some(current) = &current {
            if *current == object {
                return object;
            }
            if current["spec"] != object["spec"] {
                object["metadata"]["generation"] = (generation.unwrap_or(1) + 1).into();
            }
        }
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        let mut place = place.clone();
        place.subresource.clear();
        self.objects.insert(path, (place.clone(), object.clone()));
        self.changed(
            place,
            if current.is_some() { "MODIFIED" } else { "ADDED" },
            object.clone(),
        );
        object
    }

    fn changed(&self, place: Place, kind: &'static str, object: Value) {
        let version = self.version;
        self.changes.send_modify(|changes| {
            changes.push(Change {
                version,
                place,
                kind,
                object,
            });
        });
    }
}

/// A write to the status subresource changes the status alone, one to the object everything else.
fn within(place: &Place, mut current: Value, mut new: Value) -> Value {
    if place.subresource == "status" {
        current["status"] = new["status"].take();
        return current;
    }
    match current["status"].take() {
        Value::Null => {}
        status => new["status"] = status,
    }
    new
}

fn overlay(target: &mut Value, patch: &Value) {
    let (Value::Object(into), Value::Object(from)) = (&mut *target, patch) else {
        *target = patch.clone();
        return;
    };
    for (key, value) in from {
        if value.is_null() {
            into.remove(key);
        } else {
            overlay(into.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

fn drop_left_out(target: &mut Value, before: &Value, now: &Value) {
    let (Value::Object(into), Value::Object(before)) = (target, before) else {
        return;
    };
    for (key, value) in before {
        match now.get(key) {
            None => drop(into.remove(key)),
            Some(now) => {
                if let Some(inner) = into.get_mut(key) {
                    drop_left_out(inner, value, now);
                }
            }
        }
    }
}

/// `a=b,c` in the query's encoding: equality and existence.
fn selects(selector: &str, object: &Value) -> bool {
    let selector = selector
        .replace("%3D", "=")
        .replace("%2C", ",")
        .replace("%2F", "/");
    selector.split(',').filter(|term| !term.is_empty()).all(|term| {
        let (key, value) = term
            .split_once('=')
            .map_or((term, None), |(key, value)| (key, Some(value)));
        let label = object["metadata"]["labels"][key].as_str();
        value.map_or(label.is_some(), |value| {
            label == Some(value.trim_start_matches('='))
        })
    })
}
