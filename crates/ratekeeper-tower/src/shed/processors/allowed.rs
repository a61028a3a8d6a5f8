//! The processors that this process may use, in parts of one.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// As many as its affinity and the quotas of its control groups allow. The standard library rounds quotas down, and half a
/// processor up to one.
pub(super) fn allowed() -> f64 {
    let whole = f64::from(affinity());
    quota().map_or(whole, |quota| quota.min(whole))
}

#[cfg(target_os = "linux")]
fn affinity() -> u32 {
    let set = rustix::thread::sched_getaffinity(None).ok();
    let count = set.map_or(0, |set| set.count());
    match count {
        0 => parallelism(),
        count => count,
    }
}

#[cfg(not(target_os = "linux"))]
fn affinity() -> u32 {
    parallelism()
}

fn parallelism() -> u32 {
    let count = std::thread::available_parallelism().ok();
    count.map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX))
}

/// The smallest quota of its control groups and of those around them; None without any, and where there are no such groups.
fn quota() -> Option<f64> {
    let groups = read_to_string("/proc/self/cgroup").ok()?;
    quota_of(&groups, |file| read_to_string(file).ok())
}

/// The smallest quota of `groups`, as `/proc/self/cgroup` lists them, with files as `read` finds them.
fn quota_of(groups: &str, read: impl Fn(&Path) -> Option<String>) -> Option<f64> {
    let folders = groups.lines().flat_map(folders);
    let quotas = folders.filter_map(|folder| quota_in(&folder, &read));
    quotas.min_by(f64::total_cmp)
}

/// The folders of a control group, and of those around it: of version 2, or of the controller `cpu` of version 1. In a
/// container only the outermost one may be there, which is then that of the container.
fn folders(group: &str) -> Vec<PathBuf> {
    let mut parts = group.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
        return Vec::new();
    };
    let root = match controllers {
        "" => "/sys/fs/cgroup",
        _ if controllers.split(',').any(|name| name == "cpu") => "/sys/fs/cgroup/cpu",
        _ => return Vec::new(),
    };
    let inner = Path::new(path.trim_start_matches('/'));
    let folder = |inner| Path::new(root).join(inner);
    inner.ancestors().map(folder).collect()
}

/// The quota of the control group in `folder`, in processors.
fn quota_in(folder: &Path, read: impl Fn(&Path) -> Option<String>) -> Option<f64> {
    let file = |name: &str| read(&folder.join(name));
    match file("cpu.max") {
        Some(text) => {
            let (quota, period) = text.split_once(' ')?;
            quotient(quota, period)
        }
        None => quotient(&file("cpu.cfs_quota_us")?, &file("cpu.cfs_period_us")?),
    }
}

/// Processors, from the time that they may be used in each period. None if the quota is `max` or -1.
fn quotient(quota: &str, period: &str) -> Option<f64> {
    let micros = |text: &str| text.trim().parse::<u32>().ok().filter(|micros| *micros > 0);
    Some(f64::from(micros(quota)?) / f64::from(micros(period)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The quota of a process in `groups`, where these files are.
    fn quota(groups: &str, files: &[(&str, &str)]) -> Option<f64> {
        quota_of(groups, |path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path);
            found.map(|(_, text)| (*text).to_owned())
        })
    }

    #[test]
    fn a_quota_is_a_part_of_a_processor() {
        let of = |text| quota("0::/\n", &[("/sys/fs/cgroup/cpu.max", text)]);
        assert_eq!(of("50000 100000\n"), Some(0.5));
        assert_eq!(of("190000 100000\n"), Some(1.9));
        assert_eq!(of("max 100000\n"), None);
        assert_eq!(of(""), None);
        assert_eq!(quota("0::/\n", &[]), None);
    }

    #[test]
    fn the_smallest_quota_around_a_process_holds() {
        let groups = "1:cpu,cpuacct:/pods/one\n0::/pods/one\n2:memory:/\n";
        let files = [
            ("/sys/fs/cgroup/pods/one/cpu.max", "max 100000\n"),
            ("/sys/fs/cgroup/pods/cpu.max", "300000 100000\n"),
            ("/sys/fs/cgroup/cpu.max", "400000 100000\n"),
        ];
        assert_eq!(quota(groups, &files), Some(3.0));
        let first = [
            ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "25000\n"),
            ("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
        ];
        assert_eq!(quota(groups, &first), Some(0.25));
        let none = [
            ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
            ("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
        ];
        assert_eq!(quota(groups, &none), None);
    }

    #[test]
    fn a_process_may_use_some_of_the_processors() {
        let whole = f64::from(affinity());
        let part = allowed();
        assert!(part > 0.0 && part <= whole, "{part} of {whole}");
    }
}
