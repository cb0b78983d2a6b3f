//! What links and pulls do per second on this machine, between two endpoints of one process, beside plain TCP.
//!
//! `cargo run --release -p aktis-io --example measure`

use aktis_io::{
    Authority, Endpoint, EndpointEvents, EndpointOptions, Frames, Link, LinkEnd, LinkEvents, Opened, Peer,
    Role, Serve, random_node_id,
};
use aktis_protocol::{NodeId, ObjectId, SessionId, TaskId};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

const ROUND_TRIPS: usize = 20_000;
const FRAMES: usize = 2_000_000;
const FRAME_BYTES: usize = 100;
const OBJECT_BYTES: usize = 1 << 30;

/// Sends back what comes, or counts it if it is not for that.
struct Echo(Link);

impl LinkEvents for Echo {
    fn on_frames(&mut self, frames: Frames<'_>) {
        let mut frames = frames.filter(|frame| frame[0] == 0).peekable();
        if frames.peek().is_some() {
            frames.for_each(|frame| self.0.queue(frame.to_vec()).expect("room"));
            self.0.flush();
        }
    }

    fn on_closed(&mut self, _end: &LinkEnd) {}
}

/// Tells how many frames have come.
struct Count(Sender<usize>);

impl LinkEvents for Count {
    fn on_frames(&mut self, frames: Frames<'_>) {
        let _ = self.0.send(frames.count());
    }

    fn on_closed(&mut self, _end: &LinkEnd) {}
}

struct Node(Vec<u8>);

impl EndpointEvents for Node {
    fn on_link(&self, _peer: &Peer, _greeting: &[u8], link: &Link) -> Result<Box<dyn LinkEvents>, String> {
        Ok(Box::new(Echo(link.clone())))
    }
}

struct Objects(Arc<Node>);

struct Bytes(Arc<Node>);

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        &self.0.0
    }
}

impl Serve for Objects {
    fn admit(&self, _peer: NodeId) -> Result<(), String> {
        Ok(())
    }

    fn open(&self, _peer: NodeId, _object: ObjectId, _insists: bool) -> Result<Opened, String> {
        Ok(Opened::Here(Box::new(Bytes(Arc::clone(&self.0)))))
    }
}

fn main() {
    let directory = tempfile::tempdir().expect("a directory");
    let authority = Authority::create(&directory.path().join("cluster")).expect("an authority");
    let node = Arc::new(Node(vec![7; OBJECT_BYTES]));
    let endpoint = || {
        let identity = authority.issue(random_node_id(), Role::Node).expect("an identity");
        let objects: Arc<dyn Serve> = Arc::new(Objects(Arc::clone(&node)));
        let options = EndpointOptions { objects: Some(objects), ..EndpointOptions::default() };
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        Endpoint::bind(address, identity, Arc::clone(&node) as _, options).expect("an endpoint")
    };
    let (near, far) = (endpoint(), endpoint());
    let start = Instant::now();
    let (sender, counts) = channel();
    let link = near.dial(far.node(), far.address(), Vec::new(), |_| Box::new(Count(sender))).expect("a link");
    println!("dial                 {:>10.2?}", start.elapsed());
    println!("TCP round trip       {:>10.2?}", tcp_round_trip());
    println!("link round trip      {:>10.2?}", link_round_trip(&link, &counts));
    let rate = link_throughput(&link, &counts);
    println!("frames of {FRAME_BYTES} bytes  {:>10.2} million/s", rate / 1e6);
    let mut destination = vec![1; OBJECT_BYTES];
    for streams in [1, 2, 4] {
        let start = Instant::now();
        let object = TaskId::root(SessionId(1)).returns(0);
        near.pull(far.node(), far.address(), object, &mut destination, streams).expect("it is there");
        println!(
            "pull, {streams} streams      {:>10.2} GB/s",
            OBJECT_BYTES as f64 / start.elapsed().as_secs_f64() / 1e9
        );
    }
    assert!(destination.iter().all(|byte| *byte == 7));
}

fn tcp_round_trip() -> Duration {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let echo = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("a connection");
        socket.set_nodelay(true).expect("an option");
        let mut bytes = [0; FRAME_BYTES];
        while socket.read_exact(&mut bytes).is_ok() {
            socket.write_all(&bytes).expect("it listens");
        }
    });
    let mut socket = TcpStream::connect(address).expect("a connection");
    socket.set_nodelay(true).expect("an option");
    let start = Instant::now();
    for _ in 0..ROUND_TRIPS {
        let mut bytes = [0; FRAME_BYTES];
        socket.write_all(&bytes).expect("it listens");
        socket.read_exact(&mut bytes).expect("it answers");
    }
    let each = start.elapsed() / ROUND_TRIPS as u32;
    drop(socket);
    echo.join().expect("no panic");
    each
}

/// From this thread, to the other end's link thread, and back through the link thread here.
fn link_round_trip(link: &Link, counts: &Receiver<usize>) -> Duration {
    let start = Instant::now();
    for _ in 0..ROUND_TRIPS {
        link.queue(vec![0; FRAME_BYTES]).expect("room");
        link.flush();
        counts.recv().expect("it answers");
    }
    start.elapsed() / ROUND_TRIPS as u32
}

fn link_throughput(link: &Link, counts: &Receiver<usize>) -> f64 {
    let start = Instant::now();
    for _ in 0..FRAMES {
        while link.send(vec![1; FRAME_BYTES]).is_err() {
            std::thread::yield_now();
        }
    }
    while link.send(vec![0; FRAME_BYTES]).is_err() {
        std::thread::yield_now();
    }
    counts.recv().expect("it answers");
    FRAMES as f64 / start.elapsed().as_secs_f64()
}
