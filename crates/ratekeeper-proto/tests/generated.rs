//! Holds the checked-in code to the `.proto` files.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use prost::Message;
use tonic_prost_build::{Builder, Config};

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

/// The messages that are read from JSON.
const READ: [&str; 3] = [
    "v3.RateLimitRequest",
    "common.ratelimit.v3.RateLimitDescriptor",
    "RateLimitDescriptor.RateLimitOverride",
];

/// Their fields, and the functions of `json::reading` that read them.
const READ_BY: [(&str, &str); 9] = [
    ("v3.RateLimitRequest.domain", "or_null"),
    ("v3.RateLimitRequest.descriptors", "messages"),
    ("v3.RateLimitRequest.hits_addend", "integer"),
    (
        "common.ratelimit.v3.RateLimitDescriptor.entries",
        "messages",
    ),
    ("common.ratelimit.v3.RateLimitDescriptor.limit", "message"),
    (
        "common.ratelimit.v3.RateLimitDescriptor.hits_addend",
        "some_integer",
    ),
    (
        "common.ratelimit.v3.RateLimitDescriptor.is_negative_hits",
        "or_null",
    ),
    ("RateLimitOverride.requests_per_unit", "integer"),
    ("RateLimitOverride.unit", "unit"),
];

/// The messages that are written as JSON.
const WRITTEN: [&str; 4] = [
    "v3.RateLimitResponse",
    "RateLimitResponse.DescriptorStatus",
    "RateLimitResponse.RateLimit",
    "core.v3.HeaderValue",
];

/// Their fields, and the functions of `json::writing` for those that serde writes in another way.
const WRITTEN_BY: [(&str, &str); 14] = [
    ("v3.RateLimitResponse.overall_code", "code"),
    ("v3.RateLimitResponse.statuses", ""),
    ("v3.RateLimitResponse.response_headers_to_add", ""),
    ("v3.RateLimitResponse.request_headers_to_add", ""),
    ("v3.RateLimitResponse.dynamic_metadata", "structure"),
    ("RateLimitResponse.DescriptorStatus.code", "code"),
    ("RateLimitResponse.DescriptorStatus.current_limit", ""),
    ("RateLimitResponse.DescriptorStatus.limit_remaining", ""),
    (
        "RateLimitResponse.DescriptorStatus.duration_until_reset",
        "duration",
    ),
    ("RateLimitResponse.RateLimit.name", ""),
    ("RateLimitResponse.RateLimit.requests_per_unit", ""),
    ("RateLimitResponse.RateLimit.unit", "unit"),
    ("core.v3.HeaderValue.key", ""),
    ("core.v3.HeaderValue.value", ""),
];

/// Fields that this service never sets.
const UNSET: [&str; 4] = [
    "v3.RateLimitResponse.raw_body",
    "v3.RateLimitResponse.quota",
    "RateLimitResponse.DescriptorStatus.quota",
    "core.v3.HeaderValue.raw_value",
];

/// Adds the derives of JSON.
fn with_json(mut builder: Builder) -> Builder {
    let read = "#[derive(serde::Deserialize)]\n#[serde(default, deny_unknown_fields, rename_all = \"camelCase\")]";
    for message in READ {
        builder = builder.type_attribute(message, read);
    }
    for (field, by) in READ_BY {
        let name = field.rsplit('.').next().unwrap();
        let attribute = format!(
            "#[serde(alias = {name:?}, deserialize_with = \"crate::json::reading::{by}\")]"
        );
        builder = builder.field_attribute(field, attribute);
    }
    let written = "#[derive(serde::Serialize)]\n#[serde(rename_all = \"camelCase\")]";
    for message in WRITTEN {
        builder = builder.type_attribute(message, written);
    }
    for (field, by) in WRITTEN_BY {
        let by = match by {
            "" => String::new(),
            by => format!(", serialize_with = \"crate::json::writing::{by}\""),
        };
        let unless_zero = "skip_serializing_if = \"crate::json::writing::is_zero\"";
        builder = builder.field_attribute(field, format!("#[serde({unless_zero}{by})]"));
    }
    for field in UNSET {
        builder = builder.field_attribute(field, "#[serde(skip)]");
    }
    builder
}

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
        with_json(tonic_prost_build::configure())
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
