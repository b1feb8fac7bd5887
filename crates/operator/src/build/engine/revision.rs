//! Which builder made the engines' template.

use crate::build::BuildError;

/// A builder of the engines' pod template. Each stays as it is for ever, because a pod template that differs by one
/// byte replaces every engine; what changes comes as a new one. A pool moves to the newest when its spec changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateRevision {
    /// [`super::v1`].
    V1,
}

impl TemplateRevision {
    /// What new and changed pools are built with.
    pub const NEWEST: Self = Self::V1;

    /// As the status and the template's annotation write it.
    pub const fn number(self) -> i32 {
        match self {
            Self::V1 => 1,
        }
    }
}

impl TryFrom<i32> for TemplateRevision {
    type Error = BuildError;

    fn try_from(number: i32) -> Result<Self, BuildError> {
        match number {
            1 => Ok(Self::V1),
            unknown => Err(BuildError::UnknownRevision(unknown)),
        }
    }
}
