//! Other users of the machine cannot look into the data of tenants.

use crate::fleet::RULES;
use crate::support::{self, Ratekeeper, http, write};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use tempfile::tempdir;

fn mode(path: &Path) -> u32 {
    let found = fs::metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    found.permissions().mode() & 0o777
}

fn serve(folder: &Path) -> Ratekeeper {
    support::serve(folder)
        .args("--rules rules.yaml --data-dir var/data")
        .start()
}

/// The modes of all files in the data folder while the node writes.
fn assert_private(node: &Ratekeeper, data: &Path) {
    let put = http(
        node.admin,
        "PUT",
        "/admin/v1/quotas/acme",
        r#"{"plan":"pro"}"#,
    );
    assert_eq!(put.0, 200, "{}", put.1);
    let files = fs::read_dir(data).expect("the folder is there");
    let files: Vec<_> = files.filter_map(|file| Some(file.ok()?.path())).collect();
    for name in ["quotas.db", "quotas.db-wal", "quotas.db-shm", "tenant.key"] {
        assert!(files.contains(&data.join(name)), "{name} is in {files:?}");
    }
    for file in files {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
}

#[test]
fn the_data_folder_is_of_one_user() {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "rules.yaml", RULES);
    let data = folder.path().join("var/data");
    let node = serve(folder.path());
    assert_eq!(
        (mode(&data), mode(&folder.path().join("var"))),
        (0o700, 0o700)
    );
    assert_private(&node, &data);
    assert!(!node.log().contains("other users"), "{}", node.log());
    // As an earlier version leaves them when it is killed.
    drop(node);
    for name in ["quotas.db", "quotas.db-wal", "quotas.db-shm"] {
        fs::set_permissions(data.join(name), Permissions::from_mode(0o644)).expect("they are ours");
    }
    fs::set_permissions(&data, Permissions::from_mode(0o755)).expect("it is ours");
    let node = serve(folder.path());
    node.wait_for_log(
        "--data-dir var/data: other users can look into it (mode 755): run `chmod 700 var/data`",
    );
    assert_private(&node, &data);
}
