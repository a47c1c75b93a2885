//! A stand-in for a Service: each connection goes to a ready replica.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Forwards connections to its ports in turn, until it is dropped.
pub struct Forwarder {
    /// The URL of the webhook behind it.
    pub url: String,
    ready: Arc<Mutex<Vec<u16>>>,
    task: JoinHandle<()>,
}

impl Forwarder {
    /// Starts a forwarder to these ports of 127.0.0.1.
    pub async fn start(ports: &[u16]) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("https://{}/mutate", listener.local_addr().unwrap());
        let ready = Arc::new(Mutex::new(ports.to_vec()));
        let replicas = ready.clone();
        let task = tokio::spawn(async move {
            for turn in 0.. {
                let Ok((connection, _)) = listener.accept().await else {
                    break;
                };
                let port = {
                    let ready = replicas.lock().unwrap();
                    // Without a replica, a Service refuses or resets connections; here they are reset.
                    if ready.is_empty() {
                        continue;
                    } else {
                        ready[turn % ready.len()]
                    }
                };
                tokio::spawn(forward(connection, port));
            }
        });
        Self { url, ready, task }
    }

    /// Sends new connections to these ports from now on.
    pub fn only(&self, ports: &[u16]) {
        *self.ready.lock().unwrap() = ports.to_vec();
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn forward(mut connection: TcpStream, port: u16) {
    if let Ok(mut replica) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
        // A Service does not delay packets. Without this, scenarios would measure 40 ms.
        for side in [&connection, &replica] {
            side.set_nodelay(true).unwrap();
        }
        // Either side may end the connection in any way.
        let _ = copy_bidirectional(&mut connection, &mut replica).await;
    }
}
