//! What a Service is to connections: each one goes to a replica that is ready.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Forwards connections, in turn, until it is dropped.
pub struct Forwarder {
    /// Where it listens, as a webhook's URL.
    pub url: String,
    ready: Arc<Mutex<Vec<u16>>>,
    task: JoinHandle<()>,
}

impl Forwarder {
    /// Starts one with these ports of 127.0.0.1.
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
                    // Without a replica connections are refused, or reset as here.
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

    /// From now on new connections go to these ports.
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
        // A Service does not hold packets back; 40 ms would be measured.
        for side in [&connection, &replica] {
            side.set_nodelay(true).unwrap();
        }
        // Either side may end it in any way.
        let _ = copy_bidirectional(&mut connection, &mut replica).await;
    }
}
