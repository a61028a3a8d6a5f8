//! `cargo xtask manifests`: what can be said of the files for Kubernetes, Compose, CloudFormation and of the workflows without
//! a cluster, Docker and accounts.

use crate::need;
use crate::steps::{Steps, root};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The chart.
const CHART: &str = "deploy/helm/ratekeeper";

/// The version of Kubernetes for which the chart is rendered.
const KUBERNETES: &str = "1.37";

/// The rules of the rendered manifests: the chart has none.
const RULES: &str = r"rules.api\.yaml=deploy/helm/rules.yaml";

/// The rendered manifests, and the values that differ from the chart's defaults.
const RENDERED: [(&str, &[&str]); 3] = [
    (
        "deploy/kubernetes/ratekeeper.yaml",
        &["redis.existingSecret=ratekeeper-redis"],
    ),
    (
        "deploy/kubernetes/ratekeeper-single.yaml",
        &["replicas=1", "podDisruptionBudget.enabled=false"],
    ),
    (
        "deploy/kubernetes/ratekeeper-scaled.yaml",
        &[
            "redis.existingSecret=ratekeeper-redis",
            "postgresql.existingSecret=ratekeeper-postgresql",
            "autoscaling.enabled=true",
            "serviceMonitor.enabled=true",
        ],
    ),
];

/// Values that the chart has to refuse, and a part of what it says of them.
const REFUSED: [(&[&str], &str); 5] = [
    (&[], "several nodes share no limits without Redis"),
    (
        &["redis.existingSecret=a", "redis.url=redis://a:6379"],
        "not both",
    ),
    (&["replicas=1", "rules=null"], "there are no rules"),
    (
        &[
            "redis.existingSecret=a",
            "postgresql.existingSecret=b",
            "postgresql.tenantKeySecretKey=",
        ],
        "share the key of tenants",
    ),
    (
        &["redis.existingSecret=a", "service.grpc=9000"],
        "a headless Service maps no ports",
    ),
];

/// Values, and what the chart has to make of them: texts that are in it, and texts that are not.
const MADE: [(&[&str], &[&str], &[&str]); 11] = [
    // Rules of one's own come alone.
    (
        &["redis.existingSecret=a", "rules.shop\\.yaml=domain: shop"],
        &["  shop.yaml: |\n    domain: shop\n"],
        &["api.yaml"],
    ),
    (
        &["redis.url=redis+sentinel://user:p@a\\,b:6390/main"],
        &[
            "{ port: 26379, protocol: TCP }",
            "{ port: 6390, protocol: TCP }",
        ],
        &[],
    ),
    (
        &[
            "redis.url=rediss://:p@redis/0",
            "networkPolicy.egressPorts={5432}",
        ],
        &[
            "{ port: 6379, protocol: TCP }",
            "{ port: 5432, protocol: TCP }",
        ],
        &["port: 26379"],
    ),
    (
        &[
            "redis.existingSecret=a",
            "networkPolicy.egressPorts[0].port=8125",
            "networkPolicy.egressPorts[0].protocol=UDP",
        ],
        &["{ port: 8125, protocol: UDP }"],
        &[],
    ),
    (
        &[
            "redis.existingSecret=a",
            "networkPolicy.egressPorts={redis,5432}",
        ],
        &[
            "{ port: redis, protocol: TCP }",
            "{ port: 5432, protocol: TCP }",
        ],
        &["port: 0"],
    ),
    (
        &["redis.url=null", "redis.existingSecret=a"],
        &["{ port: 6379, protocol: TCP }"],
        &[],
    ),
    (
        &[
            "redis.existingSecret=a",
            "service.type=LoadBalancer",
            "service.grpc=9000",
        ],
        &[
            "type: LoadBalancer\n  selector:",
            "port: 9000, targetPort: grpc",
        ],
        &[],
    ),
    (
        &[
            "redis.existingSecret=a",
            "postgresql.existingSecret=b",
            "extraEnv[0].name=RATEKEEPER_TENANT_KEY",
            "extraEnv[0].value=c",
        ],
        &["name: RATEKEEPER_TENANT_KEY\n              value: c"],
        &["tenant-key"],
    ),
    (
        &[
            "redis.existingSecret=a",
            "settings.drain_delay=15s",
            "terminationGracePeriodSeconds=60",
            "settings.http_tls_cert=/tls/tls.crt",
        ],
        &[
            "terminationGracePeriodSeconds: 60",
            "exec: { command: [/bin/ratekeeper, health, --quiet, \"127.0.0.1:6070\"] }",
        ],
        &["httpGet:"],
    ),
    (
        &["redis.existingSecret=a", "settings.admin=:7000"],
        &["httpGet: { path: /livez, port: metrics }"],
        &["127.0.0.1:6070"],
    ),
    (
        &[
            "redis.existingSecret=a",
            "extraEnv[0].name=RATEKEEPER_ADMIN",
            "extraEnv[0].value=:7000",
        ],
        &["httpGet: { path: /readyz, port: metrics }"],
        &["127.0.0.1:6070"],
    ),
];

/// Checks all of them; with `--bless` the rendered manifests are written again.
pub(crate) fn manifests(args: &[String]) -> Result<()> {
    let is_blessing = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => false,
        ["--bless"] => true,
        _ => bail!("write `manifests` or `manifests --bless`"),
    };
    let mut steps = Steps::new();
    let (tools, cfn_lint) =
        steps.step("tools", "helm, compose-go, actionlint, cfn-lint", || {
            Ok((
                need::go_tools(&need::FOR_MANIFESTS)?,
                need::pip(&need::CFN_LINT)?,
            ))
        })?;
    let tool = |flag: &str| -> Result<&PathBuf> {
        let found = tools.iter().find(|(name, _)| *name == flag);
        Ok(&found
            .with_context(|| format!("{flag} was not installed"))?
            .1)
    };
    let helm = tool("--helm")?;
    let mut lint = Command::new(helm);
    lint.current_dir(root()).args(["lint", "--strict", CHART]);
    lint.args(["--kube-version", KUBERNETES]);
    lint.args(["--set", "redis.existingSecret=ratekeeper-redis"]);
    lint.args(["--set-file", RULES]);
    steps.command("lint", &mut lint)?;
    for (file, values) in RENDERED {
        steps.step("template", file, || {
            compare(helm, file, values, is_blessing)
        })?;
    }
    for (values, reason) in REFUSED {
        steps.step("refusal", reason, || refuses(helm, values, reason))?;
    }
    for (values, texts, others) in MADE {
        steps.step("values", &values.join(" "), || {
            makes(helm, values, texts, others)
        })?;
    }
    let mut compose = Command::new(tool("--compose")?);
    compose
        .current_dir(root().join("deploy"))
        .arg("compose.yaml");
    steps.step("compose", "deploy/compose.yaml", || {
        let output = compose.output()?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    })?;
    let mut lint = Command::new("python3");
    lint.current_dir(root()).env("PYTHONPATH", &cfn_lint);
    lint.arg(cfn_lint.join("bin/cfn-lint"));
    steps.command("cloudformation", lint.arg("deploy/cloudformation.yaml"))?;
    let mut workflows = Command::new(tool("--actionlint")?);
    steps.command("workflows", workflows.current_dir(root()))?;
    steps.finish("manifests");
    Ok(())
}

/// Renders the chart with these values, and with [`RULES`] if they name none.
fn template(helm: &Path, values: &[&str]) -> Command {
    let mut command = Command::new(helm);
    command.current_dir(root());
    command.args(["template", "ratekeeper", CHART, "--namespace", "ratekeeper"]);
    // A helm from `go install` takes itself for one of Kubernetes 1.20.
    command.args(["--kube-version", KUBERNETES]);
    for value in values {
        command.args(["--set", value]);
    }
    if !values.iter().any(|value| value.starts_with("rules")) {
        command.args(["--set-file", RULES]);
    }
    command
}

/// Holds a rendered manifest of the repository to what the chart makes of its values.
fn compare(helm: &Path, file: &str, values: &[&str], is_blessing: bool) -> Result<()> {
    let path = root().join(file);
    let output = template(helm, values)
        .output()
        .context("cannot start helm")?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr));
    }
    let set = values.iter().map(|value| format!(" --set {value}"));
    let head = format!(
        "# Rendered from {CHART} by `cargo xtask manifests --bless`:\n\
         #   helm template ratekeeper {CHART} --namespace ratekeeper{} --set-file '{RULES}'\n",
        set.collect::<String>()
    );
    let rendered = head + &String::from_utf8(output.stdout)?;
    if is_blessing {
        fs::create_dir_all(path.parent().context("a file is in a folder")?)?;
        return Ok(fs::write(path, rendered)?);
    }
    if fs::read_to_string(&path).ok().as_deref() != Some(&rendered) {
        bail!("{file} is not what the chart makes: `cargo xtask manifests --bless` writes it");
    }
    Ok(())
}

/// Holds what the chart makes of values to the texts that have to be in it, and to those that must not be.
fn makes(helm: &Path, values: &[&str], texts: &[&str], others: &[&str]) -> Result<()> {
    let output = template(helm, values)
        .output()
        .context("cannot start helm")?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr));
    }
    let made = String::from_utf8(output.stdout)?;
    for text in texts {
        if !made.contains(text) {
            bail!("the chart makes no {text:?} of {values:?}");
        }
    }
    for other in others {
        if made.contains(other) {
            bail!("the chart makes {other:?} of {values:?}");
        }
    }
    Ok(())
}

fn refuses(helm: &Path, values: &[&str], reason: &str) -> Result<()> {
    let output = template(helm, values)
        .output()
        .context("cannot start helm")?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() || !said.contains(reason) {
        bail!("the chart did not refuse {values:?}: {said}");
    }
    Ok(())
}
