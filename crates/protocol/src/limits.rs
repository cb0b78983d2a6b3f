//! Every bound of the system, by name. Reaching one is a tested event: the caller is slowed down or
//! gets a clear error.

/// Tasks that one process may have submitted and not yet finished before `remote` blocks.
pub const QUEUED_TASKS_MAX: usize = 1_000_000;
/// Bytes of an encoded value up to which it travels inside messages instead of the object store.
pub const INLINE_BYTES_MAX: usize = 16 * 1024;
/// Bytes of all arguments of a call together that travel inside messages; further ones go into the object store.
pub const ARGUMENTS_BYTES_MAX: usize = 128 * 1024;
/// Bytes of the arguments of a task or call as a worker gets them, with the values of small references in their place.
pub const TASK_PAYLOAD_BYTES_MAX: usize = 256 * 1024;
/// Bytes of a value or a failure inside a message between two nodes: as much as a message between two processes holds,
/// with what comes before it.
pub const PEER_VALUE_BYTES_MAX: usize = 255 * 1024;
/// References inside a value that another node reads: a frame names them all, and each of them may be given back at once.
pub const PEER_REFERENCES_MAX: usize = 100_000;
/// Processes that one node may have at the same time.
pub const PROCESSES_MAX: usize = 1024;
/// Programs that one node serves at the same time.
pub const PROGRAMS_MAX: usize = 64;
/// Objects with code that a node keeps for one program; the oldest is released for the next.
pub const CODE_OBJECTS_MAX: usize = 1024;
/// Bytes of a program's executable, of which a node keeps a copy.
pub const PROGRAM_BYTES_MAX: u64 = 4 << 30;
/// Bytes of the message with which a driver attaches to a node.
pub const ATTACH_MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// Different resource shapes that one session may use at a time.
pub const SHAPES_MAX: usize = 256;
/// Queues of tasks (one per submitting process, shard of it, and shape) that one node may have.
pub const LANES_MAX: usize = 4096;
/// Queues that one shard of a process has before it gives up those that have nothing to do.
pub const LANES_KEPT: usize = 32;
/// Bits of a task's key that tell its shard.
pub const SHARD_BITS: u32 = 4;
/// Shards of the submitter of one process: so many threads can submit without waiting for each other.
pub const SHARDS_MAX: usize = 1 << SHARD_BITS;
/// Threads of one worker process that can run a task or an actor call at the same time.
pub const THREADS_MAX: usize = 512;
/// Bytes of lineage (specifications of finished tasks) that one process keeps; the oldest go first.
pub const LINEAGE_BYTES_MAX: usize = 256 << 20;
/// Bytes of large arguments passed by value that stay in the store, so that their finished tasks can run again; the oldest go
/// first. One process keeps at most this, and at most an eighth of the store.
pub const KEPT_ARGUMENTS_BYTES_MAX: u64 = 64 << 20;
/// Programs that have left a node and are still listed.
pub const JOBS_KEPT: usize = 100;
/// Programs of all nodes that have left a cluster, together, that are still listed.
pub const JOBS_OF_LEFT_NODES_KEPT: usize = 1000;
/// Most bytes of what a process tells others about how one task can be run again; what takes more is known to it alone.
pub const TOLD_LINEAGE_BYTES_MAX: usize = 64 * 1024;
/// Most bytes of what a node keeps about how tasks can be run again without those who submitted them; the oldest go.
pub const NODE_LINEAGE_BYTES_MAX: usize = 64 << 20;
/// Bytes of one control message between a process and its node.
pub const CONTROL_MESSAGE_BYTES_MAX: usize = 128 * 1024;
/// Bytes of one message between a node and its template process.
pub const TEMPLATE_MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// Bytes of the description of how a worker process is to be set up: a message to the template holds it.
pub const ENVIRONMENT_BYTES_MAX: usize = TEMPLATE_MESSAGE_BYTES_MAX / 2;
/// Placement groups that one session may have at the same time.
pub const GROUPS_MAX: usize = 16_384;
/// Bytes of a key of the session's key-value space.
pub const KEY_BYTES_MAX: usize = 1024;
/// Bytes of a value there.
pub const KEY_VALUE_BYTES_MAX: usize = 64 * 1024;
/// Bytes of all keys and values there.
pub const KEY_SPACE_BYTES_MAX: usize = 64 << 20;
/// As a number of retries or restarts: as often as it takes.
pub const FOR_EVER: u32 = u32::MAX;
/// Times that a task is run again after the death of its worker, unless told otherwise.
pub const TASK_RETRIES_DEFAULT: u32 = 3;
/// Items that a streaming task may be ahead of its consumer, unless told otherwise.
pub const STREAM_AHEAD_DEFAULT: u32 = 64;
/// Lines of a worker's standard error that are kept to explain its death.
pub const STDERR_LINES_KEPT: usize = 20;
/// Bytes of one such line; the rest is cut.
pub const STDERR_LINE_BYTES_MAX: usize = 500;
/// Objects that the store of one node may hold, in memory and on disk together.
pub const STORED_OBJECTS_MAX: u32 = 1 << 20;
/// Bytes of one question of the command line to a daemon.
pub const ADMIN_REQUEST_BYTES_MAX: usize = 64 * 1024;
/// Bytes of one answer to it.
pub const ADMIN_REPLY_BYTES_MAX: usize = 16 << 20;
/// Command lines that a daemon answers at the same time.
pub const ADMIN_CONNECTIONS_MAX: usize = 32;
/// Rows of one answer to a command line.
pub const LISTED_ROWS_MAX: u32 = 50_000;
/// Lines of output in one message to a command line.
pub const LOG_LINES_MAX: usize = 1000;
/// Bytes of lines that a daemon keeps of what its workers have printed.
pub const LOG_BYTES_KEPT: usize = 16 << 20;
/// Bytes of one such line; the rest is cut.
pub const LOG_LINE_BYTES_MAX: usize = 16 * 1024;
/// Bytes of one daemon's answer to another that asks for a command line.
pub const NODE_ANSWER_BYTES_MAX: usize = 8 << 20;
/// Nodes that one cluster may have at the same time.
pub const NODES_MAX: usize = 4096;
/// Join tokens that the control process knows at the same time.
pub const TOKENS_MAX: usize = 1024;
/// Nodes that are put out of a cluster at the same time.
pub const PUT_OUT_MAX: usize = 4096;
/// Nodes whose keys the control process knows: members, and those that have joined last.
pub const NODE_KEYS_MAX: usize = 2 * NODES_MAX;
/// Nodes that have left a cluster and are still told of, the last ones.
pub const DEAD_NODES_KEPT: usize = 100;
/// Seconds for which a token may be good: whoever finds it later must not be able to join.
pub const TOKEN_SECONDS_MAX: u64 = 365 * 24 * 3600;
/// How long a node counts as alive after its last heartbeat.
pub const NODE_LEASE_MICROSECONDS: u64 = 2_000_000;
/// How long a node counts as alive after the control process has begun anew, until it has joined again.
pub const NODE_REJOIN_MICROSECONDS: u64 = 5_000_000;
/// How often a node sends a heartbeat: some may be late or lost before its lease lapses.
pub const NODE_HEARTBEAT_MICROSECONDS: u64 = 400_000;
/// How often a node with work tells the placer how it stands.
pub const NODE_REPORT_MICROSECONDS: u64 = 100_000;
/// Rows of queues in one such report; the longest queues go first.
pub const REPORT_QUEUES_MAX: usize = 256;
/// Functions in one such report whose run times are told; the others come with the next.
pub const REPORT_FUNCTIONS_MAX: usize = 256;
/// Links in one such report whose bandwidth is told.
pub const REPORT_LINKS_MAX: usize = NODES_MAX;
/// Nodes that a report says to be out of reach.
pub const REPORT_UNREACHABLE_MAX: usize = 256;
/// Demands of one node that may wait for a place at the same time.
pub const DEMANDS_MAX: usize = 1024;
/// Tasks that one demand may be for; whoever has more asks again.
pub const DEMAND_TASKS_MAX: u32 = 10_000;
/// Inputs of a demand that count; the largest go first, the others move too little to matter.
pub const DEMAND_INPUTS_MAX: usize = 64;
/// Bytes that a task reads from which on it matters that they are on another node.
pub const NEAR_BYTES_MIN: u64 = 64 * 1024;
/// Bytes that a task reads from which on it matters that they are not on other nodes.
pub const NEAR_HERE_BYTES_MIN: u64 = 1 << 20;
/// Bundles of one placement group.
pub const BUNDLES_MAX: usize = 4096;
/// Objects that a drained node names to another one at a time, so that it copies them.
pub const HAND_OVER_OBJECTS_MAX: usize = 1024;
/// The version of all that nodes say to each other. Both ends of a connection have the same one.
pub const PROTOCOL_VERSION: u32 = 4;
/// Bytes of one frame between two nodes.
pub const FRAME_BYTES_MAX: usize = 16 << 20;
/// Bytes of a frame from somebody who has not shown a certificate.
pub const STRANGER_FRAME_BYTES_MAX: usize = 4096;
/// Bytes that a node says with its wish for a link.
pub const GREETING_BYTES_MAX: usize = 64 * 1024;
/// Bytes of frames that one link keeps: not yet sent, or not yet acknowledged.
pub const LINK_QUEUE_BYTES_MAX: usize = 64 << 20;
/// Links that one node has at the same time.
pub const LINKS_MAX: usize = 4096;
/// Connections at the same time that have not shown who they are.
pub const HANDSHAKES_MAX: usize = 256;
/// Such connections from one address.
pub const HANDSHAKES_PER_ADDRESS_MAX: usize = 32;
/// Connections through which one node serves objects at the same time.
pub const BULK_CONNECTIONS_MAX: usize = 1024;

/// Slots that the ids of the control store are divided into; a power of two.
pub const SLOTS: usize = 1024;
/// Changes that one batch may have.
pub const BATCH_CHANGES_MAX: usize = 65_536;
/// Bytes that the changes of one batch may have together.
pub const BATCH_BYTES_MAX: usize = 8 << 20;
/// Batches of a sender that may be unanswered: of so many, a repeated one is told again what was refused.
pub const BATCHES_UNANSWERED_MAX: u64 = 1024;
/// Nodes that one shard of the control store can tell apart, those that have left lately included.
pub const STORE_NODES_MAX: usize = 65_535;
/// Bytes of a row of the control store: a description of a node, an actor, a group.
pub const ROW_BYTES_MAX: usize = 256 * 1024;
/// Bytes of all rows of one shard, keys included.
pub const ROWS_BYTES_MAX: usize = 256 << 20;
/// The same, above which no small values of users are added.
pub const KEY_ROWS_BYTES_MAX: usize = ROWS_BYTES_MAX / 4 * 3;
/// How keys begin that the library keeps for itself, among the small values of users.
pub const OWN_KEY_PREFIX: &[u8] = b"aktis/";
/// Bytes of all rows above which no such values are added: programs attach though users have filled their room.
pub const OWN_KEY_ROWS_BYTES_MAX: usize = KEY_ROWS_BYTES_MAX + ROWS_BYTES_MAX / 16;
/// Objects that one shard knows.
pub const SHARD_OBJECTS_MAX: usize = 100_000_000;
/// Bytes of the record of one task in the control store.
pub const TASK_RECORD_BYTES_MAX: usize = 1 << 20;
/// Bytes of all records of tasks in one shard.
pub const TASK_RECORDS_BYTES_MAX: usize = 4 << 30;
/// Values that one task or call returns.
pub const TASK_RETURNS_MAX: u32 = 16_384;
/// Bytes of the text of one event.
pub const EVENT_BYTES_MAX: usize = 4096;
/// Events that one shard keeps; the oldest go first.
pub const EVENTS_MAX: usize = 10_000;
/// Subscriptions that one shard serves.
pub const SUBSCRIPTIONS_MAX: usize = 65_536;
/// Rows, objects or events in one answer of a shard.
pub const ANSWER_ROWS_MAX: u32 = 10_000;
/// Bytes of batches that wait for one shard of the control store; who brings more waits.
pub const SHARD_QUEUE_BYTES_MAX: usize = 64 << 20;
/// Bytes of records that wait to be written to one log.
pub const LOG_QUEUE_BYTES_MAX: usize = 64 << 20;
/// Bytes of one record of a log or piece of a snapshot.
pub const LOG_RECORD_BYTES_MAX: usize = 1 << 30;
