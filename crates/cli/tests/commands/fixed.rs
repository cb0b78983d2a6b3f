//! A daemon that answers from fixed data.

use aktis_daemon::Directory;
use aktis_daemon::admin::{Admin, AdminServer, LogPage, LogPosition, Refusal, SOCKET_NAME};
use aktis_protocol::admin::{
    AccountKind, ClusterStatus, DemandRow, DrainOrder, IdPrefix, JobRow, JobState, KeyReply, KeyRequest,
    KeyRow, KillOrder, Killed, Language, ListKind, ListQuery, Listing, LogLine, LogQuery, LogStream, NodeRow,
    NodeState, OnNode, ProgramRow, Rows, StopScope, TaskKind, TaskRow, TaskState,
};
use aktis_protocol::state::{
    ActorRow, ActorState, GroupRow, ObjectRow, ResourceRow, StoreRow, WorkerRole, WorkerRow, WorkerState,
};
use aktis_protocol::tables::Counts;
use aktis_protocol::trust::{TrustReply, TrustRequest};
use aktis_protocol::{
    ActorId, Amount, EntryRef, GroupId, GroupState, GroupStrategy, NodeId, ObjectId, ProcessSlot, ProgramId,
    Resources, TaskId,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

mod trust;

/// What it answers.
pub(crate) enum Fixed {
    /// The rows below.
    Answers { status: Box<ClusterStatus>, silent: Vec<NodeId> },
    /// The same rows, with this in the place of every text that others choose.
    Hostile(&'static str),
    /// That it will not.
    Refuses,
}

/// A daemon in this process.
pub(crate) struct Served {
    _server: AdminServer,
    _directory: Directory,
}

impl Served {
    pub(crate) fn start(path: &Path, fixed: Fixed) -> Self {
        let directory = Directory::claim(path).expect("free");
        let listener = directory.listen(SOCKET_NAME).expect("a socket");
        let server = AdminServer::start(listener, Arc::new(fixed)).expect("started");
        Self { _server: server, _directory: directory }
    }
}

const HEAD: NodeId = NodeId::from_words([0x1111_2222_3333_4444, 0x5555_6666_7777_8888]);
const MEMBER: NodeId = NodeId::from_words([0x9999_aaaa_bbbb_cccc, 0xdddd_eeee_ffff_0000]);
const DEAD: NodeId = NodeId::from_words([0xdead_dead_dead_dead, 0xdead_dead_dead_dead]);
const COUNTER: ActorId = ActorId::from_words([0xc0c0_c0c0_c0c0_c0c0, 0xc0c0_c0c0_0000_0000]);

impl Fixed {
    /// A cluster of three nodes, of which one is dead.
    pub(crate) fn cluster() -> Self {
        let (dead, nodes) = nodes().into_iter().partition(|node| node.state == NodeState::Dead);
        let status = ClusterStatus {
            node: HEAD,
            address: Some("10.0.0.1:6380".into()),
            head_lost: None,
            nodes,
            dead,
            drivers: 2,
            demand: vec![
                DemandRow {
                    resources: Resources::none().with("CPU", Amount::units(4)),
                    waiting: 12,
                    infeasible: false,
                    reason: "all nodes that could are busy".into(),
                },
                DemandRow {
                    resources: Resources::none().with("CPU", Amount::ONE).with("TPU", Amount(5_000)),
                    waiting: 1,
                    infeasible: true,
                    reason: "none has TPU".into(),
                },
            ],
            kept: Some(Counts { rows: 5, row_bytes: 400, objects: 1, tasks: 2, task_bytes: 300, events: 9 }),
        };
        Self::Answers { status: Box::new(status), silent: Vec::new() }
    }

    /// A node whose head does not answer.
    pub(crate) fn alone() -> Self {
        let status = ClusterStatus {
            node: MEMBER,
            address: Some("10.0.0.1:6380".into()),
            head_lost: Some("no contact for 7 s".into()),
            nodes: vec![nodes().remove(1)],
            ..ClusterStatus::default()
        };
        Self::Answers { status: Box::new(status), silent: vec![HEAD] }
    }

    /// A daemon that does nothing.
    pub(crate) fn refusing() -> Self {
        Self::Refuses
    }

    fn answer(&self) -> Result<(ClusterStatus, Vec<NodeId>), Refusal> {
        match self {
            Self::Answers { status, silent } => Ok(((**status).clone(), silent.clone())),
            Self::Hostile(text) => {
                let (mut status, silent) = Self::cluster().answer()?;
                crate::hostile::spoil_status(&mut status, text);
                Ok((status, silent))
            }
            Self::Refuses => Err(Refusal::new("the daemon is ending").with_hint("start it again")),
        }
    }
}

impl Admin for Fixed {
    fn status(&self) -> Result<ClusterStatus, Refusal> {
        Ok(self.answer()?.0)
    }

    fn stop(&self, _: StopScope) -> Result<(), Refusal> {
        self.answer().map(|_| ())
    }

    fn list(&self, query: &ListQuery) -> Result<Listing, Refusal> {
        let (status, silent) = self.answer()?;
        let (mut rows, left_out) = match query.what {
            ListKind::Tasks => wrap(query.select(tasks()), Rows::Tasks),
            ListKind::Actors => wrap(query.select(actors()), Rows::Actors),
            ListKind::Objects => wrap(query.select(objects()), Rows::Objects),
            ListKind::Nodes => wrap(query.select([status.nodes, status.dead].concat()), Rows::Nodes),
            ListKind::Workers => wrap(query.select(workers()), Rows::Workers),
            ListKind::Jobs => wrap(query.select(jobs()), Rows::Jobs),
            ListKind::Programs => wrap(query.select(programs()), Rows::Programs),
            ListKind::Groups => wrap(query.select(groups()), Rows::Groups),
        };
        if let Self::Hostile(text) = self {
            crate::hostile::spoil_rows(&mut rows, text);
        }
        Ok(Listing { rows, left_out, silent })
    }

    fn explain(&self, id: &IdPrefix) -> Result<String, Refusal> {
        self.answer()?;
        if let Self::Hostile(text) = self {
            return Ok(format!("task {id}: {text}"));
        }
        Ok(format!("task {id}... waits for 4 CPU\nall nodes that could are busy"))
    }

    fn logs(&self, query: &LogQuery, _: Option<LogPosition>, _: Duration) -> Result<LogPage, Refusal> {
        self.answer()?;
        let mut lines = lines();
        if let Self::Hostile(text) = self {
            lines.iter_mut().for_each(|line| (line.name, line.text) = ((*text).into(), (*text).into()));
        }
        let tail = query.tail.map_or(lines.len(), |tail| tail as usize).min(lines.len());
        let lines = lines[lines.len() - tail..].to_vec();
        let missed = if query.tail.is_none() { 3 } else { 0 };
        Ok(LogPage { lines, missed, next: LogPosition::default(), is_last: true })
    }

    fn keys(&self, request: KeyRequest) -> Result<KeyReply, Refusal> {
        self.answer()?;
        let key = b"user/4/shop/best price".to_vec();
        let value = b"7 \x1b[31mEUR".to_vec();
        Ok(match request {
            KeyRequest::List { prefix, .. } => {
                let row = KeyRow { key, bytes: value.len() as u64 };
                let keys = if row.key.starts_with(&prefix) { vec![row] } else { Vec::new() };
                KeyReply::Keys { keys, more: false }
            }
            KeyRequest::Get { key: asked } => KeyReply::Value((asked == key).then_some(value)),
            KeyRequest::Delete { key: asked } => KeyReply::Deleted(asked == key),
        })
    }

    fn kill(&self, order: &KillOrder) -> Result<Killed, Refusal> {
        self.answer()?;
        let id = tasks().remove(0).row.task;
        let told = Killed { kind: AccountKind::Task, id: id.to_string(), node: MEMBER };
        order.id.is_start_of(&id).then_some(told).ok_or_else(|| Refusal::new("nothing has such an id"))
    }

    fn drain(&self, _: &DrainOrder) -> Result<NodeId, Refusal> {
        self.answer()?;
        Err(Refusal::new("no node has such an id").with_hint("`aktis list nodes` shows which there are"))
    }

    fn trust(&self, request: TrustRequest) -> Result<TrustReply, Refusal> {
        self.answer()?;
        let text = match self {
            Self::Hostile(text) => text,
            Self::Answers { .. } | Self::Refuses => "aktis1-0123456789abcdef",
        };
        Ok(trust::answer(request, text))
    }
}

fn wrap<Row>((rows, left_out): (Vec<Row>, u64), kind: fn(Vec<Row>) -> Rows) -> (Rows, u64) {
    (kind(rows), left_out)
}

fn jobs() -> Vec<OnNode<JobRow>> {
    let job = |node, number, ended_unix_milliseconds, state| {
        let row = JobRow {
            job: number << 12,
            program: ProgramId::from_words([number, 0]),
            command: format!("./train --epochs {number}"),
            pid: 5000 + number as u32,
            began_unix_milliseconds: 1_700_000_000_000 + number,
            ended_unix_milliseconds,
            state,
        };
        OnNode { node, row }
    };
    vec![
        job(HEAD, 1, None, JobState::Running),
        job(MEMBER, 2, Some(1_700_000_009_000), JobState::Ended),
        job(DEAD, 3, Some(1_700_000_010_000), JobState::Lost),
    ]
}

fn programs() -> Vec<OnNode<ProgramRow>> {
    let program = |node, number, language, version: Option<&str>, bytes| {
        let row = ProgramRow {
            program: ProgramId::from_words([number, 0]),
            language,
            version: version.map(str::to_owned),
            bytes,
            architecture: "x86_64".into(),
            came_unix_milliseconds: 1_700_000_000_000 + number,
        };
        OnNode { node, row }
    };
    vec![
        program(HEAD, 1, Language::Rust, None, Some(9_876_543)),
        program(HEAD, 2, Language::Python, Some("3.12.1"), None),
        program(MEMBER, 1, Language::Rust, None, Some(9_876_543)),
    ]
}

fn groups() -> Vec<OnNode<GroupRow>> {
    let cpus = |count| Resources::none().with("CPU", Amount::units(count));
    let ready = GroupRow {
        group: GroupId::from_words([0x6060_6060_6060_6060, 0x6060_6060_0000_0000]),
        name: Some("trainers".into()),
        strategy: GroupStrategy::StrictSpread,
        state: GroupState::Ready,
        bundles: vec![cpus(4), cpus(4).with("GPU", Amount::ONE)],
        available: vec![cpus(1)],
        nodes: vec![HEAD, MEMBER],
    };
    let pending = GroupRow {
        group: GroupId::from_words([0x6161_6161_6161_6161, 0]),
        name: None,
        strategy: GroupStrategy::Pack,
        state: GroupState::Pending("it waits for 100 CPU".into()),
        bundles: vec![cpus(100)],
        available: Vec::new(),
        nodes: Vec::new(),
    };
    [ready, pending].map(|row| OnNode { node: HEAD, row }).into()
}

fn nodes() -> Vec<NodeRow> {
    let resource = |name: &str, total, available| ResourceRow { name: name.into(), total, available };
    let memory = |gib: u64| Amount::units(gib << 30);
    let head = NodeRow {
        node: HEAD,
        is_head: true,
        state: NodeState::Alive,
        host: "alpha".into(),
        address: "10.0.0.1:6380".into(),
        pid: 4000,
        labels: BTreeMap::new(),
        resources: vec![
            resource("CPU", Amount::units(8), Amount(25_000)),
            resource("memory", memory(16), memory(12)),
        ],
        store: StoreRow { capacity: 4 << 30, used: 1_300_000_000, objects: 17, ..StoreRow::default() },
        workers: 9,
        version: "0.1.0".into(),
        drivers: vec![4100],
        died_unix_milliseconds: None,
        reason: None,
    };
    let member = NodeRow {
        node: MEMBER,
        is_head: false,
        host: "beta".into(),
        address: "10.0.0.2:41234".into(),
        labels: BTreeMap::from([("disk".into(), "fast".into()), ("zone".into(), "b".into())]),
        resources: vec![
            resource("CPU", Amount::units(64), Amount::units(64)),
            resource("GPU", Amount::units(2), Amount::ONE),
            resource("memory", memory(256), memory(256)),
        ],
        store: StoreRow { capacity: 64 << 30, ..StoreRow::default() },
        workers: 64,
        ..head.clone()
    };
    let dead = NodeRow {
        node: DEAD,
        state: NodeState::Dead,
        host: "gamma".into(),
        address: "10.0.0.3:41235".into(),
        labels: BTreeMap::new(),
        workers: 0,
        version: String::new(),
        died_unix_milliseconds: Some(1_700_000_010_000),
        reason: Some("it was stopped".into()),
        ..member.clone()
    };
    vec![head, member, dead]
}

fn tasks() -> Vec<OnNode<TaskRow>> {
    let task = |number: u64, name: &str, state| TaskRow {
        task: TaskId::from_words([0x5a5a_5a5a_0000_0000 + number, number << 32]),
        name: name.into(),
        kind: TaskKind::Function,
        state,
        attempt: 0,
        pid: None,
        actor: None,
        error: None,
        is_foreign: false,
    };
    let running = TaskRow { pid: Some(4017), ..task(1, "shard", TaskState::Running) };
    let error = Some("the worker process 4018 was killed by signal 9\nits last words: none".into());
    let failed = TaskRow { attempt: 3, error, ..task(2, "shard", TaskState::Failed) };
    let call =
        TaskRow { kind: TaskKind::Method, actor: Some(COUNTER), ..task(3, "Counter.add", TaskState::Queued) };
    let waiting = task(4, "total", TaskState::Waiting);
    let rows = [(HEAD, running), (MEMBER, failed), (HEAD, call), (HEAD, waiting)];
    rows.map(|(node, row)| OnNode { node, row }).into()
}

fn actors() -> Vec<OnNode<ActorRow>> {
    let alive = ActorRow {
        actor: COUNTER,
        type_name: "Counter".into(),
        name: Some("hits".into()),
        state: ActorState::Alive,
        reason: String::new(),
        process: Some(ProcessSlot(3)),
        pid: 4019,
        restarts: 1,
        resources: Resources::none().with("CPU", Amount(5_000)),
        detached: true,
    };
    let pending = ActorRow {
        actor: ActorId::from_words([0xacac_acac_acac_acac, 0]),
        type_name: "Model".into(),
        name: None,
        state: ActorState::Pending,
        reason: "it waits for 1 GPU".into(),
        process: None,
        pid: 0,
        restarts: 0,
        resources: Resources::none().with("GPU", Amount::ONE).with("memory", Amount::units(2 << 30)),
        detached: false,
    };
    vec![OnNode { node: HEAD, row: alive }, OnNode { node: MEMBER, row: pending }]
}

fn objects() -> Vec<OnNode<ObjectRow>> {
    let object = |index: u64, bytes, sealed, spilled| ObjectRow {
        object: ObjectId::from_words([0x0b0b_0b0b_0b0b_0b0b, index]),
        entry: EntryRef { index: 0, generation: 0 },
        bytes,
        holders: vec![ProcessSlot(0), ProcessSlot(2)],
        sealed,
        pinned: index == 1,
        spilled,
        elsewhere: false,
    };
    let rows = [
        object(1, 100_000_000, true, false),
        object(2, 17_000, true, true),
        object(3, 5 << 30, false, false),
    ];
    rows.map(|row| OnNode { node: HEAD, row }).into()
}

fn workers() -> Vec<OnNode<WorkerRow>> {
    let shared = WorkerRow {
        process: ProcessSlot(1),
        pid: 4017,
        role: WorkerRole::Shared,
        state: WorkerState::Busy,
        resources: Resources::none().with("CPU", Amount::units(5)),
    };
    let actor = WorkerRow {
        process: ProcessSlot(3),
        pid: 4019,
        role: WorkerRole::Actor(COUNTER),
        state: WorkerState::Busy,
        resources: Resources::none(),
    };
    let starting = WorkerRow {
        process: ProcessSlot(1000),
        pid: 0,
        role: WorkerRole::Tasks,
        state: WorkerState::Starting,
        resources: Resources::none(),
    };
    [shared, actor, starting].map(|row| OnNode { node: HEAD, row }).into()
}

fn lines() -> Vec<LogLine> {
    let line = |node, pid, name: &str, stream, text: &str| LogLine {
        node,
        pid,
        name: name.into(),
        stream,
        unix_milliseconds: 1_790_000_000_123,
        text: text.into(),
    };
    vec![
        line(HEAD, 4017, "shard", LogStream::Output, "loaded 100 rows"),
        line(MEMBER, 512, "Counter", LogStream::Error, "a \"quoted\" warning"),
    ]
}
