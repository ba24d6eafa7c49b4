//! Forwards ports of this machine into a sandbox: connections to a port inside reach the same port
//! outside.

use tokio::net::{TcpListener, TcpStream};

/// Accepts connections and connects each with this port of this machine.
pub(crate) async fn serve(listener: TcpListener, port: u16) {
    loop {
        let Ok((mut inside, _)) = listener.accept().await else {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            continue;
        };
        tokio::spawn(async move {
            let outside = match TcpStream::connect(("127.0.0.1", port)).await {
                Ok(stream) => Ok(stream),
                Err(_) => TcpStream::connect(("::1", port)).await,
            };
            // Without a service the connection is closed, as if it had been refused.
            if let Ok(mut outside) = outside {
                let _ = tokio::io::copy_bidirectional(&mut inside, &mut outside).await;
            }
        });
    }
}
