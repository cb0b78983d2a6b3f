//! The thread that moves objects between memory and disk, started when the first one has to go.
//!
//! Invariant: orders are carried out one after another, in the order given, so that a place in the file is never
//! written before it was freed.

use crate::bell::Bell;
use aktis_logic::machine::node::{NodeInput, SpillRefusal};
use aktis_protocol::EntryRef;
use aktis_store::{Arena, SpillFile, SpillRefused, SpilledObjects, StoreError};
use parking_lot::Mutex;
use rustix::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// What the thread is told to do.
pub(crate) enum DiskOrder {
    Spill { entry: EntryRef, file_offset: u64 },
    Restore { entry: EntryRef, file_offset: u64, offset: u64 },
    Reserve { entry: EntryRef, file_offset: u64, bytes: u64 },
    Free { file_offset: u64, bytes: u64 },
}

/// Where objects go that do not fit into memory.
pub(crate) struct SpillSpace {
    directory: PathBuf,
    closing: Arc<AtomicBool>,
    /// Made at the start, so that all processes can be given it; none if that failed, or nothing may be spilled. Then it
    /// is made when the first object has to go, and only the node reads it.
    file: Option<Arc<SpillFile>>,
}

impl SpillSpace {
    pub(crate) fn open(directory: PathBuf, bytes_max: u64) -> Self {
        let closing = Arc::<AtomicBool>::default();
        let create = || SpillFile::create(&directory, closing.clone()).ok().map(Arc::new);
        let file = if bytes_max > 0 { create() } else { None };
        Self { directory, closing, file }
    }

    /// Where the file lies.
    pub(crate) fn directory(&self) -> PathBuf {
        self.directory.clone()
    }

    /// The file, if all processes can be given it.
    pub(crate) fn descriptor(&self) -> Option<Arc<OwnedFd>> {
        self.file.as_ref().map(|file| file.descriptor())
    }
}

/// The node's end of the thread.
pub(crate) struct Disk {
    worker: Arc<DiskWorker>,
    running: Option<(Sender<DiskOrder>, JoinHandle<()>)>,
}

/// What the thread needs.
struct DiskWorker {
    arena: Arc<Arena>,
    space: SpillSpace,
    outcomes: Mutex<Vec<NodeInput>>,
    bell: Arc<Bell>,
    /// What lies in the file, for those who serve it to other nodes.
    spilled: Arc<SpilledObjects>,
}

impl Disk {
    pub(crate) fn new(arena: Arc<Arena>, space: SpillSpace, bell: Arc<Bell>) -> Self {
        let (outcomes, spilled) = (Mutex::default(), Arc::default());
        let worker = DiskWorker { arena, space, outcomes, bell, spilled };
        Self { worker: Arc::new(worker), running: None }
    }

    /// Gives an order; its outcome comes with [`Self::take_outcomes`], after the bell.
    pub(crate) fn order(&mut self, order: DiskOrder) {
        if self.running.is_none() {
            let (orders, taken) = channel();
            let worker = self.worker.clone();
            let builder = std::thread::Builder::new().name("aktis-disk".to_owned());
            match builder.spawn(move || worker.run(&taken)) {
                Ok(thread) => self.running = Some((orders, thread)),
                Err(error) => {
                    return self.worker.refuse(&order, &format!("no thread to reach the disk: {error}"));
                }
            }
        }
        if let Some((orders, _)) = &self.running {
            // The thread ends only after this end is gone.
            let _ = orders.send(order);
        }
    }

    /// What lies on disk.
    pub(crate) fn spilled(&self) -> &Arc<SpilledObjects> {
        &self.worker.spilled
    }

    pub(crate) fn take_outcomes(&self) -> Vec<NodeInput> {
        std::mem::take(&mut self.worker.outcomes.lock())
    }

    /// Gives up what is going on, and hands out the thread to be waited for.
    pub(crate) fn close(&mut self) -> Option<JoinHandle<()>> {
        self.worker.space.closing.store(true, Ordering::Relaxed);
        self.running.take().map(|(_, thread)| thread)
    }
}

impl DiskWorker {
    fn run(&self, orders: &Receiver<DiskOrder>) {
        let mut file = self.space.file.clone();
        for order in orders {
            if self.space.closing.load(Ordering::Relaxed) {
                return;
            }
            if file.is_none() {
                match SpillFile::create(&self.space.directory, self.space.closing.clone()) {
                    Ok(created) => file = Some(Arc::new(created)),
                    Err(error) => self.refuse(&order, &error.to_string()),
                }
            }
            if let Some(file) = &file {
                self.carry_out(order, file);
            }
        }
    }

    fn carry_out(&self, order: DiskOrder, file: &Arc<SpillFile>) {
        match order {
            DiskOrder::Spill { entry, file_offset } => {
                let bytes = self.arena.size_of(entry).unwrap_or(0);
                let outcome = self.arena.spill(entry, file, file_offset).map_err(|refused| match refused {
                    SpillRefused::Pinned => SpillRefusal::Pinned,
                    SpillRefused::Disk(error) => SpillRefusal::Disk(error.to_string()),
                });
                if outcome.is_ok() {
                    self.spilled.add(entry, file, file_offset, bytes);
                }
                self.report(NodeInput::Spilled { entry, outcome });
            }
            DiskOrder::Restore { entry, file_offset, offset } => {
                let outcome = self.arena.restore(entry, file, file_offset, offset);
                let outcome = outcome.map_err(|error: StoreError| error.to_string());
                self.report(NodeInput::Restored { entry, outcome });
            }
            DiskOrder::Reserve { entry, file_offset, bytes } => {
                let outcome = file.reserve(file_offset, bytes).map_err(|error| error.to_string());
                self.report(NodeInput::Reserved { entry, outcome });
            }
            DiskOrder::Free { file_offset, bytes } => {
                self.spilled.remove(file_offset);
                file.free(file_offset, bytes);
            }
        }
    }

    fn refuse(&self, order: &DiskOrder, message: &str) {
        match order {
            DiskOrder::Spill { entry, .. } => {
                let outcome = Err(SpillRefusal::Disk(message.to_owned()));
                self.report(NodeInput::Spilled { entry: *entry, outcome });
            }
            DiskOrder::Restore { entry, .. } => {
                self.report(NodeInput::Restored { entry: *entry, outcome: Err(message.to_owned()) });
            }
            DiskOrder::Reserve { entry, .. } => {
                self.report(NodeInput::Reserved { entry: *entry, outcome: Err(message.to_owned()) });
            }
            DiskOrder::Free { .. } => {}
        }
    }

    fn report(&self, outcome: NodeInput) {
        self.outcomes.lock().push(outcome);
        self.bell.ring();
    }
}
