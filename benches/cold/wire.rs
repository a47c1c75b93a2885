//! A wire with latency.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Duration, Instant, sleep, sleep_until};

/// A port that forwards connections to another port with a delay.
pub(crate) struct Wire {
    /// Address of the near end.
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Wire {
    /// Lays a wire to a port of this machine. Both a round trip and the opening of a connection take `round_trip`.
    pub(crate) async fn lay(to: SocketAddr, round_trip: Duration) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let connections = Arc::<AtomicUsize>::default();
        let count = connections.clone();
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                // Either side may close the connection, so errors are ignored.
                tokio::spawn(async move { carry(near, to, round_trip).await });
            }
        });
        Ok(Self {
            address,
            connections,
        })
    }

    /// Returns the number of connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

async fn carry(near: TcpStream, to: SocketAddr, round_trip: Duration) -> io::Result<()> {
    // The kernel answers the client's SYN at once, so the round trip of the handshake is added here.
    sleep(round_trip).await;
    let far = TcpStream::connect(to).await?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
    tokio::try_join!(
        delay(near_in, far_out, round_trip / 2),
        delay(far_in, near_out, round_trip / 2)
    )?;
    Ok(())
}

/// Forwards each piece of data after the same time.
async fn delay(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    time: Duration,
) -> io::Result<()> {
    let (sender, mut pieces) = mpsc::channel::<(Instant, Vec<u8>)>(1024);
    let read = async move {
        loop {
            let mut piece = vec![0; 16 << 10];
            let length = from.read(&mut piece).await?;
            piece.truncate(length);
            // One side has closed.
            if length == 0 || sender.send((Instant::now() + time, piece)).await.is_err() {
                return io::Result::Ok(());
            }
        }
    };
    let write = async {
        while let Some((due, piece)) = pieces.recv().await {
            sleep_until(due).await;
            to.write_all(&piece).await?;
        }
        to.shutdown().await
    };
    tokio::try_join!(read, write)?;
    Ok(())
}
