//! `ratekeeper config show`.

use crate::home::Home;
use crate::output;
use crate::settings::{self, Environment, Flags, Layers, RawValue, Setting, Settings, masked, row};
use anyhow::Result;
use std::process::ExitCode;

pub(crate) fn run(flags: &Flags, json: bool) -> Result<ExitCode> {
    let home = Home::find();
    // What could not be served with is not shown as if it could.
    let (layers, settings) = settings::load(flags, &Environment::of_process(), &home)?;
    let shown = shown(&layers, &settings);
    let code = output::answer(json, &as_json(&shown), || Ok(as_table(&shown)))?;
    for warning in &layers.warnings {
        output::complain(&format!("ratekeeper: {warning}"));
    }
    Ok(code)
}

/// A setting as it is shown: its key, its value, and where that came from.
type Shown = (&'static str, String, String);

fn shown(layers: &Layers, settings: &Settings) -> Vec<Shown> {
    let show = |setting: &'static Setting| {
        let said = layers.get(setting);
        // What follows from other settings is shown as it will be, not as the nothing that was said.
        let is = |row: &Setting| setting.key == row.key && said.text.is_empty();
        let (text, origin) = if is(&row::rules) && settings.rules.path.is_some() {
            (path(settings.rules.path.as_ref()), "found".to_owned())
        } else if is(&row::state) && settings.state.is_some() {
            (path(settings.state.as_ref()), "data_dir".to_owned())
        } else {
            (value(&said), said.origin.to_string())
        };
        (setting.key, text, origin)
    };
    settings::all().map(show).collect()
}

/// The value as it was said, without secrets.
fn value(said: &RawValue) -> String {
    match &said.setting {
        _ if said.text.is_empty() => String::new(),
        setting if setting.is_secret => "****".to_owned(),
        setting if setting.is_nested => nested(&said.text),
        _ => masked(&said.text),
    }
}

/// A list or a mapping, as JSON; what is none was refused before.
fn nested(text: &str) -> String {
    settings::nested(text).map_or_else(
        |_| String::new(),
        |mut value| {
            settings::masked_within(&mut value);
            value.to_string()
        },
    )
}

fn path(path: Option<&std::path::PathBuf>) -> String {
    path.map(|path| path.display().to_string())
        .unwrap_or_default()
}

fn as_table(shown: &[Shown]) -> String {
    let row = |(key, text, origin): &Shown| {
        let text = if text.is_empty() { "-" } else { text };
        [(*key).to_owned(), text.to_owned(), origin.clone()]
    };
    output::headed(["SETTING", "VALUE", "FROM"], shown.iter().map(row))
}

fn as_json(shown: &[Shown]) -> serde_json::Map<String, serde_json::Value> {
    let entry = |(key, text, origin): &Shown| {
        let value = Some(text).filter(|text| !text.is_empty());
        (
            (*key).to_owned(),
            serde_json::json!({ "value": value, "from": origin }),
        )
    };
    shown.iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use crate::settings::masked;

    #[test]
    fn passwords_in_urls_are_masked() {
        assert_eq!(
            masked("redis://app:pa:ss@host:6379/0"),
            "redis://app:****@host:6379/0"
        );
        assert_eq!(masked("redis://token@host"), "redis://:****@host");
        assert_eq!(masked("redis://host:6379"), "redis://host:6379");
        assert_eq!(masked("redis://u:a/b?c@host/0"), "redis://u:****@host/0");
        assert_eq!(
            masked("redis+unix:///run/r.sock?db=1&pass=a%20b&prefix=x"),
            "redis+unix:///run/r.sock?db=1&pass=****&prefix=x"
        );
        assert_eq!(masked("info,ratekeeper=debug"), "info,ratekeeper=debug");
        // Mistyped.
        for (text, shown) in [
            ("redis:/app:hunter2@host", "****@host"),
            ("redis//:hunter2@host:1", "****@host:1"),
            (":hunter2@host", "****@host"),
            ("redis://host?%70ass=hunter2", "redis://host?%70ass=****"),
            (
                "redis://host?PASS=hunter2&db=1",
                "redis://host?PASS=****&db=1",
            ),
            (
                "redis://host?db=1;password=hunter2",
                "redis://host?db=1;password=****",
            ),
            ("redis:/host?pass=hunter2", "redis:/host?pass=****"),
        ] {
            assert_eq!(masked(text), shown, "{text}");
        }
    }

    #[test]
    fn whom_the_identity_knows_is_masked() {
        let mut value =
            serde_json::json!({ "from": ["header:x-api-key"], "known": ["live-1", "live-2"] });
        crate::settings::masked_within(&mut value);
        assert_eq!(value["known"], serde_json::json!(["****", "****"]));
        assert_eq!(value["from"][0], "header:x-api-key");
    }
}
