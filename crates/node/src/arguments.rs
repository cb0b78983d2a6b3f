//! The one argument that makes a program a worker: `--aktis-worker=slot,session,kind,parent,program`.

use aktis_logic::machine::node::WorkerKind;
use aktis_protocol::{ProcessSlot, ProgramId, SessionId};
use std::fmt;

const PREFIX: &str = "--aktis-worker=";

/// What a worker process is told when it is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkerArguments {
    pub(crate) slot: ProcessSlot,
    pub(crate) session: SessionId,
    pub(crate) kind: WorkerKind,
    /// The process that started it, without which it must not live.
    pub(crate) parent: u32,
    /// What it runs, by the name that its node has for it.
    pub(crate) program: ProgramId,
}

impl WorkerArguments {
    /// What `argument` says; `None` if it is not meant for a worker, the text if it cannot be read.
    pub(crate) fn parse(argument: &str) -> Option<Result<Self, String>> {
        let fields = argument.strip_prefix(PREFIX)?;
        Some(Self::parse_fields(fields).ok_or_else(|| argument.to_owned()))
    }

    fn parse_fields(fields: &str) -> Option<Self> {
        let mut fields = fields.split(',');
        let arguments = Self {
            slot: ProcessSlot(fields.next()?.parse().ok()?),
            session: SessionId(u64::from_str_radix(fields.next()?, 16).ok()?),
            kind: match fields.next()? {
                "shared" => WorkerKind::Shared,
                "isolated" => WorkerKind::Isolated,
                _ => return None,
            },
            parent: fields.next()?.parse().ok()?,
            program: fields.next()?.parse().ok()?,
        };
        fields.next().is_none().then_some(arguments)
    }
}

impl fmt::Display for WorkerArguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            WorkerKind::Shared => "shared",
            WorkerKind::Isolated => "isolated",
        };
        let Self { slot, session, parent, program, .. } = self;
        write!(f, "{PREFIX}{},{:x},{kind},{parent},{program}", slot.0, session.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        for kind in [WorkerKind::Shared, WorkerKind::Isolated] {
            let (slot, session, program) =
                (ProcessSlot(12), SessionId(u64::MAX), ProgramId::from_words([1, 2]));
            let written = WorkerArguments { slot, session, kind, parent: 77, program };
            assert_eq!(WorkerArguments::parse(&written.to_string()), Some(Ok(written)));
        }
        assert_eq!(WorkerArguments::parse("--help"), None);
        let some = |middle: &str| format!("1,2,{middle},{}", ProgramId::default());
        assert!(matches!(WorkerArguments::parse(&format!("{PREFIX}{}", some("shared,3"))), Some(Ok(_))));
        for wrong in
            ["", "1,2,shared", "1,2,shared,3", "1,2,shared,3,4", &some("other,3"), &some("shared,3,4")]
        {
            assert!(matches!(WorkerArguments::parse(&format!("{PREFIX}{wrong}")), Some(Err(_))), "{wrong}");
        }
    }
}
