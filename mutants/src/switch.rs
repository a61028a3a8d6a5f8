//! The switches in the changed code.

/// The environment variable with the number of the change that is on.
pub(crate) const CHANGE: &str = "RATEKEEPER_MUTANT";

/// The environment variable with the folder where each process leaves a file with the numbers of the switches that it
/// comes by, each in four bytes.
pub(crate) const REACHED: &str = "RATEKEEPER_MUTANTS_REACHED";

/// The function behind the conditions.
pub(crate) const NAME: &str = "__is_changed";

/// The condition that is true if a change is on.
pub(crate) fn condition(id: u32) -> String {
    format!("crate::{NAME}({id})")
}

/// The text of the function behind the conditions, for the root of the crate.
///
/// It does not allocate after its first call, since some tests count allocations.
pub(crate) fn function(changes: usize) -> String {
    FUNCTION
        .replace("LENGTH", &(changes + 1).to_string())
        .replace("CHANGE_VARIABLE", CHANGE)
        .replace("REACHED_VARIABLE", REACHED)
}

const FUNCTION: &str = r#"
#[doc(hidden)]
#[inline(never)]
pub(crate) fn __is_changed(id: u32) -> bool {
    use std::sync::{OnceLock, atomic::{AtomicBool, Ordering}};
    static ON: OnceLock<u32> = OnceLock::new();
    static REACHED: OnceLock<Option<std::fs::File>> = OnceLock::new();
    static SEEN: [AtomicBool; LENGTH] = [const { AtomicBool::new(false) }; LENGTH];
    let on = *ON.get_or_init(|| {
        let on = std::env::var("CHANGE_VARIABLE");
        on.ok().and_then(|on| on.parse().ok()).unwrap_or(0)
    });
    if on == 0 && !SEEN[id as usize].swap(true, Ordering::Relaxed) {
        let file = REACHED.get_or_init(|| {
            let folder = std::env::var_os("REACHED_VARIABLE")?;
            let path = std::path::Path::new(&folder).join(std::process::id().to_string());
            std::fs::OpenOptions::new().append(true).create(true).open(path).ok()
        });
        if let Some(mut file) = file.as_ref() {
            let _ = std::io::Write::write_all(&mut file, &id.to_le_bytes());
        }
    }
    on == id
}
"#;
