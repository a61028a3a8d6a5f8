//! Settings as a whole: layers, types, messages.

use super::*;

fn home(folder: &Path) -> Home {
    Home::find_in(&[&folder.join("config")], &folder.join("ratekeeper.yaml"))
}

fn environment(pairs: &[(&str, &str)]) -> Environment {
    Environment::of(pairs)
}

fn shown(layers: &Layers, key: &str) -> (String, String) {
    let said = layers.said(key).expect("a known key");
    (said.text, said.origin.to_string())
}

#[test]
fn flags_go_before_the_environment_and_that_before_the_file() -> std::io::Result<()> {
    let root = tempfile::tempdir()?;
    let file = root.path().join("ratekeeper.yaml");
    std::fs::write(&file, "http: :1\ngrpc: :1\nadmin: :1\n")?;
    let environment = environment(&[("RATEKEEPER_HTTP", ":2"), ("RATEKEEPER_GRPC", ":2")]);
    let flags = Flags::default().with("http", ":3".into());
    let home = home(root.path());
    let layers = layers(&flags, &environment, &home).expect("all of it is good");
    assert_eq!(shown(&layers, "http"), (":3".into(), "--http".into()));
    assert_eq!(
        shown(&layers, "grpc"),
        (":2".into(), "RATEKEEPER_GRPC".into())
    );
    assert_eq!(
        shown(&layers, "admin"),
        (":1".into(), format!("{}:3:8", file.display()))
    );
    assert_eq!(shown(&layers, "store"), ("memory".into(), "default".into()));
    let settings = Settings::from_layers(&layers, &home).expect("all of it has a meaning");
    assert_eq!(settings.listen.http.port(), 3);
    assert_eq!(settings.listen.grpc.port(), 2);
    assert_eq!(settings.listen.admin.port(), 1);
    Ok(())
}

#[test]
fn every_value_without_a_meaning_is_said_at_once() {
    let home = home(Path::new("/nowhere/at/all"));
    let flags = Flags::default()
        .with("memory_limit", "12QB".into())
        .with("store", "redis://localhost".into())
        .with("on_store_failure", "open".into())
        .with("log_level", "loud".into())
        .with("http", "8080".into());
    let layers = layers(&flags, &Environment::default(), &home).expect("the names are good");
    let problems = Settings::from_layers(&layers, &home).expect_err("no value is");
    let text = problems.to_string();
    assert_eq!(problems.0.len(), 5, "{text}");
    assert!(
        text.contains("--memory-limit: `12QB` is no size; write a whole number and a unit"),
        "{text}"
    );
    assert!(
        text.contains("--store: counters in Redis or Valkey are not in this version"),
        "{text}"
    );
    assert!(
        text.contains("write `local` or `allow` or `deny`"),
        "{text}"
    );
}

#[test]
fn paths_in_a_file_count_from_its_folder() -> std::io::Result<()> {
    let root = tempfile::tempdir()?;
    std::fs::create_dir_all(root.path().join("config/rules"))?;
    let file = root.path().join("config/ratekeeper.yaml");
    std::fs::write(&file, "data_dir: data\n")?;
    let home = home(root.path());
    let layers =
        layers(&Flags::default(), &Environment::default(), &home).expect("the file is good");
    let settings = Settings::from_layers(&layers, &home).expect("so are its values");
    assert_eq!(settings.rules.path, Some(root.path().join("config/rules")));
    assert_eq!(
        settings.counters.state,
        Some(root.path().join("config/data/counters.state"))
    );
    assert!(!settings.rules.every_file);
    Ok(())
}

#[test]
fn under_the_incumbents_root_every_file_is_one_of_rules() {
    let home = home(Path::new("/nowhere/at/all"));
    let environment = environment(&[("RUNTIME_ROOT", "/srv/runtime_data/current")]);
    let layers = layers(&Flags::default(), &environment, &home).expect("the names are good");
    let settings = Settings::from_layers(&layers, &home).expect("so are the values");
    assert_eq!(
        settings.rules.path,
        Some(PathBuf::from("/srv/runtime_data/current/config"))
    );
    assert!(settings.rules.every_file);
}

#[test]
fn the_defaults_have_a_meaning() {
    let home = home(Path::new("/nowhere/at/all"));
    let settings = Settings::from_layers(&Layers::defaults(), &home).expect("they do");
    assert_eq!(settings.counters.memory_limit, 256 << 20);
    assert_eq!(settings.listen.metrics, None);
    assert_eq!(
        settings.listen.drain_delay,
        ratekeeper_server::ServerConfig::default().drain_delay
    );
    assert_eq!(settings.rules.path, None);
}

#[test]
fn the_manual_lists_every_setting_as_it_is() {
    let manual = include_str!("../../../../docs/configuration.md");
    let mut table = String::from("| setting | default | meaning |\n|---|---|---|\n");
    for setting in SETTINGS {
        let default = match setting.default {
            "" => String::new(),
            default => format!("`{default}`"),
        };
        table += &format!("| `{}` | {default} | {} |\n", setting.key, setting.help);
    }
    assert!(
        manual.contains(&table),
        "docs/configuration.md should have this table:\n{table}"
    );
}
