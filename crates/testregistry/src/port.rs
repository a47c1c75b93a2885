//! Reserved ports, so that a server can end and start again at the same port, or never start.

use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;

use tokio::net::TcpSocket;

use crate::lock;

/// Reserves a port until this process ends, any free one for port 0, without listening: connections are refused until a
/// server listens there. A server that reuses addresses, as all do, can listen on the port. The system does not give it to
/// programs that want any free port.
///
/// # Errors
/// A server listens on the port.
pub fn reserve(address: SocketAddr) -> io::Result<SocketAddr> {
    let socket = take(address)?;
    let address = socket.local_addr()?;
    hold(socket);
    Ok(address)
}

/// Keeps a taken port until this process ends.
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
