//! Times that pass while the machine sleeps.

use std::time::Duration;

/// A time of this process, by the boot clock: unlike that of [`std::time::Instant`], it also runs while the machine is suspended, on
/// Linux.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct BootInstant(Duration);

impl BootInstant {
    pub(crate) fn now() -> Self {
        #[cfg(target_os = "linux")]
        let id = rustix::time::ClockId::Boottime;
        #[cfg(not(target_os = "linux"))]
        let id = rustix::time::ClockId::Monotonic;
        let time = rustix::time::clock_gettime(id);
        let secs = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
        Self(Duration::new(secs, nanos))
    }

    pub(crate) fn elapsed(self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }

    /// The time so long before.
    #[cfg(test)]
    pub(crate) fn before(self, age: Duration) -> Self {
        Self(self.0.saturating_sub(age))
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_time_since_the_machine_was_started() {
        let before = BootInstant::now().0;
        let text = std::fs::read_to_string("/proc/uptime").expect("the kernel tells it");
        let after = BootInstant::now().0;
        let told = text.split(' ').next().expect("a number");
        let told = Duration::from_secs_f64(told.parse().expect("a number"));
        let range = before.saturating_sub(Duration::from_millis(10))..=after;
        assert!(range.contains(&told), "{told:?} is not in {range:?}");
    }
}
