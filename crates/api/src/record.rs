//! `record` as it stands in the picker's configuration.

use std::{ops::RangeInclusive, path::PathBuf};

use serde::Deserialize;

use crate::{
    ConfigError, Record,
    raw::{Check, Word, word},
};

/// A line of a long prompt takes a megabyte.
const BYTES: RangeInclusive<u64> = 1 << 20..=1 << 40;
const FILES: RangeInclusive<u32> = 1..=1_000;

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum RawTo {
    #[default]
    Off,
    Stdout,
    File,
}

impl Word for RawTo {
    const WORDS: &'static [(&'static str, Self)] =
        &[("Off", Self::Off), ("Stdout", Self::Stdout), ("File", Self::File)];
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(crate) struct RawRecord {
    #[serde(deserialize_with = "word")]
    to: RawTo,
    file: Option<PathBuf>,
    max_bytes: Option<u64>,
    files: Option<u32>,
}

impl RawRecord {
    pub(crate) fn validate(self, check: &Check<'_>) -> Result<Record, ConfigError> {
        let Self {
            to,
            file,
            max_bytes,
            files,
        } = self;
        let needless = [
            ("record.file", file.is_some()),
            ("record.maxBytes", max_bytes.is_some()),
            ("record.files", files.is_some()),
        ];
        if to != RawTo::File
            && let Some((field, _)) = needless.into_iter().find(|(_, is_written)| *is_written)
        {
            return Err(check.error(field, "is only used by to: File", "write to: File or remove it"));
        }
        match (to, file) {
            (RawTo::Off, _) => Ok(Record::Off),
            (RawTo::Stdout, _) => Ok(Record::Stdout),
            (RawTo::File, None) => Err(check.error(
                "record.file",
                "is missing",
                "to: File needs file, a path in a folder that the picker may write to",
            )),
            (RawTo::File, Some(file)) => {
                let max_bytes = max_bytes.unwrap_or(256 << 20);
                let files = files.unwrap_or(4);
                check.within("record.maxBytes", max_bytes, &BYTES)?;
                check.within("record.files", files, &FILES)?;
                Ok(Record::File {
                    path: check.path("record.file", file)?,
                    max_bytes,
                    files,
                })
            }
        }
    }
}
