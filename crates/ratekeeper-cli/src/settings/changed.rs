//! Settings that have changed since the start.

use super::file::fingerprint;
use super::setting::Setting;
use super::table::{Values, row};

/// The settings of routes and upstreams, which a gateway reads again while it runs.
static OF_ROUTES: [&Setting; 8] = [
    &row::upstream,
    &row::upstreams,
    &row::routes,
    &row::upstream_connect_timeout,
    &row::upstream_timeout,
    &row::upstream_requests_max,
    &row::upstream_queue_max,
    &row::upstream_address_share,
];

/// The values of the settings that are read at the start only. None is kept: some are secret.
#[derive(Clone, Debug)]
pub(crate) struct AtStart(Vec<(&'static str, u64)>);

impl AtStart {
    pub(crate) fn of(values: &Values) -> Self {
        let said = values.said();
        let others = said.filter(|said| OF_ROUTES.iter().all(|it| it.key != said.setting.key));
        Self(
            others
                .map(|said| (said.setting.key, fingerprint(said.text.as_bytes())))
                .collect(),
        )
    }

    /// The settings that say something else `now`.
    pub(crate) fn changed(&self, now: &Self) -> Vec<&'static str> {
        let both = self.0.iter().zip(&now.0);
        both.filter(|(before, now)| before != now)
            .map(|((key, _), _)| *key)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::layer::{Layers, Origin};
    use super::super::{Settings, table::find};
    use super::*;
    use crate::home::Home;
    use std::path::Path;

    fn with(pairs: &[(&str, &str)]) -> AtStart {
        let mut layers = Layers::default();
        for (key, text) in pairs {
            let setting = find(key).expect("there is such a setting");
            layers.put(setting, *text, Origin::Flag(format!("--{key}")));
        }
        let home = Home::find_in(&[], Path::new(""));
        let settings = Settings::from_layers(&layers, &home);
        AtStart::of(&settings.expect("they are valid").values)
    }

    #[test]
    fn what_has_changed_is_told_but_for_routes() {
        let start = with(&[("upstream", "http://a:1"), ("wait_max", "1s")]);
        let routes = with(&[("upstream", "http://b:2"), ("wait_max", "1s")]);
        assert_eq!(start.changed(&routes), [""; 0]);
        let others = with(&[("upstream", "http://a:1"), ("headers", "none")]);
        assert_eq!(start.changed(&others), ["wait_max", "headers"]);
    }
}
