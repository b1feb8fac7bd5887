//! Where lines go: standard output, or files that are rotated and bounded. Every file begins with the first line, so each can
//! be read alone.

use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
};

use lmetric_api::{ConfigError, Record};

/// Where a recording goes.
#[derive(Debug)]
pub enum Sink {
    /// Standard output; true once the first line was written.
    Stdout(bool),
    /// Files.
    Files(Files),
}

/// Rotated files.
#[derive(Debug)]
pub struct Files {
    path: PathBuf,
    max_bytes: u64,
    /// How many there may be.
    most: u32,
    /// The one being written, with its length.
    current: Option<(File, u64)>,
}

impl Sink {
    /// As configured; `None` when nothing is recorded.
    pub fn new(record: &Record) -> Option<Self> {
        match record {
            Record::Off => None,
            Record::Stdout => Some(Self::Stdout(false)),
            Record::File {
                path,
                max_bytes,
                files,
            } => Some(Self::Files(Files {
                path: path.clone(),
                max_bytes: *max_bytes,
                most: *files,
                current: None,
            })),
        }
    }

    /// Writes lines, each with its end; `first` goes before them where a file begins. How many were too long for a file.
    pub fn write(&mut self, first: &str, lines: &[String]) -> io::Result<u64> {
        match self {
            Self::Stdout(begun) => {
                let mut out = io::stdout().lock();
                if !std::mem::replace(begun, true) {
                    out.write_all(first.as_bytes())?;
                }
                for line in lines {
                    out.write_all(line.as_bytes())?;
                }
                out.flush()?;
                Ok(0)
            }
            Self::Files(files) => files.write(first, lines),
        }
    }
}

impl Files {
    fn write(&mut self, first: &str, lines: &[String]) -> io::Result<u64> {
        let mut too_long = 0;
        let mut text = String::new();
        for line in lines {
            if (first.len() + line.len()) as u64 > self.max_bytes {
                too_long += 1;
                continue;
            }
            let written = self
                .current
                .as_ref()
                .map(|(_, length)| length + text.len() as u64);
            if written.is_none_or(|written| written + line.len() as u64 > self.max_bytes) {
                self.flush(&mut text)?;
                self.rotate()?;
                text.push_str(first);
            }
            text.push_str(line);
        }
        self.flush(&mut text)?;
        Ok(too_long)
    }

    fn flush(&mut self, text: &mut String) -> io::Result<()> {
        let Some((file, length)) = &mut self.current else {
            return Ok(());
        };
        let written = file.write_all(text.as_bytes());
        *length += text.len() as u64;
        text.clear();
        if written.is_err() {
            // a line may be cut: begin a new file once that is possible
            self.current = None;
        }
        written
    }

    /// Begins a new file; what was there before, of an earlier process too, moves on by one, and the oldest goes.
    fn rotate(&mut self) -> io::Result<()> {
        self.current = None;
        for number in (1..self.most).rev() {
            match std::fs::rename(self.numbered(number - 1), self.numbered(number)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        self.current = Some((File::create(&self.path)?, 0));
        Ok(())
    }

    fn numbered(&self, number: u32) -> PathBuf {
        if number == 0 {
            return self.path.clone();
        }
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }
}

/// Whether files can be written where `record` says; `config` is named in the error.
pub fn check(record: &Record, config: &Path) -> Result<(), ConfigError> {
    let Record::File { path, .. } = record else {
        return Ok(());
    };
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let error = |problem: String, remedy: &str| ConfigError::new(config, "record.file", problem, remedy);
    if !folder.is_dir() {
        return Err(error(
            format!("{} is no folder", folder.display()),
            "create it, or write another path",
        ));
    }
    if path.exists() && !path.is_file() {
        return Err(error(
            format!("{} is no file", path.display()),
            "write the path of a file that may be replaced",
        ));
    }
    let mut probe = path.clone().into_os_string();
    probe.push(format!(".{}.probe", std::process::id()));
    File::create(&probe)
        .and_then(|_| std::fs::remove_file(&probe))
        .map_err(|cause| {
            error(
                format!("{} cannot be written to ({cause})", folder.display()),
                "give a folder that this user may write to",
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sink(path: &Path, max_bytes: u64, files: u32) -> Sink {
        Sink::new(&Record::File {
            path: path.to_owned(),
            max_bytes,
            files,
        })
        .unwrap()
    }

    fn read(folder: &Path) -> Vec<(String, String)> {
        let mut files: Vec<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| {
                let path = entry.unwrap().path();
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                (name, std::fs::read_to_string(path).unwrap())
            })
            .collect();
        files.sort();
        files
    }

    #[test]
    fn files_are_bounded_in_size_and_number_and_each_has_the_first_line() {
        let folder = tempfile::tempdir().unwrap();
        let mut sink = sink(&folder.path().join("r"), 10, 3);
        let lines: Vec<String> = (0..9).map(|n| format!("l{n}\n")).collect();
        for batch in lines.chunks(2) {
            assert_eq!(sink.write("h..\n", batch).unwrap(), 0);
        }
        let expected = [
            ("r", "h..\nl8\n"),
            ("r.1", "h..\nl6\nl7\n"),
            ("r.2", "h..\nl4\nl5\n"),
        ];
        let expected = expected.map(|(name, text)| (name.to_owned(), text.to_owned()));
        assert_eq!(read(folder.path()), expected);
    }

    #[test]
    fn what_an_earlier_process_wrote_is_kept_apart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r");
        std::fs::write(&path, "old\n").unwrap();
        sink(&path, 100, 2).write("h\n", &["a\n".to_owned()]).unwrap();
        let expected = [("r", "h\na\n"), ("r.1", "old\n")];
        assert_eq!(
            read(folder.path()),
            expected.map(|(name, text)| (name.to_owned(), text.to_owned()))
        );
    }

    #[test]
    fn a_line_that_fits_no_file_is_left_out_and_counted() {
        let folder = tempfile::tempdir().unwrap();
        let lines = ["a\n", "much too long\n", "b\n"].map(str::to_owned);
        assert_eq!(
            sink(&folder.path().join("r"), 8, 1).write("h\n", &lines).unwrap(),
            1
        );
        assert_eq!(read(folder.path()), [("r".to_owned(), "h\na\nb\n".to_owned())]);
    }

    #[test]
    fn one_file_is_begun_anew() {
        let folder = tempfile::tempdir().unwrap();
        let mut sink = sink(&folder.path().join("r"), 6, 1);
        let lines = ["a\n", "b\n", "c\n"].map(str::to_owned);
        sink.write("h\n", &lines).unwrap();
        assert_eq!(read(folder.path()), [("r".to_owned(), "h\nc\n".to_owned())]);
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_named_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let says = |path: PathBuf| {
            let record = Record::File {
                path,
                max_bytes: 1 << 20,
                files: 1,
            };
            check(&record, Path::new("picker.yaml")).map_err(|error| error.to_string())
        };
        assert_eq!(says(folder.path().join("r")), Ok(()));
        assert!(read(folder.path()).is_empty(), "nothing is left behind");
        let missing = says(folder.path().join("nowhere/r")).unwrap_err();
        assert!(
            missing.starts_with("picker.yaml: record.file: ") && missing.contains("is no folder; create it"),
            "{missing}"
        );
        let taken = says(folder.path().to_owned()).unwrap_err();
        assert!(taken.contains("is no file; write the path"), "{taken}");
        let refused = says("/proc/r".into()).unwrap_err();
        assert!(refused.contains("cannot be written to"), "{refused}");
    }
}
