//! The engines of a simulation: which GPU, which model, how much cache; and whether a trace can run on them at all.

use std::path::{Path, PathBuf};

use lmetric_engine::{EngineConfig, Gpu, Model};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Most engines of one fleet.
const MOST_ENGINES: u32 = 4_096;

/// Why a fleet cannot be had.
#[derive(Debug, Error)]
pub enum FleetError {
    /// A GPU that nobody knows.
    #[error("no GPU is called {name:?}; use one of {known}, or a file with --gpu-file", known = Gpu::PROFILES.join(", "))]
    Gpu {
        /// As it was written.
        name: String,
    },
    /// A model that nobody knows.
    #[error("no model is called {name:?}; use one of {known}, or a file with --model-file", known = Model::PROFILES.join(", "))]
    Model {
        /// As it was written.
        name: String,
    },
    /// A count that is none.
    #[error(
        "{text:?} is no count of engines; write a number from 1 to {MOST_ENGINES}, as in --engines 16 or --gpu H20:12,H100:4"
    )]
    Count {
        /// As it was written.
        text: String,
    },
    /// A profile that cannot be read.
    #[error(
        "{path}: {problem}; give a TOML file with the fields of a profile (lmetric simulate --print-profile shows one)"
    )]
    File {
        /// File.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// A number that makes no engine.
    #[error("{profile}: {field} is {value}; give a number above 0")]
    Number {
        /// Which profile.
        profile: String,
        /// Which field.
        field: &'static str,
        /// Its value.
        value: f64,
    },
    /// The weights leave no room.
    #[error(
        "{model} on {gpu}: only {tokens} tokens of KV cache fit; raise --utilization or use a larger GPU"
    )]
    NoRoom {
        /// Model.
        model: String,
        /// GPU.
        gpu: String,
        /// Tokens that fit.
        tokens: u64,
    },
    /// A request that fits on no engine of some kind.
    #[error(
        "line {line} of the trace needs {needed} tokens of KV cache and an engine on {gpu} has {room}; leave longer requests out with --max-model-len {room}"
    )]
    TooLong {
        /// Line.
        line: u32,
        /// Prompt and answer.
        needed: u64,
        /// GPU.
        gpu: String,
        /// Tokens that fit.
        room: u64,
    },
}

/// Engines of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// How many.
    pub count: u32,
    /// Each of them.
    pub engine: EngineConfig,
}

/// Engines by kind, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FleetSpec {
    /// At least one.
    pub parts: Vec<Part>,
}

/// What a person asks for.
#[derive(Clone, Debug)]
pub struct FleetRequest<'a> {
    /// Engines, where `gpu` gives no counts.
    pub engines: u32,
    /// `H20`, or `H20:12,H100:4`.
    pub gpu: &'a str,
    /// TOML of a GPU instead.
    pub gpu_file: Option<&'a Path>,
    /// Model profile.
    pub model: &'a str,
    /// TOML of a model instead.
    pub model_file: Option<&'a Path>,
    /// Share of the GPU's memory.
    pub utilization: f64,
    /// Tokens per step.
    pub max_num_batched_tokens: u32,
    /// Requests per step.
    pub max_num_seqs: u32,
}

impl FleetSpec {
    /// Reads profiles and checks them.
    pub fn new(request: &FleetRequest<'_>) -> Result<Self, FleetError> {
        let model = match request.model_file {
            Some(path) => profile::<Model>(path)?,
            None => Model::profile(request.model).ok_or_else(|| FleetError::Model {
                name: request.model.to_owned(),
            })?,
        };
        let kinds = match request.gpu_file {
            Some(path) => vec![(profile::<Gpu>(path)?, count(&request.engines.to_string())?)],
            None => request
                .gpu
                .split(',')
                .map(|kind| {
                    let (name, engines) = match kind.split_once(':') {
                        Some((name, engines)) => (name, count(engines)?),
                        None => (kind, count(&request.engines.to_string())?),
                    };
                    let gpu = Gpu::profile(name.trim()).ok_or_else(|| FleetError::Gpu {
                        name: name.trim().to_owned(),
                    })?;
                    Ok((gpu, engines))
                })
                .collect::<Result<Vec<_>, FleetError>>()?,
        };
        let parts = kinds
            .into_iter()
            .map(|(gpu, count)| {
                check_gpu(&gpu)?;
                check_model(&model)?;
                let tokens = gpu.kv_tokens(&model, request.utilization);
                let mut engine = EngineConfig::new(gpu, model.clone(), request.utilization);
                engine.max_num_batched_tokens = request.max_num_batched_tokens;
                engine.max_num_seqs = request.max_num_seqs;
                if tokens < u64::from(engine.block_size) * 2 {
                    return Err(FleetError::NoRoom {
                        model: model.name.clone(),
                        gpu: engine.gpu.name.clone(),
                        tokens,
                    });
                }
                Ok(Part { count, engine })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { parts })
    }

    /// Engines in all.
    pub fn engines(&self) -> u32 {
        self.parts.iter().map(|part| part.count).sum()
    }

    /// Every engine's configuration, in order.
    pub fn each(&self) -> impl Iterator<Item = &EngineConfig> {
        self.parts
            .iter()
            .flat_map(|part| std::iter::repeat_n(&part.engine, part.count as usize))
    }

    /// One share of the fleet, kind by kind: `part` of `of`, at least one engine where there is one.
    #[must_use]
    pub fn share(&self, part: u32, of: u32) -> Self {
        let parts = self.parts.iter().map(|kind| Part {
            count: (kind.count * part / of).max(1),
            engine: kind.engine.clone(),
        });
        Self {
            parts: parts.collect(),
        }
    }

    /// Refuses a request that would never fit on some engine.
    pub fn check(&self, line: u32, input_tokens: u32, output_tokens: u32) -> Result<(), FleetError> {
        // the last token is never computed
        let needed = u64::from(input_tokens) + u64::from(output_tokens.max(1)) - 1;
        for Part { engine, .. } in &self.parts {
            let room = u64::from(engine.usable_blocks()) * u64::from(engine.block_size);
            if needed > room {
                return Err(FleetError::TooLong {
                    line,
                    needed,
                    gpu: engine.gpu.name.clone(),
                    room,
                });
            }
        }
        Ok(())
    }
}

fn count(text: &str) -> Result<u32, FleetError> {
    let number = text.trim().parse().ok();
    number
        .filter(|count| (1..=MOST_ENGINES).contains(count))
        .ok_or_else(|| FleetError::Count {
            text: text.to_owned(),
        })
}

fn profile<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<T, FleetError> {
    let bad = |problem: String| FleetError::File {
        path: path.to_owned(),
        problem,
    };
    let text = std::fs::read_to_string(path).map_err(|error| bad(error.to_string()))?;
    toml::from_str(&text).map_err(|error| bad(error.to_string().trim().replace('\n', " ")))
}

fn positive(profile: &str, fields: &[(&'static str, f64)]) -> Result<(), FleetError> {
    match fields
        .iter()
        .find(|(_, value)| !(value.is_finite() && *value > 0.0))
    {
        None => Ok(()),
        Some((field, value)) => Err(FleetError::Number {
            profile: profile.to_owned(),
            field,
            value: *value,
        }),
    }
}

fn check_gpu(gpu: &Gpu) -> Result<(), FleetError> {
    positive(
        &gpu.name,
        &[
            ("flops", gpu.flops),
            ("bandwidth", gpu.bandwidth),
            ("memory", gpu.memory),
            ("gemm_efficiency", gpu.gemm_efficiency),
            ("moe_efficiency", gpu.moe_efficiency),
            ("attention_efficiency", gpu.attention_efficiency),
            ("weight_efficiency", gpu.weight_efficiency),
            ("kv_efficiency", gpu.kv_efficiency),
        ],
    )
}

fn check_model(model: &Model) -> Result<(), FleetError> {
    positive(
        &model.name,
        &[
            ("layers", model.layers),
            ("heads", model.heads),
            ("head_dim", model.head_dim),
            ("linear_params", model.linear_params),
            ("head_params", model.head_params),
            ("kv_bytes", model.kv_bytes),
            ("weight_bytes", model.weight_bytes),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: FleetRequest<'_> = FleetRequest {
        engines: 16,
        gpu: "H20",
        gpu_file: None,
        model: "qwen3-30b-a3b",
        model_file: None,
        utilization: 0.85,
        max_num_batched_tokens: 8_192,
        max_num_seqs: 256,
    };

    #[test]
    fn kinds_may_be_mixed_and_shared_out() {
        let fleet = FleetSpec::new(&FleetRequest {
            gpu: "H20:12,H100:6",
            model: "qwen2-7b",
            ..PLAIN
        });
        let fleet = fleet.unwrap();
        assert_eq!(fleet.engines(), 18);
        assert_eq!(fleet.each().filter(|engine| engine.gpu.name == "H100").count(), 6);
        let third = fleet.share(1, 3);
        assert_eq!((third.parts[0].count, third.parts[1].count), (4, 2));
    }

    #[test]
    fn an_impossible_fleet_is_refused_with_the_remedy() {
        let says = |request: FleetRequest<'_>| FleetSpec::new(&request).unwrap_err().to_string();
        for (request, remedy) in [
            (FleetRequest { engines: 0, ..PLAIN }, "from 1 to"),
            (FleetRequest { gpu: "H21", ..PLAIN }, "H20-3e"),
            (
                FleetRequest {
                    gpu: "H20:x",
                    ..PLAIN
                },
                "H20:12,H100:4",
            ),
            (
                FleetRequest {
                    model: "gpt",
                    ..PLAIN
                },
                "qwen2-7b",
            ),
            (
                FleetRequest {
                    utilization: 0.6,
                    ..PLAIN
                },
                "--utilization",
            ),
            (
                FleetRequest {
                    gpu_file: Some(Path::new("/nowhere.toml")),
                    ..PLAIN
                },
                "/nowhere.toml",
            ),
        ] {
            let text = says(request);
            assert!(text.contains(remedy), "{text}");
        }
        let fleet = FleetSpec::new(&PLAIN).unwrap();
        let error = fleet.check(7, 300_000, 10).unwrap_err().to_string();
        assert!(
            error.contains("line 7") && error.contains("--max-model-len"),
            "{error}"
        );
        assert!(fleet.check(7, 200_000, 10).is_ok());
    }

    #[test]
    fn a_profile_is_a_toml_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gpu.toml");
        std::fs::write(&path, toml::to_string(&Gpu::h100()).unwrap()).unwrap();
        let request = FleetRequest {
            gpu_file: Some(&path),
            model: "qwen2-7b",
            ..PLAIN
        };
        assert_eq!(FleetSpec::new(&request).unwrap().parts[0].engine.gpu, Gpu::h100());
        std::fs::write(&path, "name = \"x\"\nflop = 1.0").unwrap();
        let error = FleetSpec::new(&request).unwrap_err().to_string();
        assert!(error.contains("gpu.toml") && error.contains("flop"), "{error}");
    }
}
