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
