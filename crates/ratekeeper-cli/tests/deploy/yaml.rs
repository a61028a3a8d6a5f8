//! YAML as other programs read it, with anchors and merge keys.

use std::process::Command;

use ratekeeper_testkit::process::{output_of, tool_folder};
use ratekeeper_testkit::repository;
use serde_json::Value;

/// Prints the documents of a file as JSON.
const SCRIPT: &str =
    "import json, sys, yaml; json.dump(list(yaml.safe_load_all(open(sys.argv[1]))), sys.stdout)";

/// The documents of a file of the repository.
pub(crate) fn read(path: &str) -> Vec<Value> {
    // It comes with a reader of YAML.
    let lib = tool_folder("kubernetes-validate").join("lib");
    let mut python = Command::new("python3");
    python.args(["-c", SCRIPT]).arg(repository().join(path));
    let text = output_of(python.env("PYTHONPATH", lib));
    serde_json::from_str(&text).expect("it prints JSON")
}

/// The members of an array; none if it is no array.
pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A text that has to be there.
pub(crate) fn text(value: &Value) -> &str {
    value
        .as_str()
        .unwrap_or_else(|| panic!("{value} is no text"))
}
