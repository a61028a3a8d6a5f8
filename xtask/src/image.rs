//! `cargo xtask image`: a container image from scratch, made without a daemon, and run in namespaces of its own.

use crate::commit;
use crate::need;
use crate::static_binary::{self, Arch, Source, in_namespaces};
use crate::steps::{Steps, cargo, root, succeed, target};
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The user that the image runs as: nobody, as the incumbent's image and Envoy Gateway have it.
const USER: u32 = 65534;

/// Authorities of certificates, as Debian keeps them.
const AUTHORITIES: &str = "etc/ssl/certs/ca-certificates.crt";

/// The list of all crates in the binary, with their versions and licences.
const SBOM: &str = "ratekeeper.cdx.json";

/// Builds the image and tries it; `args` may be `--twice`, which builds the binary twice, too, and compares.
pub(crate) fn image(args: &[String]) -> Result<()> {
    let (source, others) = Source::of_args(args)?;
    let is_built_twice = match others.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => false,
        ["--twice"] if source.binary.is_none() => true,
        _ => bail!("write `image [--binary PATH | --twice] [--arch amd64|arm64]`"),
    };
    let mut steps = Steps::new();
    steps.step("tools", "umoci, cargo-cyclonedx", || {
        need::packages(&[need::UMOCI, need::AUTHORITIES, need::REDIS])?;
        need::cargo_tool(&need::CARGO_CYCLONEDX)
    })?;
    let out = target().join("image");
    fs::create_dir_all(&out)?;
    let binary = source.path(&mut steps)?;
    let sbom = steps.step("sbom", "cargo cyclonedx", || sbom(&out, source.arch))?;
    let made = Image::build(&mut steps, &out.join("first"), &binary, &sbom, source.arch)?;
    let again = match is_built_twice {
        true => static_binary::build(&mut steps, source.arch, &out.join("again"))?,
        false => binary,
    };
    let second = Image::build(&mut steps, &out.join("second"), &again, &sbom, source.arch)?;
    if made.digest != second.digest {
        bail!("two builds differ: {} and {}", made.digest, second.digest);
    }
    if source.arch == Arch::here()? {
        try_out(&mut steps, &out, &made)?;
    }
    let name = format!(
        "ratekeeper-{}-{}.oci.tar",
        commit::version()?,
        source.arch.name()
    );
    let archive = out.join(name);
    steps.step("archive", "tar", || made.archive(&archive))?;
    steps.finish("image");
    eprintln!("  {}\n  {}", archive.display(), made.digest);
    Ok(())
}

/// An image as a folder of the OCI layout.
struct Image {
    layout: PathBuf,
    digest: String,
}

impl Image {
    fn build(
        steps: &mut Steps,
        folder: &Path,
        binary: &Path,
        sbom: &Path,
        arch: Arch,
    ) -> Result<Image> {
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
        let (tree, layout) = (folder.join("tree"), folder.join("oci"));
        steps.step("image", "umoci", || {
            lay_out(&tree, binary, sbom)?;
            assemble(&tree, &layout, arch)?;
            let digest = digest(&layout)?;
            Ok(Image { layout, digest })
        })
    }

    /// Writes the image as the one file that registries' tools, podman and Docker load.
    fn archive(&self, path: &Path) -> Result<()> {
        let mut tar = Command::new("tar");
        tar.args(["--create", "--sort=name", "--owner=0", "--group=0"]);
        tar.arg("--numeric-owner")
            .arg(format!("--mtime=@{}", commit::time()?));
        tar.arg("--file")
            .arg(path)
            .arg("--directory")
            .arg(&self.layout);
        succeed(tar.args(["oci-layout", "index.json", "blobs"]))
    }
}

/// Lays out the files of the image, all of the time of the commit.
fn lay_out(tree: &Path, binary: &Path, sbom: &Path) -> Result<()> {
    let copy = |from: &Path, to: &str, mode: u32| -> Result<()> {
        let to = tree.join(to);
        fs::create_dir_all(to.parent().context("a file is in a folder")?)?;
        fs::copy(from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
        Ok(fs::set_permissions(&to, fs::Permissions::from_mode(mode))?)
    };
    copy(binary, "bin/ratekeeper", 0o755)?;
    // Under this name it takes envoyproxy/ratelimit's place, as in Envoy Gateway.
    symlink("ratekeeper", tree.join("bin/ratelimit"))?;
    copy(&Path::new("/").join(AUTHORITIES), AUTHORITIES, 0o644)?;
    for file in ["ratekeeper.yaml", "rules/api.yaml", "rules/tenants.yaml"] {
        let from = root().join("config").join(file);
        copy(&from, &format!("etc/ratekeeper/{file}"), 0o644)?;
    }
    copy(
        &root().join("LICENSE"),
        "usr/share/doc/ratekeeper/LICENSE",
        0o644,
    )?;
    copy(sbom, &format!("usr/share/doc/ratekeeper/{SBOM}"), 0o644)?;
    fs::write(
        tree.join("etc/passwd"),
        format!("nobody:x:{USER}:{USER}::/:\n"),
    )?;
    fs::write(tree.join("etc/group"), format!("nobody:x:{USER}:\n"))?;
    // For a volume of state; a volume takes over the owner of the folder that it is mounted on.
    let state = tree.join("var/lib/ratekeeper");
    fs::create_dir_all(&state)?;
    fs::set_permissions(&state, fs::Permissions::from_mode(0o700))?;
    chown(&state, Some(USER), Some(USER)).context("files get their owners only from root")?;
    let mut times = Command::new("find");
    times.arg(tree).args(["-exec", "touch", "--no-dereference"]);
    times.args([&format!("--date=@{}", commit::time()?), "{}", "+"]);
    succeed(&mut times)
}

/// Makes an image of one layer.
fn assemble(tree: &Path, layout: &Path, arch: Arch) -> Result<()> {
    let created = created()?;
    let image = format!("{}:latest", layout.display());
    let umoci = |args: &[&str]| succeed(Command::new("umoci").args(args));
    umoci(&["init", "--layout", &layout.display().to_string()])?;
    umoci(&["new", "--image", &image])?;
    let tree = tree.display().to_string();
    let mut insert = vec!["insert", "--image", &image];
    insert.extend(["--history.created", &created, "--history.created_by"]);
    insert.extend(["cargo xtask image", &tree, "/"]);
    umoci(&insert)?;
    let user = format!("{USER}:{USER}");
    let labels = [
        "title=Ratekeeper".to_owned(),
        format!("version={}", commit::version()?),
        format!("revision={}", commit::id("HEAD")?),
        "source=https://github.com/ratekeeper/ratekeeper".to_owned(),
        "licenses=Apache-2.0".to_owned(),
    ];
    let labels = labels.map(|label| format!("org.opencontainers.image.{label}"));
    let mut config = vec![
        ["--config.user", &user],
        // Exec form, so that SIGTERM reaches ratekeeper, which then drains.
        ["--config.entrypoint", "/bin/ratekeeper"],
        ["--config.exposedports", "8080/tcp"],
        ["--config.exposedports", "8081/tcp"],
        // Fargate's volumes belong to root where the image does not name the place as one.
        ["--config.volume", "/var/lib/ratekeeper"],
        ["--architecture", arch.name()],
        ["--os", "linux"],
        ["--created", &created],
    ];
    config.extend(
        labels
            .iter()
            .map(|label| ["--config.label", label.as_str()]),
    );
    let mut args = vec!["config", "--no-history", "--image", &image];
    args.extend(config.as_flattened());
    umoci(&args)?;
    umoci(&["gc", "--layout", &layout.display().to_string()])
}

/// The digest of the image's manifest, which names everything in it.
fn digest(layout: &Path) -> Result<String> {
    let index = fs::read_to_string(layout.join("index.json"))?;
    let start = index.find("sha256:").context("the index names no digest")?;
    let digest = index.get(start..start + "sha256:".len() + 64);
    Ok(digest.context("the digest is cut off")?.to_owned())
}

/// The time of the commit as the OCI writes times.
fn created() -> Result<String> {
    let time = commit::time()?;
    let output = Command::new("date")
        .args([
            "--utc",
            "--date",
            &format!("@{time}"),
            "+%Y-%m-%dT%H:%M:%SZ",
        ])
        .output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Writes the list of crates in the binary.
fn sbom(out: &Path, arch: Arch) -> Result<PathBuf> {
    let mut command = cargo(["cyclonedx", "--format", "json", "--no-build-deps"]);
    command.args(["--target", arch.triple(), "--override-filename"]);
    command.arg(SBOM.trim_end_matches(".json"));
    // The time of the commit, and no random number of the document.
    command.env("SOURCE_DATE_EPOCH", commit::time()?);
    succeed(&mut command)?;
    let kept = out.join(SBOM);
    fs::rename(root().join("crates/ratekeeper-cli").join(SBOM), &kept)?;
    // It writes one for each member of the workspace, beside its manifest.
    for folder in ["crates", "examples", "."] {
        for member in fs::read_dir(root().join(folder))? {
            let _ = fs::remove_file(member?.path().join(SBOM));
        }
    }
    Ok(kept)
}

/// Unpacks the image and runs it as a container runtime would.
fn try_out(steps: &mut Steps, out: &Path, image: &Image) -> Result<()> {
    let bundle = out.join("bundle");
    if bundle.exists() {
        fs::remove_dir_all(&bundle)?;
    }
    let name = format!("{}:latest", image.layout.display());
    let mut unpack = Command::new("umoci");
    unpack.args(["unpack", "--image", &name]).arg(&bundle);
    steps.command("unpack", &mut unpack)?;
    let mut command = in_namespaces("xtask/src/image/try.sh");
    command.env("BUNDLE", bundle.canonicalize()?);
    steps.command("run", &mut command)
}
