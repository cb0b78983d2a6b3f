//! The daemon's private socket: what is asked comes back, and clients that break the rules harm nobody else.

use aktis_daemon::admin::{
    Admin, AdminServer, Client, ClientError, LogPage, LogPosition, Refusal, SOCKET_NAME,
};
use aktis_daemon::{Daemon, DaemonConfig, DaemonError, Directory, DirectoryError, HideControl, Role};
use aktis_protocol::admin::{
    ADMIN_VERSION, ClusterStatus, DrainOrder, IdPrefix, JoinToken, KeyReply, KeyRequest, KillOrder, Killed,
    ListKind, ListQuery, Listing, LogLine, LogQuery, LogStream, NodeRow, Rows, StopScope,
};
use aktis_protocol::trust::{TokenId, TrustReply, TrustRequest};
use aktis_protocol::{Amount, NodeId, limits};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

/// Answers from fixed data.
struct Fixed {
    /// How many lines there are; a number in each.
    lines: u64,
    /// Rows of nodes, with a name of so many bytes.
    name_bytes: usize,
    /// What is done before it agrees to end.
    on_stop: Box<dyn Fn() + Send + Sync>,
}

impl Admin for Fixed {
    fn status(&self) -> Result<ClusterStatus, Refusal> {
        Ok(ClusterStatus { drivers: 7, ..ClusterStatus::default() })
    }

    fn stop(&self, scope: StopScope) -> Result<(), Refusal> {
        (self.on_stop)();
        match scope {
            StopScope::Node => Ok(()),
            StopScope::Cluster => Err(Refusal::new("only the head can").with_hint("ask there")),
        }
    }

    fn list(&self, query: &ListQuery) -> Result<Listing, Refusal> {
        let row = NodeRow { host: "x".repeat(self.name_bytes), ..NodeRow::default() };
        let (rows, left_out) = query.select(std::iter::repeat_n(row, 1000));
        Ok(Listing { rows: Rows::Nodes(rows), left_out, silent: Vec::new() })
    }

    fn explain(&self, id: &IdPrefix) -> Result<String, Refusal> {
        Ok(format!("{id} waits"))
    }

    fn logs(
        &self,
        query: &LogQuery,
        position: Option<LogPosition>,
        patience: Duration,
    ) -> Result<LogPage, Refusal> {
        let first = self.lines.saturating_sub(query.tail.map_or(self.lines, u64::from));
        let start = position.map_or(first, |position| position.0[&NodeId::default()]);
        let end = self.lines.min(start + limits::LOG_LINES_MAX as u64);
        if start == end {
            std::thread::park_timeout(patience.min(Duration::from_millis(1)));
        }
        let lines = (start..end).map(line).collect();
        Ok(LogPage {
            lines,
            missed: 0,
            next: LogPosition([(NodeId::default(), end)].into()),
            is_last: end == self.lines,
        })
    }

    fn keys(&self, _: KeyRequest) -> Result<KeyReply, Refusal> {
        Err(Refusal::new("no keys"))
    }

    fn kill(&self, _: &KillOrder) -> Result<Killed, Refusal> {
        Err(Refusal::new("nothing to end"))
    }

    fn drain(&self, _: &DrainOrder) -> Result<NodeId, Refusal> {
        Err(Refusal::new("no node to drain"))
    }

    fn trust(&self, request: TrustRequest) -> Result<TrustReply, Refusal> {
        let TrustRequest::MakeToken { lifetime_seconds: expires_unix_seconds, uses_max } = request else {
            return Err(Refusal::new("only tokens"));
        };
        let (token, address, id) = ("t".into(), "a:1".into(), TokenId(1));
        Ok(TrustReply::Token(JoinToken { token, address, expires_unix_seconds, id, uses_max }))
    }
}

fn line(number: u64) -> LogLine {
    LogLine {
        node: NodeId::default(),
        pid: 1,
        name: "f".into(),
        stream: LogStream::Output,
        unix_milliseconds: 0,
        text: number.to_string(),
    }
}

/// A server in a directory of its own.
struct Served {
    parent: tempfile::TempDir,
    server: Option<AdminServer>,
    _directory: Directory,
}

impl Served {
    fn new(fixed: Fixed) -> Self {
        let parent = tempfile::tempdir().expect("a directory");
        let directory = Directory::claim(&parent.path().join("d")).expect("free");
        let listener = directory.listen(SOCKET_NAME).expect("a socket");
        let server = Some(AdminServer::start(listener, Arc::new(fixed)).expect("started"));
        Self { parent, server, _directory: directory }
    }

    fn path(&self) -> std::path::PathBuf {
        self.parent.path().join("d")
    }

    fn client(&self) -> Client {
        Client::connect(&self.path()).expect("connected")
    }

    fn raw(&self) -> UnixStream {
        UnixStream::connect(self.path().join(SOCKET_NAME)).expect("connected")
    }
}

fn fixed() -> Fixed {
    Fixed { lines: 0, name_bytes: 1, on_stop: Box::new(|| {}) }
}

fn nodes(limit: u32) -> ListQuery {
    ListQuery { what: ListKind::Nodes, limit, node: None, state: None, name: None, filters: Vec::new() }
}

#[test]
fn a_client_asks_several_things() {
    let served = Served::new(fixed());
    let mut client = served.client();
    assert_eq!(client.status().expect("status").drivers, 7);
    assert_eq!(client.list(nodes(10)).expect("rows").left_out, 990);
    assert_eq!(client.explain("abcd".parse().expect("digits")).expect("words"), "abcd waits");
    assert_eq!(client.token(Duration::from_secs(60), None).expect("token").expires_unix_seconds, 60);
}

#[test]
fn a_refusal_has_its_hint_and_an_answer_that_is_too_long_says_so() {
    let served = Served::new(Fixed { name_bytes: 32 << 10, ..fixed() });
    let error = served.client().stop(StopScope::Cluster, PATIENCE).expect_err("refused");
    assert_eq!(error.to_string(), "only the head can\nhint: ask there");
    let mut client = served.client();
    let error = client.list(nodes(1000)).expect_err("too long").to_string();
    assert!(error.starts_with("the answer is too long") && error.contains("--limit"), "{error}");
    client.list(nodes(1)).expect("short enough, on the same connection");
}

#[test]
fn logs_come_in_order_page_by_page() {
    let total = 3 * limits::LOG_LINES_MAX as u64 + 1;
    let served = Served::new(Fixed { lines: total, ..fixed() });
    for (tail, first) in [(None, 0), (Some(5), total - 5), (Some(0), total)] {
        let mut seen = Vec::new();
        let query = LogQuery { tail, ..LogQuery::default() };
        let keep = |lines, _| {
            seen.extend::<Vec<LogLine>>(lines);
            ControlFlow::Continue(())
        };
        served.client().logs(query, keep).expect("lines");
        assert_eq!(seen, (first..total).map(line).collect::<Vec<_>>());
    }
}

#[test]
fn who_follows_the_logs_and_goes_makes_room_for_others() {
    let served = Served::new(Fixed { lines: 1, ..fixed() });
    for _ in 0..2 * limits::ADMIN_CONNECTIONS_MAX {
        let query = LogQuery { follow: true, ..LogQuery::default() };
        let followed = connect_patiently(&served.path()).logs(query, |lines, _| {
            assert_eq!(lines, [line(0)]);
            ControlFlow::Break(())
        });
        followed.expect("a line");
    }
}

/// Connects as soon as there is room.
fn connect_patiently(path: &Path) -> Client {
    loop {
        let mut client = Client::connect(path).expect("connected");
        match client.status() {
            Ok(_) => return client,
            Err(ClientError::Refused(_)) => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn one_client_too_many_is_told_so() {
    let served = Served::new(fixed());
    let mut clients: Vec<Client> = (0..limits::ADMIN_CONNECTIONS_MAX).map(|_| served.client()).collect();
    for client in &mut clients {
        client.status().expect("answered");
    }
    let error = served.client().status().expect_err("one too many");
    assert!(matches!(error, ClientError::Refused(_)), "{error}");
    clients.pop();
    connect_patiently(&served.path());
}

#[test]
fn clients_that_break_the_rules_are_cut_off_and_harm_nobody() {
    let served = Served::new(fixed());
    let huge = [&[ADMIN_VERSION][..], &u32::MAX.to_le_bytes()].concat();
    let garbage = [&[ADMIN_VERSION][..], &3_u32.to_le_bytes(), b"\xff\xff\xff"].concat();
    let other_version = vec![ADMIN_VERSION + 1];
    for bytes in [huge, garbage, other_version] {
        let mut stream = served.raw();
        stream.write_all(&bytes).expect("written");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("closed");
        assert_eq!(answer, [ADMIN_VERSION], "its version is all that it is told, after {bytes:?}");
        served.client().status().expect("others are answered");
    }
}

#[test]
fn a_daemon_of_another_version_is_recognised() {
    let parent = tempfile::tempdir().expect("a directory");
    let directory = Directory::claim(&parent.path().join("d")).expect("free");
    let listener = directory.listen(SOCKET_NAME).expect("a socket");
    let other = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        stream.write_all(&[ADMIN_VERSION + 1]).expect("written");
    });
    let error = Client::connect(directory.path()).err().expect("another version");
    assert!(matches!(error, ClientError::Version { theirs } if theirs == ADMIN_VERSION + 1), "{error}");
    other.join().expect("no panic");
}

#[test]
fn who_stops_a_daemon_waits_for_its_end() {
    let mut served = Served::new(fixed());
    let client = served.client();
    let waiting = std::thread::spawn(move || client.stop(StopScope::Node, PATIENCE));
    let other = served.client();
    assert!(!other.stop(StopScope::Node, Duration::from_millis(20)).expect("stopping"), "it is still there");
    served.server.take();
    assert!(waiting.join().expect("no panic").expect("stopped"));
}

#[test]
fn who_asked_for_the_end_is_answered_although_it_comes() {
    let (begin, begun) = channel();
    let (go, gone) = channel();
    let gone = Mutex::new(gone);
    let on_stop = move || {
        begin.send(()).expect("somebody waits for it");
        gone.lock().recv().expect("somebody says so");
    };
    let mut served = Served::new(Fixed { on_stop: Box::new(on_stop), ..fixed() });
    let client = served.client();
    let mut later = served.raw();
    later.read_exact(&mut [0]).expect("it is served, after the other");
    let stopping = std::thread::spawn(move || client.stop(StopScope::Node, PATIENCE));
    begun.recv().expect("it was asked to end");
    let server = served.server.take();
    let ending = std::thread::spawn(move || drop(server));
    // Connections are ended in the order in which they came.
    assert_eq!(later.read(&mut [0]).expect("ended"), 0);
    go.send(()).expect("it waits");
    assert!(stopping.join().expect("no panic").expect("answered"));
    ending.join().expect("no panic");
}

fn config(path: &Path) -> DaemonConfig {
    DaemonConfig {
        directory: path.to_owned(),
        role: Role::Head,
        listen: Some("127.0.0.1:0".parse().expect("an address")),
        resources: BTreeMap::from([("CPU".to_owned(), Amount::ZERO), ("disk".to_owned(), Amount::units(2))]),
        labels: BTreeMap::new(),
        store_bytes: None,
        spill_directory: None,
        spill_bytes_max: None,
        hide_control: HideControl::Auto,
    }
}

#[test]
fn a_daemon_has_its_directory_until_it_is_stopped() {
    let parent = tempfile::tempdir().expect("a directory");
    let path = parent.path().join("d");
    let daemon = Daemon::start(config(&path)).expect("started");
    let second = Daemon::start(config(&path)).err().expect("claimed");
    assert!(matches!(second, DaemonError::Directory(DirectoryError::Claimed { .. })), "{second}");

    let status = Client::connect(&path).expect("connected").status().expect("status");
    assert_eq!(status.node, daemon.node());
    let resources: Vec<_> = status.nodes[0].resources.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(resources, ["disk", "memory"], "none of the machine's CPUs");

    let client = Client::connect(&path).expect("connected");
    let stopping = std::thread::spawn(move || client.stop(StopScope::Node, PATIENCE));
    daemon.wait();
    drop(daemon);
    assert!(stopping.join().expect("no panic").expect("stopped"));
    assert!(matches!(Client::connect(&path), Err(ClientError::NoDaemon { .. })));
    Daemon::start(config(&path)).expect("started again");
}
