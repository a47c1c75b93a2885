//! nginx with TLS, as people put it in front of registries.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use testregistry::Pki;
use tokio::process::Child;

use super::tools::{command, free_address, serve};

/// A running nginx.
pub(crate) struct Nginx {
    pub(crate) address: String,
    pub(crate) process: Child,
}

impl Nginx {
    /// Starts nginx on this host, with its files in `directory`. `locations` returns the locations for its address. All locations
    /// with `limit_req zone=minute` together let one request a minute pass.
    pub(crate) async fn start(
        home: &Path,
        pki: &Pki,
        host: &str,
        directory: &Path,
        locations: impl FnOnce(&str) -> String,
    ) -> Self {
        certificate(pki, directory);
        let address = free_address(host);
        let config = format!(
            "daemon off; master_process off; pid nginx.pid; error_log stderr;
             events {{}}
             http {{
               limit_req_zone $server_port zone=minute:1m rate=1r/m; limit_req_status 429;
               access_log off; client_max_body_size 0; proxy_http_version 1.1;
               client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
               uwsgi_temp_path uwsgi; scgi_temp_path scgi;
               server {{
                 listen {address} ssl; ssl_certificate tls.crt; ssl_certificate_key tls.key;
                 proxy_set_header Host $http_host;
                 {}
               }}
             }}",
            locations(&address)
        );
        fs::write(directory.join("nginx.conf"), config).unwrap();
        let mut program = command("nginx", home);
        program
            .arg("-p")
            .arg(directory)
            .args(["-c", "nginx.conf", "-e", "stderr"]);
        let process = serve(&mut program, &address).await;
        Self { address, process }
    }
}

/// Writes a certificate and its authority to this directory, and returns the paths as distribution's configuration names them.
pub(crate) fn certificate(pki: &Pki, directory: &Path) -> Value {
    pki.leaf(&["127.0.0.1", "127.0.0.2"])
        .write(directory)
        .unwrap();
    fs::write(directory.join("ca.crt"), pki.ca_pem()).unwrap();
    json!({"certificate": directory.join("tls.crt"), "key": directory.join("tls.key")})
}
