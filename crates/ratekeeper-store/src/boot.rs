//! The time since this machine was started.

use ratekeeper_core::Micros;

/// Reads the boot clock, which also runs while the machine sleeps, and which cannot be set. Times of one
/// process only are compared by it.
#[must_use]
pub fn boot_time() -> Micros {
    #[cfg(target_os = "linux")]
    let id = rustix::time::ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let id = rustix::time::ClockId::Monotonic;
    let time = rustix::time::clock_gettime(id);
    let secs = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    Micros::new(secs * 1_000_000 + nanos / 1_000)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn it_counts_microseconds_since_the_machine_was_started() {
        let before = boot_time();
        let text = std::fs::read_to_string("/proc/uptime").expect("the kernel tells it");
        let after = boot_time();
        let hundredths = text.split(' ').next().expect("a number").replace('.', "");
        let told = hundredths.parse::<u64>().expect("a number") * 10_000;
        let range = before.get().saturating_sub(10_000)..=after.get();
        assert!(range.contains(&told), "{told} is not in {range:?}");
    }
}
