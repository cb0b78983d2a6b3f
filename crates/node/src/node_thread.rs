//! The node's thread: parent of all workers or of their templates, it waits for their messages, their words and their end.
//! It also sees the end of drivers that have attached.
//!
//! Workers are started here and nowhere else, because the system ends them when the *thread* that started them ends.

use crate::bell::Bell;
use crate::kills::Kills;
use crate::output::Forwarder;
use crate::programs::Launch;
use crate::shell::{GuestProcess, Plan, Shell, TemplateNews};
use crate::spawn::{SpawnOrder, WorkerProcess};
use crate::template::{Keeper, Tidings};
use aktis_protocol::control::ToNode;
use aktis_protocol::{DeathCause, ProcessSlot, ProgramId, SessionId};
use aktis_store::Hidden;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::Signal;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long workers have to end by themselves when the session closes.
const GRACE: Duration = Duration::from_millis(40);
/// How long workers' last words may take to be written then.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// What the node's thread shares with the driver's threads.
pub(crate) struct Shared {
    pub(crate) shell: Mutex<Shell>,
    pub(crate) bell: Arc<Bell>,
    pub(crate) closing: AtomicBool,
}

impl Shared {
    /// Tells the shell something, and wakes the node's thread if it has to know. Deliveries are left to that thread.
    pub(crate) fn with_shell<T>(&self, tell: impl FnOnce(&mut Shell) -> T) -> T {
        let mut shell = self.shell.lock();
        let told = tell(&mut shell);
        let wake = shell.must_wake();
        drop(shell);
        if wake {
            self.bell.ring();
        }
        told
    }

    /// A local process says something. Its own answers are delivered here and now; those of others by the node's
    /// thread, because the caller may hold what they need.
    pub(crate) fn send_from(&self, process: ProcessSlot, message: ToNode) {
        let ready = self.with_shell(|shell| {
            shell.on_local_message(process, message);
            shell.take_ready_of(process)
        });
        if let Some(delivery) = ready {
            delivery.run();
        }
    }

    /// Delivers what there is to deliver in this process.
    fn deliver(&self) {
        let ready = self.shell.lock().take_ready();
        ready.values().for_each(|delivery| delivery.run());
    }
}

pub(crate) struct NodeThread {
    shared: Arc<Shared>,
    inbox: OwnedFd,
    session: SessionId,
    /// What workers do not see.
    hidden: Option<Hidden>,
    workers: Vec<WorkerProcess>,
    /// What workers are forked from, where they are.
    templates: Vec<(ProgramId, Keeper)>,
    /// Drivers that have attached.
    guests: Vec<GuestProcess>,
    forwarder: Option<Forwarder>,
    kills: Kills,
}

/// What is there to be read from one worker.
#[derive(Clone, Copy, Default)]
struct News {
    stdout: bool,
    stderr: bool,
    died: bool,
}

/// What there is to be read.
#[derive(Default)]
struct AllNews {
    workers: Vec<News>,
    templates: bool,
    /// Which of the guests are gone.
    guests: Vec<bool>,
}

impl NodeThread {
    pub(crate) fn new(
        shared: Arc<Shared>,
        inbox: OwnedFd,
        session: SessionId,
        hidden: Option<Hidden>,
        forwarder: Option<Forwarder>,
    ) -> Self {
        let (workers, templates, guests) = (Vec::new(), Vec::new(), Vec::new());
        let kills = Kills::of_this_group();
        Self { shared, inbox, session, hidden, workers, templates, guests, forwarder, kills }
    }

    /// Runs until the session closes, and then ends everything.
    pub(crate) fn run(mut self) {
        let _alarm = Alarm(self.shared.clone());
        while !self.shared.closing.load(Ordering::Acquire) {
            self.hear_shell();
            self.start_workers();
            let plan = self.shared.shell.lock().plan();
            let news = self.wait(&plan);
            self.take_in(&news);
            self.listen(&news);
            self.bury(&news);
            self.see_off(&news);
            self.shared.shell.lock().on_wakeup();
            self.shared.deliver();
        }
        self.close();
    }

    /// Takes over whom and what it has to watch.
    fn hear_shell(&mut self) {
        let (arrived, news) = {
            let mut shell = self.shared.shell.lock();
            (shell.take_arrived(), shell.take_template_news())
        };
        self.guests.extend(arrived);
        for news in news {
            match news {
                TemplateNews::Added(of, Launch::Template { program, status }) => {
                    let hidden = self.hidden.clone();
                    self.templates.push((of, Keeper::new(of, program, self.session, hidden, status)));
                }
                TemplateNews::Added(..) => {}
                TemplateNews::Unneeded(program) => {
                    self.template_of(program).into_iter().for_each(Keeper::rest);
                }
                TemplateNews::Forgotten(program) => {
                    self.template_of(program).into_iter().for_each(Keeper::leave);
                }
            }
        }
    }

    fn template_of(&mut self, program: ProgramId) -> Option<&mut Keeper> {
        let mut templates = self.templates.iter_mut();
        let found = templates.find(|(of, keeper)| *of == program && !keeper.is_leaving());
        found.map(|(_, keeper)| keeper)
    }

    fn start_workers(&mut self) {
        loop {
            // Not under the lock: starting a process takes its time.
            let Some(order) = self.shared.shell.lock().next_spawn_order() else { break };
            self.start_worker(order);
        }
        let tidings: Vec<_> = self.templates.iter_mut().flat_map(|(_, template)| template.turn()).collect();
        self.on_tidings(tidings);
    }

    fn start_worker(&mut self, order: SpawnOrder) {
        let path = match &order.launch {
            Launch::ThisProgram => Path::new("/proc/self/exe"),
            Launch::Copy(path) => path,
            Launch::Template { .. } => return self.have_forked(order),
        };
        let node = path.parent().and_then(Path::parent).filter(|_| matches!(order.launch, Launch::Copy(_)));
        let spawned = WorkerProcess::spawn(&order, self.session, path, node, self.hidden.as_ref());
        self.on_spawned(order.process, spawned);
    }

    fn have_forked(&mut self, order: SpawnOrder) {
        match self.template_of(order.program) {
            Some(template) => template.order(order),
            None => self.on_spawned(order.process, Err(io::Error::other("its template is gone"))),
        }
    }

    fn on_spawned(&mut self, process: ProcessSlot, spawned: io::Result<WorkerProcess>) {
        self.kills.forget();
        let mut shell = self.shared.shell.lock();
        match spawned {
            Ok(worker) => {
                shell.on_spawned(process, Ok(&worker));
                self.workers.push(worker);
            }
            Err(error) => shell.on_spawned(process, Err(error)),
        }
    }

    /// Hears what templates have to say.
    fn listen(&mut self, news: &AllNews) {
        if !news.templates {
            return;
        }
        let forwarder = self.forwarder.as_ref();
        let tidings = self.templates.iter_mut().flat_map(|(_, template)| template.listen(forwarder));
        let tidings: Vec<_> = tidings.collect();
        self.templates.retain(|(_, template)| !template.is_gone());
        self.on_tidings(tidings);
    }

    fn on_tidings(&mut self, tidings: Vec<Tidings>) {
        for tiding in tidings {
            match tiding {
                Tidings::Born(worker) => self.on_spawned(worker.process, Ok(*worker)),
                Tidings::Stillborn(process, error) => self.on_spawned(process, Err(error)),
                Tidings::Ended(pid, ending) => {
                    self.workers.iter_mut().any(|worker| worker.on_reported(pid, ending));
                }
                Tidings::Died(how) => self.workers.iter_mut().for_each(|worker| worker.on_orphaned(&how)),
            }
        }
    }

    /// Waits until something happens or the time is over, and tells what workers have to say.
    fn wait(&self, plan: &Plan) -> AllNews {
        let full = self.forwarder.as_ref().is_some_and(Forwarder::is_full);
        let mut descriptors = vec![readable(&self.shared.bell), readable(&self.inbox)];
        descriptors.extend(plan.blocked.iter().map(|socket| PollFd::new(socket, PollFlags::OUT)));
        let of_templates = descriptors.len();
        let templates = self.templates.iter().flat_map(|(_, template)| template.descriptors(full));
        descriptors.extend(templates.map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN)));
        let of_guests = descriptors.len();
        descriptors.extend(
            self.guests
                .iter()
                .flat_map(|guest| [PollFd::new(&guest.socket, PollFlags::empty()), readable(&guest.pidfd)]),
        );
        // For each watched descriptor: whose it is, and what it tells.
        let mut watched = Vec::new();
        let first = descriptors.len();
        for (position, worker) in self.workers.iter().enumerate() {
            let outputs = [worker.stdout.pipe(), worker.stderr.pipe()].map(|pipe| pipe.filter(|_| !full));
            let meanings = [(outputs[0], STDOUT), (outputs[1], STDERR), (worker.unended(), DIED)];
            for (descriptor, tells) in meanings {
                if let Some(descriptor) = descriptor {
                    descriptors.push(PollFd::from_borrowed_fd(descriptor, PollFlags::IN));
                    watched.push((position, tells));
                }
            }
        }
        let timeout = self.timeout(plan).and_then(|timeout| Timespec::try_from(timeout).ok());
        // Interrupted by a signal: as if nothing had happened.
        if rustix::event::poll(&mut descriptors, timeout.as_ref()) == Err(Errno::INVAL) {
            poll_one_by_one(&mut descriptors);
        }
        if !descriptors[0].revents().is_empty() {
            self.shared.bell.hear();
        }
        let heard = |descriptor: &PollFd<'_>| !descriptor.revents().is_empty();
        let templates = descriptors[of_templates..of_guests].iter().any(heard);
        let guests = descriptors[of_guests..first].chunks(2).map(|of_one| of_one.iter().any(heard)).collect();
        let mut news = vec![News::default(); self.workers.len()];
        for (descriptor, (position, tells)) in descriptors[first..].iter().zip(watched) {
            if heard(descriptor) {
                tells(&mut news[position]);
            }
        }
        AllNews { workers: news, templates, guests }
    }

    /// How long to wait at most.
    fn timeout(&self, plan: &Plan) -> Option<Duration> {
        let templates = self.templates.iter().filter_map(|(_, template)| template.due());
        let due = self.workers.iter().filter_map(WorkerProcess::due).chain(templates).min();
        let left = due.map(|due| due.saturating_duration_since(Instant::now()));
        [plan.timeout, left].into_iter().flatten().min()
    }

    /// Reads some of what workers have printed.
    fn take_in(&mut self, news: &AllNews) {
        for (worker, news) in self.workers.iter_mut().zip(&news.workers) {
            if news.stdout {
                worker.stdout.read_some(self.forwarder.as_ref());
            }
            if news.stderr {
                worker.stderr.read_some(self.forwarder.as_ref());
            }
        }
    }

    /// Reports the workers that have died, with their last words.
    fn bury(&mut self, news: &AllNews) {
        let now = Instant::now();
        for position in (0..self.workers.len()).rev() {
            let died = news.workers.get(position).is_some_and(|news| news.died);
            if died {
                self.workers[position].on_ended(now);
            }
            if !self.workers[position].is_over(died, now) {
                continue;
            }
            let mut worker = self.workers.swap_remove(position);
            worker.stdout.finish(self.forwarder.as_ref());
            worker.stderr.finish(self.forwarder.as_ref());
            let mut cause = worker.reap();
            cause.out_of_memory = cause.signal == Some(Signal::KILL.as_raw()) && self.kills.explain_one();
            self.shared.shell.lock().on_process_died(worker.process, cause);
        }
    }

    /// Reports the drivers that have ended or left.
    fn see_off(&mut self, news: &AllNews) {
        for position in (0..self.guests.len()).rev() {
            if news.guests.get(position) == Some(&true) {
                let guest = self.guests.swap_remove(position);
                let cause = DeathCause { pid: guest.pid, ..DeathCause::default() };
                self.shared.shell.lock().on_process_died(guest.process, cause);
            }
        }
    }

    /// Ends all workers, softly and then not, and all threads of the node.
    fn close(&mut self) {
        let disk = self.shared.shell.lock().close();
        self.wait_for_deaths(Instant::now() + GRACE);
        self.workers.iter().for_each(WorkerProcess::kill);
        for worker in &mut self.workers {
            worker.reap();
            worker.stdout.finish(self.forwarder.as_ref());
            worker.stderr.finish(self.forwarder.as_ref());
        }
        self.workers.clear();
        for (_, template) in &mut self.templates {
            template.close(self.forwarder.as_ref());
        }
        if let Some(disk) = disk {
            let _ = disk.join();
        }
        self.shared.shell.lock().close_populator();
        if let Some(forwarder) = &self.forwarder {
            forwarder.close(LAST_WORDS);
        }
    }

    fn wait_for_deaths(&mut self, until: Instant) {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if self.workers.is_empty() || left.is_zero() {
                return;
            }
            let news = self.wait(&Plan { timeout: Some(left), blocked: Vec::new() });
            self.take_in(&news);
            self.listen(&news);
            self.bury(&news);
            self.shared.shell.lock().on_wakeup();
        }
    }
}

/// For when the limit on open files was lowered below their number, which is more than one call then takes.
fn poll_one_by_one(descriptors: &mut [PollFd<'_>]) {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    for descriptor in descriptors.iter_mut() {
        let _ = rustix::event::poll(std::slice::from_mut(descriptor), Some(&at_once));
    }
    if descriptors.iter().all(|descriptor| descriptor.revents().is_empty()) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn readable(descriptor: &impl AsFd) -> PollFd<'_> {
    PollFd::new(descriptor, PollFlags::IN)
}

const STDOUT: fn(&mut News) = |news| news.stdout = true;
const STDERR: fn(&mut News) = |news| news.stderr = true;
const DIED: fn(&mut News) = |news| news.died = true;

/// Closes the session if the node's thread ends by a panic: nobody must wait for it for ever.
struct Alarm(Arc<Shared>);

impl Drop for Alarm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.closing.store(true, Ordering::Release);
            self.0.shell.lock().tell_locals_of_the_end();
            self.0.deliver();
        }
    }
}
