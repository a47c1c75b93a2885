//! A cluster of kind: its nodes are containers with kubelets, so what Pods do there is real. `kind/e2e.sh` makes it.

use std::path::{Path, PathBuf};
use std::process::Output;

use testregistry::Pki;
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::distribution::Push;
use crate::fixtures::Images;
use crate::programs;
use crate::wait::until;

/// Set where the cluster is one of kind.
const KIND: &str = "E2E_KIND";
/// Names the node for arm64, where there is one; no Pod is scheduled there.
const EMULATED: &str = "E2E_EMULATED";

/// What there is only on kind.
pub struct Kind {
    /// The runnable images again, in a registry that asks for [`Kind::USER`] and [`Kind::PASSWORD`].
    pub private: Images,
    /// The address of that registry, as Pods name it.
    pub private_registry: String,
}

impl Kind {
    /// Who may read and write the private registry; `kind/htpasswd` says the same.
    pub const USER: &str = "robot";
    /// With this password.
    pub const PASSWORD: &str = "secret";

    pub(crate) fn is_named() -> bool {
        std::env::var_os(KIND).is_some()
    }

    /// Whether one of its nodes is for arm64.
    pub fn has_emulated_node() -> bool {
        std::env::var_os(EMULATED).is_some_and(|node| !node.is_empty())
    }

    /// The name of the node for arm64.
    ///
    /// # Panics
    /// Without one, where scenarios of two architectures are not run.
    pub fn emulated_node(&self) -> String {
        variable(EMULATED)
    }

    /// Pushes what its nodes run.
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

    /// Starts another registry with the runnable images, in a container of these two names, with a certificate of this
    /// authority for both.
    pub async fn start_registry(&self, [name, alias]: [&str; 2], pki: &Pki) {
        let tls = tempfile::tempdir().unwrap();
        pki.leaf(&[name, alias, "127.0.0.1"])
            .write(tls.path())
            .unwrap();
        let certificate = "REGISTRY_HTTP_TLS_CERTIFICATE=/tls.crt";
        let key = "REGISTRY_HTTP_TLS_KEY=/tls.key";
        // One may be left of a run whose cluster was kept.
        self.shell(
            Self::repository(),
            &format!("docker rm --force '{name}' >/dev/null 2>&1 || true"),
        )
        .await;
        let named = [
            "create",
            "--name",
            name,
            "--network",
            "kind",
            "--network-alias",
            alias,
        ];
        let open = [
            "--publish",
            "127.0.0.1::443",
            "--env",
            "REGISTRY_HTTP_ADDR=:443",
        ];
        let tls_files = ["--env", certificate, "--env", key, "registry:2"];
        self.docker(&[&named[..], &open, &tls_files].concat()).await;
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

    /// A file with the program of the runnable images.
    pub async fn program(&self) -> PathBuf {
        programs::program().await
    }

    /// Runs kubectl to its good end. Gives its standard output.
    pub async fn kubectl(&self, arguments: &[&str]) -> String {
        successful(
            "kubectl",
            arguments,
            run(Command::new("kubectl").args(arguments)).await,
        )
    }

    /// Runs docker to its good end: each node is a container of the node's name. Gives its standard output.
    pub async fn docker(&self, arguments: &[&str]) -> String {
        successful(
            "docker",
            arguments,
            run(Command::new("docker").args(arguments)).await,
        )
    }

    /// Runs a command of the shell as an administrator types it, in a directory with `manifests/`. Gives what it wrote.
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

    /// The repository of the release before.
    pub fn repository_before() -> PathBuf {
        variable("E2E_BEFORE").into()
    }

    /// Pushes an index of these platforms, by a tag of the images that are only looked up.
    pub async fn push_index(&self, tag: &str, platforms: &[&str]) {
        Images::push_index(&Push::plain(&variable("E2E_PUSH")), tag, platforms).await;
    }

    /// Starts a server for a shared cache in a container of this name, which Pods reach by it at port 6379.
    pub async fn start_redis(&self, name: &str) {
        let remove = format!("docker rm --force '{name}' >/dev/null 2>&1 || true");
        self.shell(Self::repository(), &remove).await;
        let run = ["run", "--detach", "--name", name, "--network", "kind"];
        let server = ["redis:7", "redis-server", "--protected-mode", "no"];
        self.docker(&[&run[..], &server].concat()).await;
    }

    /// Pushes the image of tolerarch that is under test, under this tag, to where the README has it.
    pub async fn push_tolerarch(&self, tag: &str) {
        self.push_as(&variable("E2E_IMAGE"), tag).await;
    }

    /// Pushes that of the release before.
    pub async fn push_tolerarch_before(&self, tag: &str) {
        self.push_as("tolerarch:before", tag).await;
    }

    /// It becomes another image than that which nodes have: a kubelet asks for credentials again where it has pulled what was there.
    async fn push_as(&self, image: &str, tag: &str) {
        let pushed = variable("E2E_PUSH");
        let pushed = format!("{pushed}/tolerarch/tolerarch:{tag}");
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

    /// The overlay by which tolerarch was installed.
    pub fn overlay(&self) -> PathBuf {
        variable("E2E_OVERLAY").into()
    }

    /// Runs a command of tolerarch as an administrator does, with the kubeconfig of the cluster.
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

/// What the script that runs the scenarios says of the cluster.
pub(crate) fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"))
}
