//! The grammar of the command line, and its help.

use crate::debug::Debug;
use crate::drain::Drain;
use crate::failed::Failed;
use crate::kv::Kv;
use crate::trust::{Audit, Nodes, Rotate, Token};
use crate::values;
use aktis_protocol::admin::{
    IdPrefix, JobRow, JobState, KillOrder, Known, ListKind, ListQuery, LogQuery, NodeRow, NodeState,
    ObjectPlace, OnNode, ProgramRow, TaskRow, TaskState,
};
use aktis_protocol::state::{ActorRow, ActorState, GroupRow, ObjectRow, WorkerRow, WorkerState};
use aktis_protocol::{Amount, GroupState, limits};
use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum, value_parser};
use clap_complete::Shell;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

const EXAMPLES: &str = "\
A cluster in two commands:
  aktis start --head --listen 10.0.0.1:6380    on the first machine; it prints the second command
  aktis start --address 10.0.0.1:6380 --token TOKEN    on each other machine

`aktis COMMAND --help` says more about each command.";

/// Start, look at and end a cluster of aktis.
#[derive(Debug, Parser)]
#[command(name = "aktis", version, after_help = EXAMPLES, disable_help_subcommand = true)]
pub(crate) struct Arguments {
    /// Directory of this machine's daemon [default: $AKTIS_DIRECTORY, else $XDG_RUNTIME_DIR/aktis, else
    /// /tmp/aktis-UID]
    #[arg(long, global = true, value_name = "DIRECTORY")]
    pub(crate) directory: Option<PathBuf>,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Start(Box<Start>),
    /// Show how the cluster stands: its nodes, what is in use, and what is waited for
    #[command(after_help = "\
Exit codes: 0 if the control process and all nodes answer, 3 if one does not, 1 if no node runs here.
Nodes that have left or died are shown, and change nothing about the exit code.")]
    Status(Form),
    List(List),
    /// Say why something stands as it does: what a task waits for, where an actor is, what has failed
    Explain {
        /// A task, actor, object, placement group or node: its id, or the first digits of it
        #[arg(value_parser = values::id)]
        id: IdPrefix,
        #[command(flatten)]
        form: Form,
    },
    /// Print what tasks, actors, daemons and the control process have printed, on all nodes, with times in UTC
    Logs(Logs),
    Kv(Kv),
    Kill(Kill),
    Drain(Drain),
    Debug(Debug),
    Token(Token),
    Nodes(Nodes),
    Rotate(Rotate),
    Audit(Audit),
    /// End the node of this machine, with all that runs there, and wait until it is gone
    Stop {
        /// End all other nodes of the cluster as well
        #[arg(long)]
        cluster: bool,
        /// How long to wait
        #[arg(long = "timeout", value_name = "DURATION", default_value = "30s", value_parser = values::duration)]
        patience: Duration,
        #[command(flatten)]
        form: Form,
    },
    /// Write what the control process of this machine has into one file: members, names, keys and the cluster's authority
    #[command(after_help = "\
It may run meanwhile. The file is a tar archive, new, and readable for its owner alone: with it, one can be the cluster.
Put it back with `aktis restore`, in a directory in which no cluster was begun, and `aktis start --head` there.")]
    Backup {
        /// The new file
        file: PathBuf,
        #[command(flatten)]
        form: Form,
    },
    /// Put a backup of a control process into the directory, from which `aktis start --head` goes on
    Restore {
        /// What `aktis backup` has written
        file: PathBuf,
        #[command(flatten)]
        form: Form,
    },
    /// Print a script that completes these commands in a shell
    #[command(
        after_help = "For bash:\n  aktis completions bash > ~/.local/share/bash-completion/completions/aktis"
    )]
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// For whom an answer is printed.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Form {
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

/// Start the daemon of this machine, which begins a cluster or joins one
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("role").required(true), override_usage = "\
  aktis start --head [OPTIONS]
       aktis start --address <HOST:PORT> [--token <TOKEN>] [OPTIONS]
       aktis start --config <FILE> [OPTIONS]", after_help = "\
The daemon runs in the foreground until Ctrl-C, or in the background with --detach. One daemon
serves all programs of one user on a machine. Sizes are numbers with a unit: 512MiB, 4GiB, 1.5GB.

Examples:
  aktis start --head                                   a cluster of this machine alone
  aktis start --head --listen 10.0.0.1:6380 --detach   others can join
  aktis start --address 10.0.0.1:6380 --token TOKEN --gpus 2 --label zone=a
  ssh head aktis token | aktis start --address 10.0.0.1:6380 --token -
  aktis start --config /etc/aktis/aktis.conf")]
pub(crate) struct Start {
    /// Begin a cluster: this machine is its head
    #[arg(long, group = "role")]
    pub(crate) head: bool,
    /// Join the cluster whose head listens there
    #[arg(long, value_name = "HOST:PORT", value_parser = values::address, group = "role")]
    pub(crate) address: Option<String>,
    /// The token that the head has printed; `-` reads it from the standard input, where other users cannot see it. A
    /// machine that was a node of the cluster before needs none while its certificate is good
    #[arg(long, value_name = "TOKEN", conflicts_with = "head")]
    pub(crate) token: Option<String>,
    /// Listen for other machines on this address of this machine [default: a head, where only this machine can reach
    /// it; others, a free port of the address from which they reach the head]
    #[arg(long, value_name = "IP:PORT", value_parser = values::listen)]
    pub(crate) listen: Option<SocketAddr>,
    /// Port at which the node of a head listens for other nodes, so that a firewall can let it through; `--listen` is that
    /// of its control process [default: any that is free]
    #[arg(long, value_name = "PORT", conflicts_with = "address", value_parser = value_parser!(u16).range(1..))]
    pub(crate) node_port: Option<u16>,
    /// A node of the cluster is dead after so long without a sign of life, such as 1s or 30s: less finds deaths sooner,
    /// more spares nodes that are slow at times [default: 2s]
    #[arg(long, value_name = "DURATION", conflicts_with = "address", value_parser = values::node_timeout)]
    pub(crate) node_timeout: Option<Duration>,
    /// CPUs that tasks can use [default: all]
    #[arg(long, value_name = "NUMBER", value_parser = values::amount, allow_negative_numbers = true)]
    pub(crate) cpus: Option<Amount>,
    /// GPUs that tasks can use [default: all, or those that CUDA_VISIBLE_DEVICES names]
    #[arg(long, value_name = "NUMBER", value_parser = values::gpus, allow_negative_numbers = true)]
    pub(crate) gpus: Option<Amount>,
    /// Memory that tasks can ask for [default: 70 % of the machine's]
    #[arg(long, value_name = "SIZE", value_parser = values::memory)]
    pub(crate) memory: Option<Amount>,
    /// Something else that tasks can ask for; can be repeated
    #[arg(long = "resource", value_name = "NAME=AMOUNT", value_parser = values::resource)]
    pub(crate) resources: Vec<(String, Amount)>,
    /// Something to know the node by; can be repeated
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = values::label)]
    pub(crate) labels: Vec<(String, String)>,
    /// Size of the object store [default: 30 % of the machine's memory]
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub(crate) store_bytes: Option<u64>,
    /// Where objects go that do not fit into the store [default: the system's temporary directory]
    #[arg(long, value_name = "DIRECTORY", value_parser = values::directory)]
    pub(crate) spill_directory: Option<PathBuf>,
    /// How many bytes of them there may be; 0 keeps all objects in memory [default: as many as the disk takes]
    #[arg(long, value_name = "SIZE", value_parser = values::size_or_none)]
    pub(crate) spill_bytes: Option<u64>,
    /// Keep tasks on the head's machine from the keys of the cluster: if the system lets this user do that, always (else the
    /// node does not start), or never. Such tasks cannot use `sudo` and the like
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub(crate) hide_control: HideWhen,
    /// Take options from this file too: one in a line, such as `cpus = 4`, without dashes; `#` begins a comment. Options on the
    /// command line go before
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Run in the background: return when the daemon is ready, and leave it running
    #[arg(long)]
    pub(crate) detach: bool,
    #[command(flatten)]
    pub(crate) form: Form,
    /// This is the process in the background, and its standard output belongs to the command that waits for it
    #[arg(long, hide = true)]
    pub(crate) background: bool,
}

/// When tasks are kept from the keys of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum HideWhen {
    Auto,
    Always,
    Never,
}

/// Show what there is: tasks, actors, objects, nodes, workers, jobs, programs or placement groups
#[derive(Args, Debug)]
#[command(after_help = "\
What there is, and its states:
  tasks    tasks and calls of actors, also finished ones that are still on record:
           waiting (for inputs), queued, sent (to its actor), running, finished, failed
  actors   actors that somebody can still reach: pending, alive, restarting, dead
  objects  objects in the stores of the nodes: writing, memory, disk, elsewhere
  nodes    nodes of the cluster: joining, alive, draining, silent, dead
  workers  worker processes: starting, idle, busy, leaving
  jobs     programs that use the cluster, or have: running, ended, lost (with their node)
  groups   placement groups: pending (for resources), ready, removed")]
pub(crate) struct List {
    /// What to show
    pub(crate) what: What,
    /// Only those on this node: its id, or the first digits of it
    #[arg(long, value_name = "ID", value_parser = values::id)]
    pub(crate) node: Option<IdPrefix>,
    /// Only those in this state, such as running, failed, alive or dead
    #[arg(long)]
    pub(crate) state: Option<String>,
    /// Only those with this name: of the function, of the actor, or of the node's machine
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Only those of which a field has this value, such as kind=method; can be repeated
    #[arg(long = "filter", value_name = "FIELD=VALUE", value_parser = values::filter)]
    pub(crate) filters: Vec<(String, String)>,
    /// How many at most
    #[arg(long, value_name = "NUMBER", default_value_t = 1000, value_parser = value_parser!(u32).range(1..=i64::from(limits::LISTED_ROWS_MAX)))]
    pub(crate) limit: u32,
    #[command(flatten)]
    pub(crate) form: Form,
}

/// What can be listed.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum What {
    Tasks,
    Actors,
    Objects,
    Nodes,
    Workers,
    Jobs,
    Programs,
    Groups,
}

impl What {
    /// What it is called, what it means, and the words for its states.
    fn kind(self) -> (&'static str, ListKind, &'static [&'static str]) {
        match self {
            Self::Tasks => ("tasks", ListKind::Tasks, TaskState::WORDS),
            Self::Actors => ("actors", ListKind::Actors, ActorState::WORDS),
            Self::Objects => ("objects", ListKind::Objects, ObjectPlace::WORDS),
            Self::Nodes => ("nodes", ListKind::Nodes, NodeState::WORDS),
            Self::Workers => ("workers", ListKind::Workers, WorkerState::WORDS),
            Self::Jobs => ("jobs", ListKind::Jobs, JobState::WORDS),
            Self::Programs => ("programs", ListKind::Programs, &["served"]),
            Self::Groups => ("groups", ListKind::Groups, GroupState::WORDS),
        }
    }

    /// What it can be filtered by.
    fn fields(self) -> &'static [&'static str] {
        match self {
            Self::Tasks => OnNode::<TaskRow>::FIELDS,
            Self::Actors => OnNode::<ActorRow>::FIELDS,
            Self::Objects => OnNode::<ObjectRow>::FIELDS,
            Self::Nodes => NodeRow::FIELDS,
            Self::Workers => OnNode::<WorkerRow>::FIELDS,
            Self::Jobs => OnNode::<JobRow>::FIELDS,
            Self::Programs => OnNode::<ProgramRow>::FIELDS,
            Self::Groups => OnNode::<GroupRow>::FIELDS,
        }
    }
}

impl List {
    /// The question to the daemon.
    pub(crate) fn query(self) -> Result<ListQuery, Failed> {
        let ((name, what, words), fields) = (self.what.kind(), self.what.fields());
        if let Some(word) = self.state.as_ref().filter(|state| !words.contains(&state.as_str())) {
            return Err(Failed::NoSuchState { what: name, word: word.clone(), words });
        }
        if self.name.is_some() && matches!(what, ListKind::Objects | ListKind::Workers | ListKind::Programs) {
            return Err(Failed::NoSuchFilter(name, "names", "--name"));
        }
        if let Some((field, _)) = self.filters.iter().find(|(field, _)| !fields.contains(&field.as_str())) {
            let field = field.clone();
            return Err(Failed::NoSuchField { what: name, field, fields });
        }
        let Self { limit, node, state, name, filters, .. } = self;
        Ok(ListQuery { what, limit, node, state, name, filters })
    }
}

/// End a task, an actor or a job, on whichever node it is
#[derive(Args, Debug)]
#[command(after_help = "\
A task or call that has not ended is cancelled, with all that it has submitted. An actor ends at once, also one that
is detached. A job is the process of a driver: it gets SIGTERM, and its actors end with it, but for detached ones.
`aktis list` shows the ids.")]
pub(crate) struct Kill {
    /// A task, actor or job: its id, or the first digits of it
    #[arg(value_parser = values::id)]
    id: IdPrefix,
    /// An actor may start again, if it has restarts left
    #[arg(long)]
    restart: bool,
    /// End the worker process in which a task runs too, and a job by SIGKILL
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    pub(crate) form: Form,
}

impl Kill {
    /// The order to the daemon.
    pub(crate) fn order(self) -> KillOrder {
        let Self { id, restart, force, form: _ } = self;
        KillOrder { id, restart, force }
    }
}

#[derive(Args, Debug)]
pub(crate) struct Logs {
    /// Only those of this node's processes: its id, or the first digits of it
    #[arg(long, value_name = "ID", value_parser = values::id)]
    pub(crate) node: Option<IdPrefix>,
    /// Only those of the process with this id
    #[arg(long, visible_alias = "worker", value_name = "PID")]
    pub(crate) process: Option<u32>,
    /// Only those of this actor: its id, or the first digits of it
    #[arg(long, value_name = "ID", value_parser = values::id)]
    pub(crate) actor: Option<IdPrefix>,
    /// Only those of this task: its id, or the first digits of it
    #[arg(long, value_name = "ID", value_parser = values::id)]
    pub(crate) task: Option<IdPrefix>,
    /// Only the last so many lines, before those that are followed
    #[arg(long, value_name = "NUMBER")]
    pub(crate) tail: Option<u32>,
    /// Only those since this time, such as 2026-01-31T08:00Z (RFC 3339, UTC) or 10m, 2h for so long ago
    #[arg(long, value_name = "TIME", value_parser = values::since)]
    pub(crate) since: Option<u64>,
    /// Go on with new lines as they are printed, until Ctrl-C
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Print one JSON object per line, for programs
    #[arg(long = "json")]
    pub(crate) json: bool,
}

impl Logs {
    /// The question to the daemon.
    pub(crate) fn query(self) -> LogQuery {
        let Self { node, process, actor, task, tail, since, follow, json: _ } = self;
        LogQuery { node, pid: process, actor, task, tail, since_unix_milliseconds: since, follow }
    }
}
