//! A small proxy that cuts, stalls and refuses connections.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// A sequence of numbers that the same seed gives again (xorshift).
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

#[derive(Default)]
struct State {
    sockets: Mutex<Vec<TcpStream>>,
    connections: AtomicUsize,
    stalled: AtomicBool,
    refusing: AtomicBool,
}

/// Forwards to one address. Every connection may carry so many bytes as `budget` says when it begins.
pub struct Proxy {
    pub address: SocketAddr,
    state: Arc<State>,
}

impl Proxy {
    pub fn new(target: SocketAddr, budget: impl FnMut() -> usize + Send + 'static) -> Self {
        Self::to(Arc::new(Mutex::new(target)), budget)
    }

    /// One whose target can be changed.
    pub fn to(target: Arc<Mutex<SocketAddr>>, mut budget: impl FnMut() -> usize + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let proxy = Self { address: listener.local_addr().expect("an address"), state: Arc::default() };
        let state = Arc::clone(&proxy.state);
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let far = TcpStream::connect(*target.lock().expect("no panic"));
                let (Ok(far), false) = (far, state.refusing.load(Ordering::SeqCst)) else { continue };
                state.connections.fetch_add(1, Ordering::SeqCst);
                let budget = Arc::new(AtomicUsize::new(budget()));
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (from, to) = (from.try_clone().expect("a socket"), to.try_clone().expect("a socket"));
                    let (state, budget) = (Arc::clone(&state), Arc::clone(&budget));
                    thread::spawn(move || forward(from, to, &state, &budget));
                }
                state.sockets.lock().expect("no panic").extend([near, far]);
            }
        });
        proxy
    }

    /// One that never cuts by itself.
    pub fn transparent(target: SocketAddr) -> Self {
        Self::new(target, || usize::MAX)
    }

    /// How many connections it has forwarded.
    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// Cuts all connections.
    pub fn cut(&self) {
        for socket in self.state.sockets.lock().expect("no panic").drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// From now on, bytes are lost, but no connection is closed.
    pub fn stall(&self) {
        self.state.stalled.store(true, Ordering::SeqCst);
    }

    /// Whether new connections are closed at once.
    pub fn refuse(&self, refusing: bool) {
        self.state.refusing.store(refusing, Ordering::SeqCst);
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, state: &State, budget: &AtomicUsize) {
    let mut buffer = vec![0; 4096];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if state.stalled.load(Ordering::SeqCst) {
            continue;
        }
        let left = budget.load(Ordering::SeqCst);
        let allowed = length.min(left);
        budget.store(left - allowed, Ordering::SeqCst);
        if to.write_all(&buffer[..allowed]).is_err() || allowed < length {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
