//! One page over HTTP, to this machine alone. Every connection has a time and a size that it cannot exceed, and
//! there are never more than a few at once.
//!
//! Knows GET and HEAD of `/` and nothing else. The `Host` header must name this machine, so that a
//! foreign site whose name leads here cannot read the page (DNS rebinding).

use crate::failure::Failure;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long a connection may take for its request, and again for its answer.
const CONNECTION: Duration = Duration::from_secs(10);
/// How long a single read or write may wait before the clock is looked at.
const TICK: Duration = Duration::from_millis(250);
/// How often the server looks for connections and for signals.
const POLL: Duration = Duration::from_millis(20);
/// Bytes of a request's head.
const MAX_HEAD: usize = 8 << 10;
/// Connections at once; a browser opens up to six.
const MAX_CONNECTIONS: usize = 32;

/// A listening socket on loopback.
pub(crate) struct Server {
    listener: TcpListener,
    address: SocketAddr,
}

impl Server {
    /// Listens at `port`, or at a free one for 0.
    pub(crate) fn bind(port: u16) -> Result<Self, Failure> {
        let failed = |source| Failure::Listen { port, source };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }

    /// Where the page is.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Serves `page` until `check` fails.
    pub(crate) fn run(
        &self,
        page: String,
        check: impl Fn() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let (page, open) = (Arc::<str>::from(page), Arc::new(AtomicUsize::new(0)));
        let port = self.address.port();
        loop {
            check()?;
            match self.listener.accept() {
                Ok((stream, _)) => {
                    let (page, place) = (Arc::clone(&page), Place::take(&open));
                    if let Some(place) = place {
                        // Without a thread the connection is dropped, like one too many.
                        let serve = move || {
                            let _ = answer(stream, port, &page);
                            drop(place);
                        };
                        let _ = thread::Builder::new().name("connection".to_owned()).spawn(serve);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(POLL),
                // A connection that broke before it was accepted is no fault of the server's; a lack
                // of file handles may pass.
                Err(_) => thread::sleep(POLL),
            }
        }
    }
}

/// One of the connections that may be open.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(open: &Arc<AtomicUsize>) -> Option<Self> {
        let place = Self(Arc::clone(open));
        (open.fetch_add(1, Ordering::Relaxed) < MAX_CONNECTIONS).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Reads one request, answers it and closes.
fn answer(mut stream: TcpStream, port: u16, page: &str) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(TICK))?;
    stream.set_write_timeout(Some(TICK))?;
    let reply = match read_head(&mut stream)? {
        Some(head) => reply(&head, port, page),
        None => Reply::error("431 Request Header Fields Too Large"),
    };
    write_all(&mut stream, &reply.bytes())?;
    stream.shutdown(Shutdown::Write)
}

/// The request up to its empty line; `None` when that does not come within the size.
fn read_head(stream: &mut TcpStream) -> io::Result<Option<String>> {
    let deadline = Instant::now() + CONNECTION;
    let (mut head, mut part) = (Vec::new(), [0; 1024]);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() > MAX_HEAD {
            return Ok(None);
        }
        match stream.read(&mut part) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => head.extend_from_slice(&part[..read]),
            Err(error) => wait_on(error, deadline)?,
        }
        if Instant::now() > deadline {
            return Err(ErrorKind::TimedOut.into());
        }
    }
    Ok(Some(String::from_utf8_lossy(&head).into_owned()))
}

fn write_all(stream: &mut TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    let deadline = Instant::now() + CONNECTION;
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) => wait_on(error, deadline)?,
        }
        if Instant::now() > deadline {
            return Err(ErrorKind::TimedOut.into());
        }
    }
    Ok(())
}

/// Lets an expired tick pass, until the deadline.
fn wait_on(error: io::Error, deadline: Instant) -> io::Result<()> {
    let tick = matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    );
    if tick && Instant::now() <= deadline { Ok(()) } else { Err(error) }
}

/// An answer.
struct Reply<'a> {
    status: &'static str,
    body: &'a str,
    length: usize,
    kind: &'static str,
}

impl Reply<'_> {
    fn error(status: &'static str) -> Self {
        Self { status, body: status, length: status.len(), kind: "text/plain" }
    }

    fn bytes(&self) -> Vec<u8> {
        let Self { status, body, length, kind } = self;
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Length: {length}\r\n\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n\
             {body}"
        )
        .into_bytes()
    }
}

fn reply<'a>(head: &str, port: u16, page: &'a str) -> Reply<'a> {
    let mut lines = head.split("\r\n");
    let mut request = lines.next().unwrap_or_default().split(' ');
    let (method, path, version) = (request.next(), request.next(), request.next());
    if !version.is_some_and(|version| version.starts_with("HTTP/1.")) || request.next().is_some() {
        return Reply::error("400 Bad Request");
    }
    let host = lines.filter_map(|line| line.split_once(':'));
    let mut host = host.filter(|(name, _)| name.eq_ignore_ascii_case("host"));
    let named = host.next().map(|(_, value)| value.trim().to_owned());
    let ours = [format!("127.0.0.1:{port}"), format!("localhost:{port}")];
    if !named.is_some_and(|named| ours.contains(&named)) {
        return Reply::error("421 Misdirected Request");
    }
    let body = match method {
        Some("GET") => page,
        Some("HEAD") => "",
        _ => return Reply::error("405 Method Not Allowed"),
    };
    match path {
        Some("/") => Reply { status: "200 OK", body, length: page.len(), kind: "text/html" },
        _ => Reply::error("404 Not Found"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_page_is_answered_and_only_to_this_machine() {
        let status = |head: &str| reply(&format!("{head}\r\n\r\n"), 80, "page").status;
        for (head, expected) in [
            ("GET / HTTP/1.1\r\nHost: 127.0.0.1:80", "200 OK"),
            ("HEAD / HTTP/1.1\r\nhost:localhost:80", "200 OK"),
            ("GET /x HTTP/1.1\r\nHost: 127.0.0.1:80", "404 Not Found"),
            ("GET /../etc/passwd HTTP/1.1\r\nHost: 127.0.0.1:80", "404 Not Found"),
            ("POST / HTTP/1.1\r\nHost: 127.0.0.1:80", "405 Method Not Allowed"),
            ("GET / HTTP/1.1\r\nHost: evil.example:80", "421 Misdirected Request"),
            ("GET / HTTP/1.1\r\nHost: 127.0.0.1:81", "421 Misdirected Request"),
            ("GET / HTTP/1.1", "421 Misdirected Request"),
            ("GET /", "400 Bad Request"),
            ("GET / HTTP/1.1 x\r\nHost: 127.0.0.1:80", "400 Bad Request"),
            ("", "400 Bad Request"),
        ] {
            assert_eq!(status(head), expected, "{head}");
        }
    }

    #[test]
    fn the_head_of_a_page_has_its_length_and_no_body() {
        let reply = reply("HEAD / HTTP/1.1\r\nHost: localhost:80\r\n\r\n", 80, "page");
        let text = String::from_utf8(reply.bytes()).unwrap();
        assert!(text.contains("Content-Length: 4\r\n") && text.ends_with("\r\n\r\n"), "{text}");
    }
}
