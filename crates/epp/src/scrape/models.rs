//! `/v1/models`: what an engine serves, adapters included.

use serde::Deserialize;

/// One model or adapter that an engine lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelCard {
    /// Name that requests use.
    pub id: String,
    /// It is a LoRA adapter.
    pub adapter: bool,
}

/// Most names that are kept of one engine.
const MOST: usize = 4_096;

/// Reads the answer of `/v1/models`.
pub fn parse(body: &[u8]) -> Result<Vec<ModelCard>, serde_json::Error> {
    #[derive(Deserialize)]
    struct List {
        data: Vec<Card>,
    }
    #[derive(Deserialize)]
    struct Card {
        id: String,
        #[serde(default)]
        parent: Option<String>,
    }
    let List { data } = serde_json::from_slice(body)?;
    Ok(data
        .into_iter()
        .take(MOST)
        .map(|Card { id, parent }| ModelCard {
            id,
            adapter: parent.is_some(),
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_captured_answer_names_the_model_and_its_adapters() {
        let body = include_bytes!("../../testdata/v1-models.json");
        let cards = parse(body).expect("parses");
        let names: Vec<(&str, bool)> = cards
            .iter()
            .map(|card| (card.id.as_str(), card.adapter))
            .collect();
        assert_eq!(names, [("tiny-qwen2", false), ("lora-a", true), ("lora-b", true)]);
    }
}
