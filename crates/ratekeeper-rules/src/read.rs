//! Reads rules from a file or a folder.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use hashbrown::HashSet;

use crate::diagnostic::Excerpt;
use crate::{Diagnostic, Diagnostics, Options, Position, Severity, Source, TestFile, load};

/// Options for reading a folder.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadOptions {
    /// Reads every file, whatever its name, as envoyproxy/ratelimit does; otherwise only `*.yaml`
    /// and `*.yml`.
    pub every_file: bool,
}

/// The reason why rules could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file system returned an error.
    #[error("cannot read {}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The file system's error.
        source: io::Error,
    },
    /// Some files cannot be read, are not text, or are larger than 16 MiB.
    #[error("{0}")]
    Unreadable(Unreadable),
    /// A folder has more than 10,000 files, or folders nested more than 64 deep.
    #[error("{} has more than 10,000 files, or is more than 64 folders deep", path.display())]
    TooMany {
        /// The folder to be read.
        path: PathBuf,
    },
}

/// Files that could not be read as text, and the other files that could.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Unreadable {
    /// One error for each unreadable file, in the order of files; at least one in a [`ReadError`].
    pub errors: Vec<Diagnostic>,
    /// The files that could be read.
    pub sources: Vec<Source>,
}

impl Unreadable {
    /// All errors at once: those of these files, and those of the rules in the other files.
    #[must_use]
    pub fn all(self, options: &Options) -> Diagnostics {
        let mut all = Diagnostics {
            errors: self.errors,
            warnings: Vec::new(),
        };
        if let Err(others) = load(&self.sources, options) {
            all.errors.extend(others.errors);
            all.warnings = others.warnings;
        }
        all.errors.sort_by(|one, other| one.place.cmp(&other.place));
        all
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.errors.iter().enumerate() {
            let gap = if index > 0 { "\n\n" } else { "" };
            write!(f, "{gap}{error}")?;
        }
        Ok(())
    }
}

/// Larger files are refused: no one could review such rules, and a mistaken path may name anything.
const FILE_BYTES_MAX: u64 = 16 << 20;
const FILES_MAX: usize = 10_000;
const FOLDERS_DEEP_MAX: usize = 64;

/// Reads `path`: that file, whatever its name, or the files of that folder and its subfolders,
/// sorted by path.
///
/// In folders, names that start with a dot are skipped (Kubernetes keeps the real files of a
/// ConfigMap in `..data`), and so are [files of tests](TestFile::is_one). Symbolic links are followed, to each folder once.
///
/// # Errors
/// If the folder or a file cannot be read, a file is not text (UTF-8, or UTF-16 with its byte order
/// mark), or is far larger than rules are. [`Unreadable`] has the files that could be read.
pub fn read(path: &Path, options: &ReadOptions) -> Result<Vec<Source>, ReadError> {
    if !metadata(path)?.is_dir() {
        return texts(vec![path.to_owned()]);
    }
    let is_rules = |source: &Source| !TestFile::is_one(source);
    match texts(Folder::files(path, options.every_file)?) {
        Ok(mut sources) => {
            sources.retain(is_rules);
            Ok(sources)
        }
        Err(ReadError::Unreadable(mut read)) => {
            read.sources.retain(is_rules);
            Err(ReadError::Unreadable(read))
        }
        Err(error) => Err(error),
    }
}

/// Reads tests of rules at `path`: that file, whatever its name, or the files of that folder and its subfolders whose names
/// [tests have](TestFile::has_name), sorted by path.
///
/// # Errors
/// As those of [`read`].
pub fn read_tests(path: &Path) -> Result<Vec<Source>, ReadError> {
    if !metadata(path)?.is_dir() {
        return texts(vec![path.to_owned()]);
    }
    let mut files = Folder::files(path, false)?;
    files.retain(|file| TestFile::has_name(&file.display().to_string()));
    let mut sources = texts(files)?;
    sources.retain(TestFile::is_one);
    Ok(sources)
}

/// Reads files, each to its end.
fn texts(files: Vec<PathBuf>) -> Result<Vec<Source>, ReadError> {
    let mut sources = Vec::with_capacity(files.len());
    let mut errors = Vec::new();
    for file in files {
        let name = file.display().to_string();
        match bytes_of(&file).and_then(|bytes| decode(&bytes)) {
            Ok(text) => sources.push(Source { name, text }),
            Err(wrong) => errors.push(wrong.into_diagnostic(&name)),
        }
    }
    if errors.is_empty() {
        return Ok(sources);
    }
    Err(ReadError::Unreadable(Unreadable { errors, sources }))
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> ReadError {
    |source| ReadError::Io {
        path: path.to_owned(),
        source,
    }
}

fn metadata(path: &Path) -> Result<fs::Metadata, ReadError> {
    fs::metadata(path).map_err(io_error(path))
}

struct Folder<'p> {
    root: &'p Path,
    every_file: bool,
    files: Vec<PathBuf>,
    /// Canonical paths of the folders listed so far: a link to a folder above would never end.
    seen: HashSet<PathBuf>,
}

impl<'p> Folder<'p> {
    /// The files in `root` and its subfolders, sorted.
    fn files(root: &'p Path, every_file: bool) -> Result<Vec<PathBuf>, ReadError> {
        let mut folder = Self {
            root,
            every_file,
            files: Vec::new(),
            seen: HashSet::new(),
        };
        folder.list(root, 0)?;
        folder.files.sort();
        Ok(folder.files)
    }

    fn list(&mut self, folder: &Path, depth: usize) -> Result<(), ReadError> {
        let real = fs::canonicalize(folder).map_err(io_error(folder))?;
        if !self.seen.insert(real) {
            return Ok(());
        }
        if depth > FOLDERS_DEEP_MAX {
            return Err(self.too_many());
        }
        let mut entries = Vec::new();
        for entry in fs::read_dir(folder).map_err(io_error(folder))? {
            entries.push(entry.map_err(io_error(folder))?.path());
        }
        // The order of the file system must not decide which of two links to one folder is followed.
        entries.sort();
        for path in entries {
            self.entry(path, depth)?;
        }
        Ok(())
    }

    fn entry(&mut self, path: PathBuf, depth: usize) -> Result<(), ReadError> {
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        if name.is_none_or(|name| name.starts_with('.')) {
            return Ok(());
        }
        let is_rules = path
            .extension()
            .is_some_and(|end| end == "yaml" || end == "yml");
        let found = match fs::metadata(&path) {
            Ok(found) => found,
            // A dangling link with another extension would not have been read anyway.
            Err(_) if !self.every_file && !is_rules => return Ok(()),
            Err(error) => return Err(io_error(&path)(error)),
        };
        if found.is_dir() {
            return self.list(&path, depth + 1);
        }
        // Reading a pipe or a socket would never end.
        if found.is_file() && (self.every_file || is_rules) {
            if self.files.len() >= FILES_MAX {
                return Err(self.too_many());
            }
            self.files.push(path);
        }
        Ok(())
    }

    fn too_many(&self) -> ReadError {
        ReadError::TooMany {
            path: self.root.to_owned(),
        }
    }
}

fn bytes_of(path: &Path) -> Result<Vec<u8>, NotText> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(|error| NotText::whole(format!("this cannot be read: {error}"), None))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let message = "this is larger than 16 MiB".to_owned();
        return Err(NotText::whole(message, Some("split it into several files")));
    }
    Ok(bytes)
}

/// The position at which a file stops being text, and the reason.
struct NotText {
    line: u32,
    column: u32,
    /// The line, with marks for the bytes that cannot be read.
    text: String,
    message: String,
    help: Option<&'static str>,
}

/// The fix for bytes that are not text.
const SAVE_AS_UTF8: Option<&str> = Some("save the file as UTF-8");

fn decode(bytes: &[u8]) -> Result<String, NotText> {
    match bytes {
        [0xff, 0xfe, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => utf16(rest, u16::from_be_bytes),
        _ => utf8(bytes),
    }
}

fn utf8(bytes: &[u8]) -> Result<String, NotText> {
    let error = match std::str::from_utf8(bytes) {
        Ok(text) => return Ok(text.to_owned()),
        Err(error) => error,
    };
    let (good, bad) = bytes.split_at(error.valid_up_to());
    let good = String::from_utf8_lossy(good);
    let line_start = good.rfind('\n').map_or(0, |at| at + 1);
    let rest = bad.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let before = &good[line_start..];
    Err(NotText {
        line: u32::try_from(good.matches('\n').count())
            .unwrap_or(u32::MAX)
            .saturating_add(1),
        column: u32::try_from(before.chars().count())
            .unwrap_or(u32::MAX)
            .saturating_add(1),
        text: format!("{before}{}", String::from_utf8_lossy(rest)),
        message: format!(
            "this is not UTF-8: byte 0x{:02x}",
            bad.first().copied().unwrap_or_default()
        ),
        help: SAVE_AS_UTF8,
    })
}

/// Decodes UTF-16, which the parser of envoyproxy/ratelimit also reads if the text starts with a
/// byte order mark.
fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Result<String, NotText> {
    let (pairs, odd) = bytes.as_chunks::<2>();
    let text: Result<String, _> = char::decode_utf16(pairs.iter().copied().map(unit)).collect();
    match text {
        Ok(text) if odd.is_empty() => Ok(text),
        _ => {
            let message = "this starts like UTF-16, and is none".to_owned();
            Err(NotText::whole(message, SAVE_AS_UTF8))
        }
    }
}

impl NotText {
    /// An error about the file as a whole.
    const fn whole(message: String, help: Option<&'static str>) -> Self {
        Self {
            line: 1,
            column: 1,
            text: String::new(),
            message,
            help,
        }
    }

    fn into_diagnostic(self, name: &str) -> Diagnostic {
        Diagnostic {
            severity: Severity::Error,
            place: Position {
                file: name.into(),
                line: self.line,
                column: self.column,
            },
            message: self.message,
            help: self.help.map(str::to_owned),
            excerpt: Excerpt::new(&self.text, self.column, 1),
        }
    }
}
