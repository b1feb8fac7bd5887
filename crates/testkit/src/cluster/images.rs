//! Names of the images that `e2e/cluster/images.sh` gave to the nodes.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;

/// Full names, tag included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Images {
    /// Operator, picker, drain tool and command line.
    pub lmetric: String,
    /// The same under a later tag.
    pub lmetric_next: String,
    /// The simulated engine, as vLLM's image.
    pub vllm: String,
    /// The same under a later version.
    pub vllm_next: String,
    /// Envoy.
    pub envoy: String,
    /// The same under a later tag.
    pub envoy_next: String,
}

impl Images {
    /// Reads `NAME=IMAGE` lines.
    pub fn read(file: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("{}: no images; e2e/cluster/images.sh makes them", file.display()))?;
        Self::parse(&text).with_context(|| file.display().to_string())
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let lines: BTreeMap<_, _> = text.lines().filter_map(|line| line.split_once('=')).collect();
        let image = |name: &str| {
            lines
                .get(name)
                .map(|image| (*image).to_owned())
                .with_context(|| format!("no {name}"))
        };
        Ok(Self {
            lmetric: image("LMETRIC_IMAGE")?,
            lmetric_next: image("LMETRIC_IMAGE_NEXT")?,
            vllm: image("VLLM_IMAGE")?,
            vllm_next: image("VLLM_IMAGE_NEXT")?,
            envoy: image("ENVOY_IMAGE")?,
            envoy_next: image("ENVOY_IMAGE_NEXT")?,
        })
    }

    /// Repository and tag of an image.
    pub fn split(image: &str) -> (&str, &str) {
        image.rsplit_once(':').unwrap_or((image, "latest"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_image_must_be_named() {
        let text = "LMETRIC_IMAGE=e2e.local/lmetric:1\nVLLM_IMAGE=v:2\nVLLM_IMAGE_NEXT=v:3\nENVOY_IMAGE=e:4\n\
                    LMETRIC_IMAGE_NEXT=l:5\nENVOY_IMAGE_NEXT=e:6\n";
        let images = Images::parse(text).unwrap();
        assert_eq!(Images::split(&images.lmetric), ("e2e.local/lmetric", "1"));
        assert_eq!(images.vllm_next, "v:3");
        assert_eq!(
            (images.lmetric_next.as_str(), images.envoy_next.as_str()),
            ("l:5", "e:6")
        );
        let error = Images::parse("VLLM_IMAGE=v:2\n").unwrap_err();
        assert_eq!(error.to_string(), "no LMETRIC_IMAGE");
    }
}
