//! `view`: what it writes, what it refuses, and a server that nobody can hold up.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where something is wrong")]

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::{Sandbox, command, ringattn, run};

/// The page as it comes on stdout, read as it comes: a pipe does not hold it.
fn on_stdout() -> String {
    let output = command(&["view", "--out", "-"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_page_is_written_whole() {
    let sandbox = Sandbox::new();
    let page = sandbox.arg("page.html");
    let said = ringattn(&["view", "--out", &page]);
    assert_eq!(said, format!("page        {page}\n"));
    let text = fs::read_to_string(&page).unwrap();
    assert!(text.starts_with("<!doctype html>") && text.ends_with("</html>\n"));
    assert!(on_stdout() == text, "another page on stdout");
    assert_eq!(sandbox.leftovers(), Vec::<String>::new());
}

#[test]
fn what_cannot_be_shown_is_one_line_and_no_page() {
    let sandbox = Sandbox::new();
    let deep = "[".repeat(1 << 20);
    let headline = r#"{"schema":"ringattn.plan/1","ranks":40,"layout":"striped","schedule":"x",
        "mask":"causal","tokens":8,"q_heads":1,"kv_heads":1,"head_dim":1,"kv_dtype":"f32"}"#;
    for (content, expected) in [
        ("", "expected a JSON object"),
        ("\u{0}\u{1}", "expected a JSON object"),
        ("{}", "found no schema"),
        (r#"{"schema":"other/1"}"#, "found other/1"),
        (r#"{"schema":"ringattn.report/1"}"#, "missing field"),
        (headline, "ranks: 40 are more than the 32"),
        (&deep, "expected a JSON object"),
    ] {
        let input = sandbox.write("in.json", content);
        let page = sandbox.write("page.html", "old");
        let (output, _) = run(&mut command(&["view", &input, "--out", &page]));
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{stderr}");
        assert!(stderr.contains(expected) && stderr.contains("in.json"), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        assert_eq!(fs::read_to_string(&page).unwrap(), "old");
        assert_eq!(sandbox.leftovers(), Vec::<String>::new());
    }
}

#[test]
fn other_faults_have_their_codes() {
    let sandbox = Sandbox::new();
    let huge = sandbox.path("huge.json");
    // Sparse: nothing is read of it.
    fs::File::create(&huge).unwrap().set_len((64 << 20) + 1).unwrap();
    let (huge, page) = (huge.to_str().unwrap(), sandbox.arg("page.html"));
    let missing = sandbox.arg("missing.json");
    let folder = sandbox.arg("");
    for (args, code, expected) in [
        (&["view"][..], 2, "--out <PAGE.html>|--serve"),
        (&["view", "--out", &page, "--port", "1"], 2, "--serve"),
        (&["view", "--serve", "--port", "65536"], 2, "65536"),
        (&["view", &missing, "--out", &page], 3, "missing.json"),
        (&["view", &folder, "--out", &page], 3, "found a folder"),
        (&["view", huge, "--out", &page], 3, "67108865 bytes are more than the 67108864"),
        (&["view", huge, "--out", huge], 9, "it is an input"),
        (&["view", "--out", &folder], 9, "cannot write"),
    ] {
        let (output, _) = run(&mut command(args));
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
        assert!(stderr.contains(expected), "{args:?}: {stderr}");
    }
}

/// A server, ended when dropped.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start() -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_ringattn"))
            .args(["view", "--serve"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("http://").unwrap().trim_end_matches('/').to_owned();
        assert!(address.starts_with("127.0.0.1:"), "{address}");
        Self { child, address }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// Everything that comes back for these bytes.
    fn ask(&self, request: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn page(&self) -> String {
        self.ask(&format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", self.address))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_server_gives_the_page_and_nothing_else() {
    let server = Server::start();
    let page = server.page();
    let (head, body) = page.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
    assert!(body == on_stdout(), "another page is served");
    let foreign = server.ask("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    assert!(foreign.starts_with("HTTP/1.1 421 "), "{foreign}");
    let long = server.ask(&format!("GET / HTTP/1.1\r\nX: {}", "a".repeat(10_000)));
    assert!(long.starts_with("HTTP/1.1 431 "), "{long}");
}

#[test]
fn connections_that_say_nothing_hold_up_nobody_and_are_dropped() {
    let server = Server::start();
    let silent: Vec<_> = (0..8).map(|_| server.connect()).collect();
    let mut slow = server.connect();
    slow.write_all(b"GET / HT").unwrap();
    assert!(server.page().starts_with("HTTP/1.1 200 OK"));
    for mut stream in silent.into_iter().chain([slow]) {
        // The server lets go after 10 seconds; the stream's own limit is 20.
        assert!(matches!(stream.read(&mut [0; 1]), Ok(0)), "still open");
    }
    assert!(server.page().starts_with("HTTP/1.1 200 OK"));
}

#[test]
fn a_crowd_is_turned_away_until_it_leaves() {
    let server = Server::start();
    let crowd: Vec<_> = (0..64).map(|_| server.connect()).collect();
    drop(crowd);
    let start = Instant::now();
    // Closed connections are noticed at once: nobody has to wait for their time to run out.
    loop {
        let mut stream = server.connect();
        let request = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", server.address);
        let mut answer = String::new();
        let sent = stream.write_all(request.as_bytes());
        if sent.and_then(|()| stream.read_to_string(&mut answer)).is_ok() && !answer.is_empty() {
            assert!(answer.starts_with("HTTP/1.1 200 OK"));
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "nobody is let in");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_taken_port_is_named() {
    let server = Server::start();
    let port = server.address.rsplit(':').next().unwrap();
    let (output, _) = run(&mut command(&["view", "--serve", "--port", port]));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(9), "{stderr}");
    assert!(stderr.contains(&format!("cannot serve at port {port}")), "{stderr}");
}
