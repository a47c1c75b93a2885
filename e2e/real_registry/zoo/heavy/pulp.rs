//! Pulp. Its API server serves manifests, and redirects requests for blobs to its content server at another port.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::json;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::super::agreement::{check_agreement, inspect};
use super::super::depot::{Depot, REPO};
use super::super::servers::Server;
use super::super::tools::{are_installed, command, free_address, run, serve};
use crate::real_registry::token_server::{PASSWORD, USER};
use crate::support::until;

/// Programs of Pulp, with the file of their settings.
struct Pulp<'a> {
    depot: &'a Depot,
    settings: PathBuf,
}

impl<'a> Pulp<'a> {
    fn program(&self, name: &str) -> Command {
        let mut program = command(name, &self.depot.home);
        program.env("PULP_SETTINGS", &self.settings);
        program
    }

    async fn manage(&self, arguments: &[&str]) {
        let mut manager = self.program("pulpcore-manager");
        run(manager
            .args(arguments)
            .env("DJANGO_SUPERUSER_PASSWORD", PASSWORD))
        .await;
    }

    async fn start(depot: &'a Depot) -> (Server, Self) {
        let directory = tempfile::tempdir().unwrap();
        let address = free_address("127.0.0.1");
        let content = free_address("127.0.0.1");
        let pulp = Self {
            depot,
            settings: directory.path().join("settings.py"),
        };
        let mut processes = vec![database(&directory).await];
        pulp.configure(directory.path(), &address, &content).await;
        pulp.manage(&["migrate", "--noinput"]).await;
        let user = [
            "createsuperuser",
            "--noinput",
            "--username",
            USER,
            "--email",
            "user@example.com",
        ];
        pulp.manage(&user).await;
        for (program, address) in [("pulpcore-content", &content), ("pulpcore-api", &address)] {
            processes.push(serve(pulp.program(program).args(["-b", address]), address).await);
        }
        let mut worker = pulp.program("pulpcore-worker");
        let quiet = worker
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        processes.push(quiet.spawn().unwrap());
        let hosts = json!({&address: {"plainHttp": true}, &content: {"plainHttp": true}});
        let server = Server {
            address,
            hosts,
            private: false,
            password: PASSWORD,
            processes,
            directory,
        };
        (server, pulp)
    }

    async fn configure(&self, directory: &Path, address: &str, content: &str) {
        let file = |name: &str| directory.join(name).display().to_string();
        let key = file("token.key");
        let public = file("token.pub");
        let openssl = async |arguments: &[&str]| run(Command::new("openssl").args(arguments)).await;
        openssl(&[
            "ecparam",
            "-genkey",
            "-name",
            "prime256v1",
            "-noout",
            "-out",
            &key,
        ])
        .await;
        openssl(&["ec", "-in", &key, "-pubout", "-out", &public]).await;
        // 32 bytes in base64url.
        fs::write(
            file("fields.key"),
            "em9vLXpvby16b28tem9vLXpvby16b28tem9vLXpvby0=",
        )
        .unwrap();
        for name in ["media", "static", "work", "tmp"] {
            fs::create_dir(file(name)).unwrap();
        }
        let settings = format!(
            r#"SECRET_KEY = "zoo"
DB_ENCRYPTION_KEY = "{fields}"
DATABASES = {{"default": {{"ENGINE": "django.db.backends.postgresql", "HOST": "{database}", "NAME": "postgres", "USER": "postgres"}}}}
CONTENT_ORIGIN = "http://{content}"
DEPLOY_ROOT = "{root}"
MEDIA_ROOT = "{media}"
STATIC_ROOT = "{statics}"
WORKING_DIRECTORY = "{work}"
FILE_UPLOAD_TEMP_DIR = "{tmp}"
TOKEN_SERVER = "http://{address}/token/"
TOKEN_SIGNATURE_ALGORITHM = "ES256"
PRIVATE_KEY_PATH = "{key}"
PUBLIC_KEY_PATH = "{public}"
"#,
            fields = file("fields.key"),
            database = file("database"),
            root = directory.display(),
            media = file("media"),
            statics = file("static"),
            work = file("work"),
            tmp = file("tmp"),
        );
        fs::write(&self.settings, settings).unwrap();
    }
}

/// Starts PostgreSQL at a socket in the directory. It runs as the user `postgres`, as it refuses to run as root.
async fn database(directory: &TempDir) -> Child {
    let versions = fs::read_dir("/usr/lib/postgresql").expect("PostgreSQL of Debian");
    let programs = versions
        .map(|version| version.unwrap().path().join("bin"))
        .max()
        .unwrap();
    let id = async |flag: &str| {
        run(Command::new("id").args([flag, "postgres"]))
            .await
            .trim()
            .parse::<u32>()
            .unwrap()
    };
    let user = id("-u").await;
    let group = id("-g").await;
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    let data = directory.path().join("database");
    fs::create_dir(&data).unwrap();
    chown(&data, Some(user), Some(group)).unwrap();
    let as_postgres = |program: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
        command
            .arg(programs.join(program))
            .arg("-D")
            .arg(&data)
            .current_dir(&data)
            .kill_on_drop(true);
        command
    };
    run(as_postgres("initdb").args(["--auth=trust", "--username=postgres"])).await;
    let mut server = as_postgres("postgres");
    server.args(["-c", "listen_addresses=", "-c", "fsync=off", "-c"]);
    server.arg(format!("unix_socket_directories={}", data.display()));
    let quiet = server
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let process = quiet.spawn().unwrap();
    until("PostgreSQL listens", async || {
        data.join(".s.PGSQL.5432").exists()
    })
    .await;
    process
}

#[tokio::test]
#[ignore = "needs e2e/zoo/install-heavy"]
async fn pulp_with_its_blobs_at_another_port() {
    assert!(
        are_installed(&["pulpcore-api", "registry"]),
        "run e2e/zoo/install-heavy"
    );
    let depot = Depot::get().await.expect("what e2e/zoo/install makes");
    let (server, pulp) = Pulp::start(depot).await;
    let from = Server::open("registry", &depot.content, &depot.home).await;
    fs::write(
        server.directory.path().join("config.json"),
        server.docker_config().to_string(),
    )
    .unwrap();
    let [source, target] = [&from, &server].map(|server| format!("{}/{REPO}", server.address));
    let mut crane = command("crane", &depot.home);
    crane.env("DOCKER_CONFIG", server.directory.path());
    run(crane.args(["copy", "--jobs=1", "--all-tags", &source, &target])).await;

    check_agreement(depot, &server, REPO).await;
    let all_private = "from pulp_container.app.models import ContainerDistribution as D; D.objects.update(private=True)";
    pulp.manage(&["shell", "-c", all_private]).await;
    let name = [format!("{}/{REPO}:crane", server.address)];
    let inspected = inspect(&server, &name).await.remove(0);
    assert_eq!(inspected["reason"], "denied", "{inspected}");
    let server = Server {
        private: true,
        ..server
    };
    check_agreement(depot, &server, REPO).await;
    let wrong_password = Server {
        password: "wrong",
        ..server
    };
    let inspected = inspect(&wrong_password, &name).await.remove(0);
    assert_eq!(inspected["reason"], "denied", "{inspected}");
}
