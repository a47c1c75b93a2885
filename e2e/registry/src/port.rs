//! Ports that nobody else gets: a server may end and come back, or never come.

use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;

use tokio::net::TcpSocket;

use crate::lock;

/// Takes a port for as long as this process lives, any free one for port 0, and does not listen: connections to it are
/// refused until a server listens there. The system lets servers do so that reuse addresses, as all do, and gives the port
/// to nobody who asks for any.
///
/// # Errors
/// Somebody listens there.
pub fn reserve(address: SocketAddr) -> io::Result<SocketAddr> {
    static HELD: Mutex<Vec<TcpSocket>> = Mutex::new(Vec::new());
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let address = socket.local_addr()?;
    lock(&HELD).push(socket);
    Ok(address)
}
