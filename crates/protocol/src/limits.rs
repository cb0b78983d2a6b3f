//! Every bound of the system, by name. Reaching one is a tested event: the caller is slowed down or
//! gets a clear error.

/// Tasks that one process may have submitted and not yet finished before `remote` blocks.
pub const QUEUED_TASKS_MAX: usize = 1_000_000;
/// Bytes of an encoded value up to which it travels inside messages instead of the object store.
pub const INLINE_BYTES_MAX: usize = 16 * 1024;
/// Bytes of all arguments of a call together that travel inside messages; further ones go into the object store.
pub const ARGUMENTS_BYTES_MAX: usize = 128 * 1024;
/// Processes that one node may have at the same time.
pub const PROCESSES_MAX: usize = 1024;
/// Different resource shapes that one session may use.
pub const SHAPES_MAX: usize = 256;
/// Queues of tasks (one per submitting process, shard of it, and shape) that one node may have.
pub const LANES_MAX: usize = 4096;
/// Bits of a task's key that tell its shard.
pub const SHARD_BITS: u32 = 4;
/// Shards of the submitter of one process: so many threads can submit without waiting for each other.
pub const SHARDS_MAX: usize = 1 << SHARD_BITS;
/// Threads of one worker process that can run a task or an actor call at the same time.
pub const THREADS_MAX: usize = 512;
/// Bytes of lineage (specifications of finished tasks) that one process keeps; the oldest go first.
pub const LINEAGE_BYTES_MAX: usize = 256 << 20;
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
/// Objects that one shard knows.
pub const SHARD_OBJECTS_MAX: usize = 100_000_000;
/// Bytes of the record of one task in the control store.
pub const TASK_RECORD_BYTES_MAX: usize = 1 << 20;
/// Bytes of all records of tasks in one shard.
pub const TASK_RECORDS_BYTES_MAX: usize = 4 << 30;
/// Objects that a task in the control store makes.
pub const TASK_RETURNS_MAX: u32 = 1024;
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
