//! Service levels of which one could never hold.

use hashbrown::HashMap;

use super::ServiceLevel;

/// Which methods of which paths are taken, and by whom.
#[derive(Default)]
pub(crate) struct Taken(HashMap<(String, Box<str>), String>);

impl Taken {
    /// Takes what `level` is about; what of it was taken before, with its place.
    pub(crate) fn take(&mut self, level: &ServiceLevel) -> Option<(String, String)> {
        if !level.enabled {
            return None;
        }
        let shape = level.pattern.shape();
        let all = ["".into()];
        let methods = match level.methods.is_empty() {
            true => &all[..],
            false => &level.methods,
        };
        let mut earlier = None;
        for method in methods {
            let key = (shape.clone(), method.clone());
            let by = format!("'{}' at {}", level.id, level.place);
            if let Some(place) = self.0.insert(key, by) {
                let about = format!("{method} {}", level.pattern.as_str());
                earlier.get_or_insert((about.trim_start().to_owned(), place));
            }
        }
        earlier
    }
}
