//! Objects that are pulled from another node: whole, over several connections, and with typed errors.

mod support;

use aktis_io::{
    Destination, EndpointOptions, Opened, PullError, Role, STREAMS_MAX, Serve, Source, Timing, random_node_id,
};
use aktis_protocol::{NodeId, ObjectId, SessionId, TaskId};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::proxy::{Proxy, Random};
use support::{Cluster, PATIENCE, Station};

fn object(index: u32) -> ObjectId {
    TaskId::root(SessionId(1)).returns(index)
}

fn bytes(length: usize, seed: u64) -> Vec<u8> {
    let mut random = Random(seed + 1);
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend_from_slice(&random.below(usize::MAX).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Objects in memory, which count how often they are in use.
#[derive(Default)]
struct Objects {
    bytes: Mutex<HashMap<ObjectId, Arc<Vec<u8>>>>,
    opened: AtomicUsize,
    /// Objects that another node has.
    elsewhere: Mutex<HashMap<ObjectId, NodeId>>,
    /// If it is not zero, objects are read from something like a disk, from which they are taken after so many parts.
    moves_after: AtomicUsize,
    /// If it is not zero, objects can be opened so often.
    openings_max: AtomicUsize,
}

struct Pinned(Arc<Vec<u8>>);

impl AsRef<[u8]> for Pinned {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// An object that can be read so often.
struct OnDisk(Arc<Vec<u8>>, AtomicUsize);

impl Source for OnDisk {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }

    fn part<'a>(&'a self, offset: u64, length: usize, room: &'a mut Vec<u8>) -> Result<&'a [u8], String> {
        let left = self.1.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        left.map_err(|_| "it has moved".to_owned())?;
        room.clear();
        room.extend_from_slice(&self.0[offset as usize..][..length]);
        Ok(room)
    }
}

impl Serve for Objects {
    fn admit(&self, _peer: NodeId) -> Result<(), String> {
        Ok(())
    }

    fn open(&self, _peer: NodeId, object: ObjectId, insists: bool) -> Result<Opened, String> {
        let elsewhere = self.elsewhere.lock().expect("no panic").get(&object).copied();
        if let Some(node) = elsewhere.filter(|_| !insists) {
            return Ok(Opened::Elsewhere(node));
        }
        let bytes = self.bytes.lock().expect("no panic").get(&object).cloned();
        let bytes = bytes.ok_or_else(|| format!("{object} was freed"))?;
        let (opened, openings_max) =
            (self.opened.load(Ordering::SeqCst), self.openings_max.load(Ordering::SeqCst));
        if openings_max != 0 && opened >= openings_max {
            return Err("it is away".to_owned());
        }
        self.opened.fetch_add(1, Ordering::SeqCst);
        Ok(Opened::Here(match self.moves_after.load(Ordering::SeqCst) {
            0 => Box::new(Pinned(bytes)),
            parts => Box::new(OnDisk(bytes, AtomicUsize::new(parts))),
        }))
    }
}

impl Objects {
    fn put(&self, id: ObjectId, bytes: Vec<u8>) -> Arc<Vec<u8>> {
        let bytes = Arc::new(bytes);
        self.bytes.lock().expect("no panic").insert(id, Arc::clone(&bytes));
        bytes
    }
}

struct Scene {
    here: Station,
    there: Station,
    objects: Arc<Objects>,
}

impl Scene {
    fn new(timing: Timing) -> Self {
        let cluster = Cluster::new();
        let objects = Arc::new(Objects::default());
        let served: Arc<dyn Serve> = objects.clone();
        let options = EndpointOptions { timing, objects: Some(served), ..EndpointOptions::default() };
        let there = Station::new(cluster.identity(Role::Node), options);
        Self { here: cluster.station(timing), there, objects }
    }

    fn pull(&self, object: ObjectId, length: usize, streams: usize) -> Result<Vec<u8>, PullError> {
        let mut destination = vec![0xaa; length];
        let (node, address) = (self.there.endpoint.node(), self.there.endpoint.address());
        self.here.endpoint.pull(node, address, object, &mut destination, streams).map(|()| destination)
    }
}

#[test]
fn objects_of_all_sizes_arrive_whole() {
    let scene = Scene::new(Timing::default());
    let part = 4 << 20;
    for (index, length) in [0, 1, 1000, part - 1, part, part + 1, 9 * part + 17].into_iter().enumerate() {
        let id = object(index as u32);
        let original = scene.objects.put(id, bytes(length, index as u64));
        for streams in [1, 3, STREAMS_MAX, 1000] {
            assert!(
                scene.pull(id, length, streams).expect("it is there") == *original,
                "{length} by {streams}"
            );
        }
    }
}

#[test]
fn errors_say_what_is_wrong_and_leave_the_connections_usable() {
    let scene = Scene::new(Timing::default());
    let original = scene.objects.put(object(1), bytes(10_000, 1));
    for _ in 0..3 {
        let Err(PullError::Unknown(why)) = scene.pull(object(2), 10, 1) else {
            panic!("there is no such object")
        };
        assert!(why.contains("was freed"), "{why}");
        for wrong in [0, 9_999, 10_001, 50 << 20] {
            match scene.pull(object(1), wrong, 4) {
                Err(PullError::SizeDiffers { expected, found: 10_000 }) if expected == wrong as u64 => {}
                other => panic!("{wrong}: {:?}", other.map(|bytes| bytes.len())),
            }
        }
        assert!(scene.pull(object(1), 10_000, 4).expect("it is there") == *original);
    }
}

#[test]
fn a_peer_that_is_gone_is_said_to_be() {
    let scene = Scene::new(Timing::default());
    scene.objects.put(object(1), bytes(10, 1));
    scene.pull(object(1), 10, 1).expect("it is there");
    scene.there.endpoint.close("");
    let start = Instant::now();
    let error = scene.pull(object(1), 10, 1).expect_err("it is gone");
    assert!(matches!(error, PullError::PeerGone(_)), "{error}");
    assert!(start.elapsed() < PATIENCE, "a closed port is noticed at once");
    let nobody =
        scene.here.endpoint.pull(random_node_id(), scene.here.endpoint.address(), object(1), &mut [0], 1);
    assert!(matches!(nobody, Err(PullError::PeerGone(_))), "the node there is another one");
}

#[test]
fn a_node_without_objects_says_so() {
    let scene = Scene::new(Timing::default());
    let pulled = scene.there.endpoint.pull(
        scene.here.endpoint.node(),
        scene.here.endpoint.address(),
        object(1),
        &mut [0],
        1,
    );
    assert!(matches!(pulled, Err(PullError::Refused(_))), "{pulled:?}");
}

#[test]
fn sources_are_given_back_when_a_pull_is_done() {
    let scene = Scene::new(Timing::default());
    let length = 20 << 20;
    let original = scene.objects.put(object(1), bytes(length, 1));
    scene.pull(object(1), length, 4).expect("it is there");
    scene.objects.bytes.lock().expect("no panic").clear();
    // The last words of the pull may still be on their way.
    let deadline = Instant::now() + PATIENCE;
    while Arc::strong_count(&original) > 1 {
        assert!(Instant::now() < deadline, "the source is still in use");
        std::thread::yield_now();
    }
    assert!(scene.objects.opened.load(Ordering::SeqCst) <= 4, "once for each connection");
}

#[test]
fn a_pull_survives_connections_that_fail() {
    let scene = Scene::new(Timing { bulk_stall: Duration::from_secs(2), ..Timing::default() });
    let length = 30 << 20;
    let original = scene.objects.put(object(1), bytes(length, 3));
    let mut random = Random(99);
    // All carry a part or two, and are cut in the next.
    let proxy = Proxy::new(scene.there.endpoint.address(), move || (5 << 20) + random.below(8 << 20));
    let mut destination = vec![0; length];
    let node = scene.there.endpoint.node();
    scene.here.endpoint.pull(node, proxy.address, object(1), &mut destination, 3).expect("it is there");
    assert!(destination == *original);
    assert!(proxy.connections() > 3, "{}", proxy.connections());
}

#[test]
fn a_stalled_peer_is_gone_after_a_while() {
    let scene = Scene::new(Timing {
        bulk_stall: Duration::from_millis(100),
        handshake: Duration::from_millis(300),
        ..Timing::default()
    });
    scene.objects.put(object(1), bytes(1000, 3));
    let proxy = Proxy::transparent(scene.there.endpoint.address());
    let node = scene.there.endpoint.node();
    scene.here.endpoint.pull(node, proxy.address, object(1), &mut [0; 1000], 1).expect("it is there");
    proxy.stall();
    let pulled = scene.here.endpoint.pull(node, proxy.address, object(1), &mut [0; 1000], 1);
    assert!(matches!(pulled, Err(PullError::PeerGone(_))), "{pulled:?}");
}

/// More than the gate lets in at the same time from one address, if each pull had as many connections as it likes.
#[test]
fn many_can_pull_at_once() {
    let scene = Scene::new(Timing::default());
    let length = 5 << 20;
    let originals: Vec<_> =
        (0..40).map(|index| scene.objects.put(object(index), bytes(length, index.into()))).collect();
    let (endpoint, node, address) =
        (&scene.here.endpoint, scene.there.endpoint.node(), scene.there.endpoint.address());
    std::thread::scope(|scope| {
        for (index, original) in originals.iter().enumerate() {
            scope.spawn(move || {
                let mut destination = vec![0; length];
                endpoint
                    .pull(node, address, object(index as u32), &mut destination, STREAMS_MAX)
                    .expect("it is there");
                assert!(destination == **original, "{index}");
            });
        }
    });
}

#[test]
fn an_object_that_moves_while_it_is_pulled_is_opened_again() {
    let scene = Scene::new(Timing::default());
    let original = scene.objects.put(object(1), bytes(30 << 20, 1));
    scene.objects.moves_after.store(2, Ordering::SeqCst);
    assert!(scene.pull(object(1), original.len(), 1).expect("it is there") == *original);
    assert_eq!(scene.objects.opened.load(Ordering::SeqCst), 4, "for eight parts");
}

#[test]
fn who_does_not_have_an_object_says_who_does() {
    let scene = Scene::new(Timing::default());
    let original = scene.objects.put(object(1), bytes(5 << 20, 1));
    let other = random_node_id();
    scene.objects.elsewhere.lock().expect("no panic").insert(object(1), other);
    for streams in [1, 4] {
        match scene.pull(object(1), original.len(), streams) {
            Err(PullError::Elsewhere(node)) if node == other => {}
            pulled => panic!("{pulled:?}"),
        }
    }
    let mut place = vec![0; original.len()];
    let mut destination = Destination::new(&mut place);
    destination.insist();
    let (node, address) = (scene.there.endpoint.node(), scene.there.endpoint.address());
    scene.here.endpoint.pull_rest(node, address, object(1), &mut destination, 2).expect("it is there");
    assert_eq!(destination.parts_left(), 0);
    drop(destination);
    assert!(place == *original);
}

#[test]
fn a_pull_that_failed_goes_on_with_what_it_lacks() {
    let scene = Scene::new(Timing::default());
    let original = scene.objects.put(object(1), bytes(30 << 20, 1));
    scene.objects.moves_after.store(3, Ordering::SeqCst);
    let mut place = vec![0; original.len()];
    let mut destination = Destination::new(&mut place);
    let parts = destination.parts_left();
    let (node, address) = (scene.there.endpoint.node(), scene.there.endpoint.address());
    scene.objects.openings_max.store(1, Ordering::SeqCst);
    let pulled = scene.here.endpoint.pull_rest(node, address, object(1), &mut destination, 1);
    assert!(matches!(pulled, Err(PullError::Unknown(_))), "{pulled:?}");
    assert_eq!(destination.parts_left(), parts - 3);
    scene.objects.openings_max.store(0, Ordering::SeqCst);
    scene.here.endpoint.pull_rest(node, address, object(1), &mut destination, 1).expect("it is there");
    drop(destination);
    assert!(place == *original);
}
