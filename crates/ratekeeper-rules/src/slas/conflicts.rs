//! Detects service levels that another one completely hides.

use hashbrown::HashMap;

use super::ServiceLevel;
use crate::PathFolding;

/// Pairs of path shape and method that are taken, with the position of the service level that has
/// them.
pub(crate) struct Taken {
    folding: PathFolding,
    owners: HashMap<(String, Box<str>), String>,
}

impl Taken {
    pub(crate) fn new(folding: PathFolding) -> Self {
        let owners = HashMap::new();
        Self { folding, owners }
    }

    /// Adds `level`; returns a method that was taken before, with the position of its owner.
    pub(crate) fn take(&mut self, level: &ServiceLevel) -> Option<(String, String)> {
        if !level.enabled {
            return None;
        }
        let shape = level.pattern.shape(self.folding);
        let all = ["".into()];
        let methods = match level.methods.is_empty() {
            true => &all[..],
            false => &level.methods,
        };
        let mut earlier = None;
        for method in methods {
            let key = (shape.clone(), method.clone());
            let by = format!("'{}' at {}", level.id, level.place);
            if let Some(place) = self.owners.insert(key, by) {
                let about = format!("{method} {}", level.pattern.as_str());
                earlier.get_or_insert((about.trim_start().to_owned(), place));
            }
        }
        earlier
    }
}
