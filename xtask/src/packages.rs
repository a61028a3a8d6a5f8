//! `cargo xtask packages`: a .deb, an .rpm and a tarball of the static binary, each installed and run on a root of its own.

use crate::commit;
use crate::need;
use crate::static_binary::{Arch, Source, in_namespaces};
use crate::steps::{Steps, cargo, root, succeed, target};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Shells, and where each looks for the completions of a program.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/ratekeeper"),
    ("zsh", "usr/share/zsh/site-functions/_ratekeeper"),
    (
        "fish",
        "usr/share/fish/vendor_completions.d/ratekeeper.fish",
    ),
];

/// The files of all artefacts, which the manifest of ratekeeper-cli names.
const TREE: &str = "target/packages/tree";

/// Builds the packages; unless `args` say `--no-trial`, each is installed, run, upgraded and removed.
pub(crate) fn packages(args: &[String]) -> Result<()> {
    let (source, others) = Source::of_args(args)?;
    let is_tried = match others.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => source.arch == Arch::here()?,
        ["--no-trial"] => false,
        _ => bail!("write `packages [--binary PATH] [--arch amd64|arm64] [--no-trial]`"),
    };
    let mut steps = Steps::new();
    steps.step("tools", "cargo-deb, rpmbuild", || {
        need::packages(&[need::RPM, need::MMDEBSTRAP, need::SYSTEMD])?;
        need::cargo_tool(&need::CARGO_DEB)
    })?;
    let binary = source.path(&mut steps)?;
    let out = target().join("packages");
    steps.step("tree", TREE, || lay_out(&binary, source.arch))?;
    let first = build(&mut steps, &out, source.arch, 1)?;
    let tarball = steps.step("tarball", "tar", || tarball(&out, source.arch))?;
    let made = [&first.deb, &first.rpm, &tarball];
    steps.step("checksums", "SHA256SUMS", || checksums(&out, &made))?;
    if is_tried {
        // The same program as a later release of the package: what an upgrade is to a package manager.
        let second = build(&mut steps, &out.join("upgrade"), source.arch, 2)?;
        try_out(&mut steps, &first, &second, &tarball)?;
    }
    steps.finish("packages");
    for path in made {
        eprintln!("  {}", path.display());
    }
    Ok(())
}

/// The packages of one release.
struct Packages {
    deb: PathBuf,
    rpm: PathBuf,
}

/// Lays out the files as they are installed.
fn lay_out(binary: &Path, arch: Arch) -> Result<()> {
    let tree = root().join(TREE);
    if tree.exists() {
        fs::remove_dir_all(&tree).context("the last tree cannot be removed")?;
    }
    let copy = |from: &Path, to: &str| -> Result<()> {
        let to = tree.join(to);
        fs::create_dir_all(to.parent().context("a file is in a folder")?)?;
        fs::copy(from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
        Ok(())
    };
    copy(binary, "usr/bin/ratekeeper")?;
    for file in ["ratekeeper.yaml", "rules/api.yaml", "rules/tenants.yaml"] {
        copy(
            &root().join("config").join(file),
            &format!("etc/ratekeeper/{file}"),
        )?;
    }
    let unit = "usr/lib/systemd/system/ratekeeper.service";
    copy(&root().join("deploy/ratekeeper.service"), unit)?;
    for file in ["LICENSE", "CHANGELOG.md"] {
        copy(
            &root().join(file),
            &format!("usr/share/doc/ratekeeper/{file}"),
        )?;
    }
    // A binary of another processor cannot write its pages: one of this machine does, which the trial has.
    let able = match arch == Arch::here()? {
        true => binary.to_owned(),
        false => crate::run::release_binary()?,
    };
    succeed(
        Command::new(&able)
            .arg("man")
            .arg(tree.join("usr/share/man/man1")),
    )?;
    let mut compress = Command::new("sh");
    compress.args(["-c", "gzip --best --no-name *.1"]);
    succeed(compress.current_dir(tree.join("usr/share/man/man1")))?;
    for (shell, place) in COMPLETIONS {
        let output = Command::new(&able).args(["completions", shell]).output()?;
        if !output.status.success() {
            bail!("`ratekeeper completions {shell}` failed");
        }
        let place = tree.join(place);
        fs::create_dir_all(place.parent().context("a file is in a folder")?)?;
        fs::write(place, output.stdout)?;
    }
    Ok(())
}

/// Builds the packages of that release of the version.
fn build(steps: &mut Steps, out: &Path, arch: Arch, release: u32) -> Result<Packages> {
    fs::create_dir_all(out)?;
    let (version, time) = (commit::version()?, commit::time()?);
    let packages = Packages {
        deb: out.join(format!(
            "ratekeeper_{version}-{release}_{}.deb",
            arch.name()
        )),
        rpm: out.join(format!(
            "ratekeeper-{version}-{release}.{}.rpm",
            arch.machine()
        )),
    };
    let mut deb = cargo(["deb", "--quiet", "--no-build", "--no-strip", "--package"]);
    deb.args(["ratekeeper-cli", "--target", arch.triple()]);
    // What is only tried is packed in a hurry.
    let is_tried_alone = release > 1;
    deb.args(is_tried_alone.then_some("--fast"));
    deb.args(["--deb-version", &format!("{version}-{release}"), "--output"]);
    deb.arg(&packages.deb).env("SOURCE_DATE_EPOCH", &time);
    steps.command("deb", &mut deb)?;
    let mut rpm = Command::new("rpmbuild");
    rpm.args(["-bb", "--quiet", "--target", arch.machine()]);
    if is_tried_alone {
        rpm.args(["--define", "_binary_payload w1.gzdio"]);
    }
    let top = target().join("packages/rpmbuild");
    for (name, value) in [
        ("_topdir", top.display().to_string()),
        ("_rpmdir", out.display().to_string()),
        (
            "_rpmfilename",
            format!("ratekeeper-{version}-{release}.{}.rpm", arch.machine()),
        ),
        ("version_made", version.clone()),
        ("release_made", release.to_string()),
        ("tree", root().join(TREE).display().to_string()),
        (
            "scripts",
            root().join("deploy/package").display().to_string(),
        ),
    ] {
        rpm.arg("--define").arg(format!("{name} {value}"));
    }
    rpm.arg(root().join("deploy/package/ratekeeper.spec"));
    rpm.env("SOURCE_DATE_EPOCH", &time);
    steps.command("rpm", &mut rpm)?;
    Ok(packages)
}

/// The binary with its pages, for systems without either kind of package.
fn tarball(out: &Path, arch: Arch) -> Result<PathBuf> {
    let name = format!("ratekeeper-{}-{}-linux", commit::version()?, arch.machine());
    let path = out.join(format!("{name}.tar.gz"));
    let mut tar = Command::new("tar");
    tar.args([
        "--create",
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
    ]);
    tar.arg(format!("--mtime=@{}", commit::time()?));
    // Folders as in /usr/local; rules and settings beside them.
    tar.args(["--mode=u=rwX,go=rX", "--transform"]);
    tar.arg(format!(
        "flags=r;s,^usr/,{name}/,;s,^etc/ratekeeper,{name}/config,"
    ));
    tar.arg("--use-compress-program=gzip --best --no-name");
    tar.arg("--file")
        .arg(&path)
        .arg("--directory")
        .arg(root().join(TREE));
    succeed(tar.args(["usr/bin", "usr/share", "etc/ratekeeper"]))?;
    Ok(path)
}

/// Writes the checksums of the files as `sha256sum --check` reads them.
fn checksums(out: &Path, files: &[&PathBuf]) -> Result<()> {
    let names = files.iter().filter_map(|path| path.file_name());
    let output = Command::new("sha256sum")
        .current_dir(out)
        .args(names)
        .output()
        .context("cannot start sha256sum")?;
    if !output.status.success() {
        bail!("sha256sum failed");
    }
    fs::write(out.join("SHA256SUMS"), output.stdout)?;
    Ok(())
}

/// Installs each, runs it as its unit says, upgrades and removes it, on a fresh Debian without anything else.
fn try_out(steps: &mut Steps, first: &Packages, second: &Packages, tarball: &Path) -> Result<()> {
    let system = target().join("packages/system.tar");
    if !system.exists() {
        let mut make = Command::new("mmdebstrap");
        make.args(["--quiet", "--variant=required", "--include=rpm,procps"]);
        make.arg("bookworm").arg(&system);
        steps.command("system", &mut make)?;
    }
    for (kind, packages) in [
        ("deb", [first.deb.as_path(), second.deb.as_path()]),
        ("rpm", [first.rpm.as_path(), second.rpm.as_path()]),
        ("tarball", [tarball, tarball]),
    ] {
        let mut command = in_namespaces("xtask/src/packages/try.sh");
        command
            .env("KIND", kind)
            .env("SYSTEM", system.canonicalize()?);
        command.env("FIRST", packages[0].canonicalize()?);
        command.env("SECOND", packages[1].canonicalize()?);
        steps.command(kind, &mut command)?;
    }
    Ok(())
}
