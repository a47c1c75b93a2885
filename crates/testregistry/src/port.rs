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
    let socket = take(address)?;
    let address = socket.local_addr()?;
    hold(socket);
    Ok(address)
}

/// Keeps a port that has been taken for as long as this process lives.
pub(crate) fn hold(socket: TcpSocket) {
    static HELD: Mutex<Vec<TcpSocket>> = Mutex::new(Vec::new());
    lock(&HELD).push(socket);
}

/// Takes a port until the socket is dropped.
pub(crate) fn take(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}
