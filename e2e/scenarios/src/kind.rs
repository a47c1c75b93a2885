//! A cluster of kind, which `kind/e2e.sh` creates. Its nodes are containers with kubelets, so Pods really run.

use std::path::{Path, PathBuf};
use std::process::Output;

use testregistry::Pki;
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::distribution::Push;
use crate::fixtures::Images;
use crate::programs;
use crate::wait::until;

/// The variable that is set if the cluster is one of kind.
const KIND: &str = "E2E_KIND";
/// The variable that names the node for arm64, if the cluster has one. No Pod is scheduled there.
const EMULATED: &str = "E2E_EMULATED";

/// What only a cluster of kind has.
pub struct Kind {
    /// The runnable images in a registry that requires [`Kind::USER`] and [`Kind::PASSWORD`].
    pub private: Images,
    /// The address of that registry, as Pods name it.
    pub private_registry: String,
}

impl Kind {
    /// The user of the private registry, as in `kind/htpasswd`.
    pub const USER: &str = "robot";
    /// The password of [`Kind::USER`].
    pub const PASSWORD: &str = "secret";

    pub(crate) fn is_named() -> bool {
        std::env::var_os(KIND).is_some()
    }

    /// Whether the cluster has a node for arm64.
    pub fn has_emulated_node() -> bool {
        std::env::var_os(EMULATED).is_some_and(|node| !node.is_empty())
    }

    /// The name of the node for arm64.
    ///
    /// # Panics
    /// If the cluster has none.
    pub fn emulated_node(&self) -> String {
        variable(EMULATED)
    }

    /// Pushes the images that nodes run.
    pub(crate) async fn find(push: &Push, images: &Images) -> Self {
        Images::push_programs(push).await;
        let private =
            Push::plain(&variable("E2E_PRIVATE_PUSH")).logged_in(Self::USER, Self::PASSWORD);
        Images::push_programs(&private).await;
        let private_registry = variable("E2E_PRIVATE_REGISTRY");
        Self {
            private: images.in_registry(&private_registry),
            private_registry,
        }
    }

    /// Starts another registry with the runnable images, in a container with these two names. `pki` issues its certificate.
    pub async fn start_registry(&self, [name, alias]: [&str; 2], pki: &Pki) {
        let tls = tempfile::tempdir().unwrap();
        pki.leaf(&[name, alias, "127.0.0.1"])
            .write(tls.path())
            .unwrap();
        let certificate = "REGISTRY_HTTP_TLS_CERTIFICATE=/tls.crt";
        let key = "REGISTRY_HTTP_TLS_KEY=/tls.key";
        // A run whose cluster was kept may have left one.
        self.shell(
            Self::repository(),
            &format!("docker rm --force '{name}' >/dev/null 2>&1 || true"),
        )
        .await;
        let create = [
            "create",
            "--name",
            name,
            "--network",
            "kind",
            "--network-alias",
            alias,
        ];
        let listen = [
            "--publish",
            "127.0.0.1::443",
            "--env",
            "REGISTRY_HTTP_ADDR=:443",
        ];
        let tls_files = ["--env", certificate, "--env", key, "registry:2"];
        self.docker(&[&create[..], &listen, &tls_files].concat())
            .await;
        for file in ["tls.crt", "tls.key"] {
            let file = tls.path().join(file).display().to_string();
            self.docker(&["cp", &file, &format!("{name}:/")]).await;
        }
        self.docker(&["start", name]).await;
        let address = self.docker(&["port", name, "443/tcp"]).await;
        let address = address.lines().next().expect("an address");
        until(&format!("{name} listens"), async || {
            TcpStream::connect(address).await.ok().map(drop)
        })
        .await;
        Images::push_programs(&Push::secure(address, pki)).await;
    }

    /// Returns the file of the program that the runnable images have.
    pub async fn program(&self) -> PathBuf {
        programs::program().await
    }

    /// Runs kubectl, which must succeed. Returns its standard output.
    pub async fn kubectl(&self, arguments: &[&str]) -> String {
        successful(
            "kubectl",
            arguments,
            run(Command::new("kubectl").args(arguments)).await,
        )
    }

    /// Runs docker, which must succeed. Returns its standard output. Each node is a container with the node's name.
    pub async fn docker(&self, arguments: &[&str]) -> String {
        successful(
            "docker",
            arguments,
            run(Command::new("docker").args(arguments)).await,
        )
    }

    /// Runs a command of the shell in a directory with `manifests/`, as an administrator does. Returns its standard output.
    pub async fn shell(&self, directory: &Path, command: &str) -> String {
        let helm = programs::helm().await;
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", helm.parent().expect("a directory").display());
        let mut shell = Command::new("bash");
        shell
            .args(["-euo", "pipefail", "-c", command])
            .current_dir(directory)
            .env("PATH", path);
        successful("bash", &[command], run(&mut shell).await)
    }

    /// The repository of the previous release.
    pub fn repository_before() -> PathBuf {
        variable("E2E_BEFORE").into()
    }

    /// Pushes an index of these platforms to the repository of the images that do not run.
    pub async fn push_index(&self, tag: &str, platforms: &[&str]) {
        Images::push_index(&Push::plain(&variable("E2E_PUSH")), tag, platforms).await;
    }

    /// Starts a server for a shared cache in a container of this name. Pods reach it by that name at port 6379.
    pub async fn start_redis(&self, name: &str) {
        let remove = format!("docker rm --force '{name}' >/dev/null 2>&1 || true");
        self.shell(Self::repository(), &remove).await;
        let run = ["run", "--detach", "--name", name, "--network", "kind"];
        let server = ["redis:7", "redis-server", "--protected-mode", "no"];
        self.docker(&[&run[..], &server].concat()).await;
    }

    /// Pushes the image of the tolerarch under test to the repository that the README names, with this tag.
    pub async fn push_tolerarch(&self, tag: &str) {
        self.push_as(&variable("E2E_IMAGE"), tag).await;
    }

    /// Pushes the image of the previous release in the same way.
    pub async fn push_tolerarch_before(&self, tag: &str) {
        self.push_as("tolerarch:before", tag).await;
    }

    /// Adds a label, so that nodes do not have the image: for an image that it has pulled before, a kubelet asks for
    /// credentials again.
    async fn push_as(&self, image: &str, tag: &str) {
        let registry = variable("E2E_PUSH");
        let pushed = format!("{registry}/tolerarch/tolerarch:{tag}");
        let label = format!(
            "echo 'FROM {image}' | docker build --quiet --label e2e={tag} --tag '{pushed}' -"
        );
        self.shell(Self::repository(), &label).await;
        self.docker(&["push", "--quiet", &pushed]).await;
    }

    /// The repository.
    pub fn repository() -> &'static Path {
        programs::repository()
    }

    /// The overlay that installed tolerarch.
    pub fn overlay(&self) -> PathBuf {
        variable("E2E_OVERLAY").into()
    }

    /// Runs a command of tolerarch with the cluster's kubeconfig, as an administrator does.
    pub async fn tolerarch(&self, arguments: &[&str]) -> Output {
        run(Command::new(programs::tolerarch().await).args(arguments)).await
    }
}

async fn run(command: &mut Command) -> Output {
    command
        .kill_on_drop(true)
        .output()
        .await
        .unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

fn successful(program: &str, arguments: &[&str], output: Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns a variable that the script which runs the scenarios sets.
pub(crate) fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"))
}
