//! Names of the policies, their typed parameters, and what they may ask of an engine model.
//!
//! One vocabulary for the picker's configuration (`policy: bailian`, `policy: {name: bailian, lambda: 0.55}`), for the
//! command line (`bailian(lambda=0.55)`) and for the scheduler, which holds what the names mean. Parameters have the
//! defaults of the policy's source; an unknown one is refused with the known ones named.

mod choice;
mod kind;
mod parameters;
mod step_model;

pub use choice::PolicyError;
pub use kind::PolicyKind;
pub use parameters::{
    Aibrix, Bailian, Crowd, Dynamo, EngineChoice, EngineName, GpuName, LlmD, LlmDTtft, Lmetric, Marginal,
    PolyServe, Preble, PrefixAffinity, Work,
};
pub use step_model::{EngineModel, PrefillChunk, StepModel};
