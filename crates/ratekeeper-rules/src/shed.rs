//! `shed:`, the requests to refuse first under overload.

use crate::named::named;
use crate::{PathFolding, PathPattern};

/// The mode of a shedder.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[cfg_attr(
    feature = "yaml",
    derive(serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "snake_case")
)]
pub enum ShedMode {
    /// Does nothing.
    Off,
    /// Decides and counts, but lets every request pass.
    Shadow,
    /// Refuses requests.
    #[default]
    On,
}

named!(ShedMode: Off "off", Shadow "shadow", On "on");

/// A shedder that rules configure.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ShedderKind {
    /// The fleet-usage shedder.
    Fleet,
    /// The worker-utilisation shedder.
    Workers,
    /// The adaptive concurrency limit.
    Adaptive,
}

impl ShedderKind {
    /// All shedders, in the order in which a request meets them.
    pub const ALL: [Self; 3] = [Self::Fleet, Self::Workers, Self::Adaptive];

    /// The id that operators switch it by. A rule that is given the same id is switched along with it.
    #[must_use]
    pub const fn id(self) -> &'static str {
        match self {
            Self::Fleet => "shed/fleet",
            Self::Workers => "shed/workers",
            Self::Adaptive => "shed/adaptive",
        }
    }
}

/// The priority classes where a file has none, the least important first.
pub const DEFAULT_PRIORITIES: [&str; 4] = ["test", "read", "write", "critical"];

/// The most priority classes.
pub const PRIORITIES_MAX: usize = 8;

/// The root `shed:` of the rules: what matters most, and which shedders are in use.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ShedRules {
    /// The names of the priority classes, the least important first: 1 to [`PRIORITIES_MAX`].
    pub priorities: Vec<Box<str>>,
    /// Conditions for classes; the first that holds decides.
    pub classifiers: Vec<Classifier>,
    /// The differences between paths that do not count in them.
    pub path_folding: PathFolding,
    /// The class of requests that only read (GET, HEAD, OPTIONS, TRACE), if no classifier matches.
    pub reads: u8,
    /// The class of all others.
    pub writes: u8,
    /// The fleet-usage shedder, if it is in use.
    pub fleet: Option<FleetShed>,
    /// The worker-utilisation shedder, if it is in use.
    pub workers: Option<WorkerShed>,
    /// The adaptive concurrency limit, if it is in use.
    pub adaptive: Option<AdaptiveShed>,
}

/// The parts of a request that its class depends on, beside its headers.
#[derive(Clone, Copy, Debug)]
pub struct ShedRequest<'a> {
    /// The method, in upper case.
    pub method: &'a str,
    /// The path, decoded, without a query.
    pub path: &'a str,
    /// The plan of its tenant, if it is known and has one.
    pub plan: Option<&'a str>,
    /// True if a trusted proxy sent it.
    pub is_from_trusted: bool,
}

/// The class of a request, and the reason for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShedClass {
    /// The index into [`ShedRules::priorities`].
    pub class: u8,
    /// The number of the classifier that decided, from 0; None if the method did.
    pub by: Option<usize>,
    /// True if its headers would have put it into a more important class, had a trusted proxy sent them.
    pub is_lowered: bool,
}

impl ShedClass {
    /// The reason in words, for a request with this method.
    #[must_use]
    pub fn reason(&self, method: &str) -> String {
        let by = match self.by {
            Some(number) => format!("item {} of `classify`", number + 1),
            None => format!("its method, {method}"),
        };
        match self.is_lowered {
            true => format!("{by}: no trusted proxy sent its headers, so they do not raise it"),
            false => by,
        }
    }
}

/// A condition on requests, and the class of those that meet it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Classifier {
    /// The index of the class.
    pub class: u8,
    /// Methods, in upper case; empty for all.
    pub methods: Vec<Box<str>>,
    /// The path, if it matters.
    pub path: Option<PathPattern>,
    /// A header, in lower case, and its value; without a value the header only has to be there.
    pub header: Option<(Box<str>, Option<Box<str>>)>,
    /// The plan of the tenant, if it matters.
    pub plan: Option<Box<str>>,
}

/// `fleet:`, the fleet-usage shedder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct FleetShed {
    /// The requests that the whole fleet can work on at a time, at least 1.
    pub capacity: u32,
    /// The part of it that only the most important class may use, in percent: 0 to 100.
    pub reserve_percent: u8,
    /// The mode.
    pub mode: ShedMode,
}

/// `workers:`, the worker-utilisation shedder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct WorkerShed {
    /// Utilisation below which more is admitted, in percent.
    pub good_percent: u8,
    /// Utilisation above which less is admitted, in percent: above `good_percent`, at most 100.
    pub bad_percent: u8,
    /// The mode.
    pub mode: ShedMode,
}

/// `adaptive:`, the adaptive concurrency limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct AdaptiveShed {
    /// The smallest limit, at least 1.
    pub min: u32,
    /// The largest limit, at least `min`.
    pub max: u32,
    /// The mode.
    pub mode: ShedMode,
}

impl Default for ShedRules {
    /// The default priorities, and no shedder in use.
    fn default() -> Self {
        Self {
            priorities: DEFAULT_PRIORITIES.map(Into::into).into(),
            classifiers: Vec::new(),
            path_folding: PathFolding::default(),
            reads: 1,
            writes: 2,
            fleet: None,
            workers: None,
            adaptive: None,
        }
    }
}

impl ShedRules {
    /// The class of a request. `header` returns the value of a header by its name in lower case. Anybody can set one: unless a
    /// trusted proxy sent them, they put the request into no more important class than it has without.
    #[must_use]
    pub fn class_of<'h>(
        &self,
        request: ShedRequest<'_>,
        header: impl Fn(&str) -> Option<&'h [u8]>,
    ) -> ShedClass {
        let with = self.classify(request, header);
        if request.is_from_trusted {
            return with;
        }
        let without = self.classify(request, |_| None);
        match without.class < with.class {
            true => ShedClass {
                is_lowered: true,
                ..without
            },
            false => with,
        }
    }

    fn classify<'h>(
        &self,
        request: ShedRequest<'_>,
        header: impl Fn(&str) -> Option<&'h [u8]>,
    ) -> ShedClass {
        let ShedRequest {
            method, path, plan, ..
        } = request;
        let matches = |it: &Classifier| {
            let is_plan = it.plan.is_none() || it.plan.as_deref() == plan;
            is_plan && it.matches(method, (path, self.path_folding), &header)
        };
        let by = self.classifiers.iter().position(matches);
        let class = match by {
            Some(number) => self.classifiers[number].class,
            None if is_read(method) => self.reads,
            None => self.writes,
        };
        ShedClass {
            class,
            by,
            is_lowered: false,
        }
    }

    /// Returns true if classes depend on the plans of tenants.
    #[must_use]
    pub fn goes_by_plan(&self) -> bool {
        self.classifiers.iter().any(|it| it.plan.is_some())
    }

    /// The name of the class at `index`; empty if there is none.
    #[must_use]
    pub fn name(&self, index: usize) -> &str {
        self.priorities.get(index).map_or("", |name| name)
    }

    /// Returns true if a shedder is in use, if only in shadow mode.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        let mut modes = ShedderKind::ALL.iter().filter_map(|kind| self.mode(*kind));
        modes.any(|mode| mode != ShedMode::Off)
    }

    /// Returns true if a shedder is on, rather than in shadow mode.
    #[must_use]
    pub fn is_enforced(&self) -> bool {
        let mut modes = ShedderKind::ALL.iter().filter_map(|kind| self.mode(*kind));
        modes.any(|mode| mode == ShedMode::On)
    }

    /// The mode of a shedder; None if it is not configured.
    #[must_use]
    pub fn mode(&self, kind: ShedderKind) -> Option<ShedMode> {
        match kind {
            ShedderKind::Fleet => self.fleet.map(|it| it.mode),
            ShedderKind::Workers => self.workers.map(|it| it.mode),
            ShedderKind::Adaptive => self.adaptive.map(|it| it.mode),
        }
    }

    /// The settings of a shedder in words; None if it is not configured.
    #[must_use]
    pub fn in_words(&self, kind: ShedderKind) -> Option<String> {
        Some(match kind {
            ShedderKind::Fleet => {
                let fleet = self.fleet?;
                format!(
                    "capacity {}, reserve {}%",
                    fleet.capacity, fleet.reserve_percent
                )
            }
            ShedderKind::Workers => {
                let workers = self.workers?;
                format!(
                    "good {}%, bad {}%",
                    workers.good_percent, workers.bad_percent
                )
            }
            ShedderKind::Adaptive => {
                let adaptive = self.adaptive?;
                format!("min {}, max {}", adaptive.min, adaptive.max)
            }
        })
    }

    /// Puts a shedder into a mode, if it is configured.
    pub fn set_mode(&mut self, kind: ShedderKind, to: ShedMode) {
        let mode = match kind {
            ShedderKind::Fleet => self.fleet.as_mut().map(|it| &mut it.mode),
            ShedderKind::Workers => self.workers.as_mut().map(|it| &mut it.mode),
            ShedderKind::Adaptive => self.adaptive.as_mut().map(|it| &mut it.mode),
        };
        if let Some(mode) = mode {
            *mode = to;
        }
    }
}

impl Classifier {
    fn matches<'h>(
        &self,
        method: &str,
        (path, folding): (&str, PathFolding),
        header: impl Fn(&str) -> Option<&'h [u8]>,
    ) -> bool {
        let is_method = self.methods.is_empty() || self.methods.iter().any(|it| **it == *method);
        let is_header = self.header.as_ref().is_none_or(|(name, value)| {
            let found = header(name);
            found.is_some_and(|found| value.as_ref().is_none_or(|it| it.as_bytes() == found))
        });
        let is_path = || {
            let pattern = self.path.as_ref();
            pattern.is_none_or(|pattern| pattern.matches(path, folding))
        };
        is_method && is_header && is_path()
    }
}

fn is_read(method: &str) -> bool {
    matches!(method, "GET" | "HEAD" | "OPTIONS" | "TRACE")
}
