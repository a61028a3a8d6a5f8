//! Holds the checked-in code to the `.proto` files.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use prost::Message;
use tonic_prost_build::Config;

/// The generated files, by name.
const FILES: [&str; 13] = [
    "descriptors.bin",
    "envoy.config.core.v3.rs",
    "envoy.extensions.common.ratelimit.v3.rs",
    "envoy.r#type.v3.rs",
    "envoy.service.discovery.v3.rs",
    "envoy.service.ratelimit.v3.rs",
    "etcd.rs",
    "etcdserverpb.rs",
    "google.rpc.rs",
    "mod.rs",
    "mvccpb.rs",
    "ratekeeper.v1.rs",
    "ratelimit.config.ratelimit.v3.rs",
];

fn generate(into: &Path) {
    let protos = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    let files = [
        "envoy/service/discovery/v3/ads.proto",
        "envoy/service/ratelimit/v3/rls.proto",
        "etcd/api/rpc.proto",
        "ratekeeper/v1/ratekeeper.proto",
        "ratekeeper/v1/regions.proto",
        "ratelimit/config/ratelimit/v3/rls_conf.proto",
    ];
    let descriptors = protox::compile(files, [protos]).unwrap();

    let [mut etcd, mut own] = [descriptors.clone(), descriptors];
    etcd.file.retain(|file| file.name().starts_with("etcd/"));
    own.file.retain(|file| !file.name().starts_with("etcd/"));
    // Reflection tells what a service may be asked; this one asks etcd, and is none.
    let mut bare = own.clone();
    for file in &mut bare.file {
        file.source_code_info = None;
    }
    fs::write(into.join("descriptors.bin"), bare.encode_to_vec()).unwrap();

    for (part, index, is_served) in [(own, "mod.rs", true), (etcd, "etcd.rs", false)] {
        tonic_prost_build::configure()
            .build_server(is_served)
            .out_dir(into)
            .include_file(index)
            .codec_path("crate::Codec")
            .extern_path(
                ".envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.Entry",
                "crate::WireEntry",
            )
            .extern_path(".ratekeeper.v1.Entry", "crate::WireEntry")
            .emit_rerun_if_changed(false)
            .compile_fds_with_config(part, Config::new())
            .unwrap();
    }
}

#[test]
fn checked_in_code_is_up_to_date() {
    let fresh = tempfile::tempdir().unwrap();
    generate(fresh.path());
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/generated");

    let mut names: Vec<_> = fs::read_dir(fresh.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, FILES);

    for name in FILES {
        let fresh = fs::read(fresh.path().join(name)).unwrap();
        if std::env::var_os("UPDATE").is_some() {
            fs::write(kept.join(name), &fresh).unwrap();
        }
        assert!(
            fs::read(kept.join(name)).unwrap() == fresh,
            "{name} is out of date: run UPDATE=1 cargo test -p ratekeeper-proto"
        );
    }
}
