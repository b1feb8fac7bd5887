//! Which names the engines serve.

use std::{collections::BTreeMap, sync::Arc};

use crate::scrape::models::ModelCard;

/// One name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// It is a LoRA adapter on every engine that lists it.
    pub adapter: bool,
    /// Tokenizer group of the engines that list it.
    pub group: Arc<str>,
    /// Some engine whose list is known does not serve it: only those that do are candidates.
    pub partial: bool,
}

/// All names, from the lists read last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalog {
    names: BTreeMap<String, Listed>,
}

impl Catalog {
    /// From the lists of engines, each with its tokenizer group.
    pub fn of<'a>(lists: impl IntoIterator<Item = (&'a Arc<str>, Arc<[ModelCard]>)>) -> Self {
        let mut names: BTreeMap<String, (Listed, usize)> = BTreeMap::new();
        let mut engines = 0;
        for (group, cards) in lists {
            engines += 1;
            for ModelCard { id, adapter } in &*cards {
                let (listed, count) = names.entry(id.clone()).or_insert_with(|| {
                    let listed = Listed {
                        adapter: true,
                        group: group.clone(),
                        partial: false,
                    };
                    (listed, 0)
                });
                listed.adapter &= *adapter;
                *count += 1;
            }
        }
        let names = names
            .into_iter()
            .map(|(name, (mut listed, count))| {
                listed.partial = count < engines;
                (name, listed)
            })
            .collect();
        Self { names }
    }

    /// What is known of a name.
    pub fn get(&self, name: &str) -> Option<&Listed> {
        self.names.get(name)
    }

    /// All names, sorted; at most `most`.
    pub fn names(&self, most: usize) -> Vec<String> {
        self.names.keys().take(most).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cards(names: &[(&str, bool)]) -> Arc<[ModelCard]> {
        names
            .iter()
            .map(|(id, adapter)| ModelCard {
                id: (*id).to_owned(),
                adapter: *adapter,
            })
            .collect()
    }

    #[test]
    fn a_name_that_some_engines_lack_is_partial() {
        let group: Arc<str> = "m".into();
        let catalog = Catalog::of([
            (&group, cards(&[("m", false), ("sql", true)])),
            (&group, cards(&[("m", false)])),
        ]);
        let get = |name: &str| catalog.get(name).map(|listed| (listed.adapter, listed.partial));
        assert_eq!(get("m"), Some((false, false)));
        assert_eq!(get("sql"), Some((true, true)));
        assert_eq!(get("other"), None);
        assert_eq!(catalog.names(9), ["m", "sql"]);
    }
}
