//! The process and its build, under the names that Prometheus' client libraries use.

use std::fmt;
use std::fs;

use crate::figures::families::Families;
use crate::reload::ReloadStatus;

/// Clock ticks in a second, in which Linux tells CPU time to programs on every architecture that Rust's standard library
/// supports.
const TICKS_PER_SECOND: f64 = 100.0;

/// The process, as the kernel sees it. What it does not tell is left out.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct ProcessFigures {
    /// Seconds since 1970.
    pub(super) started_at: u64,
    cpu_seconds: Option<f64>,
    resident_bytes: Option<u64>,
    virtual_bytes: Option<u64>,
    open_fds: Option<u64>,
    max_fds: Option<u64>,
}

impl ProcessFigures {
    pub(super) fn read(started_at: u64) -> Self {
        let file = |name: &str| fs::read_to_string(format!("/proc/self/{name}")).ok();
        let status = file("status").unwrap_or_default();
        let limits = file("limits").unwrap_or_default();
        // The folder lists the descriptor that it is read by, too.
        let open = fs::read_dir("/proc/self/fd").map(|fds| fds.count().saturating_sub(1));
        Self {
            started_at,
            cpu_seconds: file("stat").as_deref().and_then(cpu_seconds),
            resident_bytes: kib_of(&status, "VmRSS:"),
            virtual_bytes: kib_of(&status, "VmSize:"),
            open_fds: open.ok().map(|count| count as u64),
            max_fds: max_fds(&limits),
        }
    }
}

/// User and system time of `/proc/self/stat`: the 14th and the 15th field. The second is the program's name in brackets,
/// which may contain anything.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / TICKS_PER_SECOND)
}

/// A line of `/proc/self/status` that is in KiB, in bytes.
fn kib_of(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1_024)
}

/// The soft limit of `/proc/self/limits`; absent if there is none.
fn max_fds(limits: &str) -> Option<u64> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Encodes the build, the last load of the rules, and the process.
pub(super) fn encode(
    process: &ProcessFigures,
    reloads: &ReloadStatus,
    families: &mut Families<'_>,
) -> fmt::Result {
    let help = "Always 1; the version of Ratekeeper is a label";
    let version = [([("version", env!("CARGO_PKG_VERSION"))], 1_u64)];
    families.gauges("ratelimit_build_info", help, version)?;
    if let Some(seconds) = process.cpu_seconds {
        let help = "CPU time of the process, user and system";
        families.counter("process_cpu_seconds", help, seconds)?;
    }
    let last_result = u64::from(reloads.error.is_none());
    for (name, help, value) in [
        (
            "ratelimit_config_last_reload_timestamp_seconds",
            "Time of the last load of the rules, successful or not, in seconds since 1970",
            Some(reloads.last_at),
        ),
        (
            "ratelimit_config_last_reload_successful",
            "1 if the rules files are in force, 0 if the last load was refused",
            Some(last_result),
        ),
        (
            "ratelimit_config_last_good",
            "1 if the node started with the last good rules because the files were broken, and they still are",
            Some(u64::from(reloads.last_good_of.is_some())),
        ),
        (
            "process_start_time_seconds",
            "Start of the process, in seconds since 1970",
            Some(process.started_at),
        ),
        (
            "process_resident_memory_bytes",
            "Resident memory of the process",
            process.resident_bytes,
        ),
        (
            "process_virtual_memory_bytes",
            "Virtual memory of the process",
            process.virtual_bytes,
        ),
        (
            "process_open_fds",
            "Open file descriptors",
            process.open_fds,
        ),
        (
            "process_max_fds",
            "Maximum number of open file descriptors",
            process.max_fds,
        ),
    ] {
        if let Some(value) = value {
            families.gauge(name, help, value)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_read() {
        let stat = "7 (a) b) c) S 1 7 7 0 -1 4194560 1 2 3 4 250 150 0 0 20 0 4 0 99 1 2";
        assert_eq!(cpu_seconds(stat), Some(4.0));
        assert_eq!(cpu_seconds("7 (a"), None);
        let status = "Name:\tx\nVmSize:\t  2048 kB\nVmRSS:\t    12 kB\n";
        assert_eq!(kib_of(status, "VmRSS:"), Some(12 * 1_024));
        assert_eq!(kib_of(status, "VmPeak:"), None);
        let limits =
            "Limit   Soft Limit  Hard Limit  Units\nMax open files    1024    4096    files\n";
        assert_eq!(max_fds(limits), Some(1_024));
        assert_eq!(max_fds("Max open files unlimited unlimited files\n"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_has_figures() {
        let figures = ProcessFigures::read(1);
        assert!(figures.cpu_seconds.is_some());
        assert!(figures.resident_bytes > Some(1 << 20));
        assert!(figures.open_fds >= Some(3));
    }
}
