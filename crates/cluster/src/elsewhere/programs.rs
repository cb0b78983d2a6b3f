//! The programs that this node serves: rows in the tables of the cluster, which are there while the node is a member.
//!
//! | table | key | value |
//! |---|---|---|
//! | programs | the node's id, and then the program's | [`ServedProgram`] |

use super::Elsewhere;
use super::jobs::since_1970;
use crate::peer::Programs;
use aktis_logic::machine::head::programs_of;
use aktis_protocol::admin::{Language, OnNode, ProgramRow};
use aktis_protocol::control::encode;
use aktis_protocol::tables::{Change, Key, Table};
use aktis_protocol::{NodeId, ProgramId, ProgramKind, ProgramSpec};
use std::collections::BTreeMap;
use std::time::Duration;

/// A row of the table.
pub(crate) type ServedProgram = OnNode<ProgramRow>;

/// See the module.
pub(super) type Served = BTreeMap<ProgramId, ProgramRow>;

fn program_key(node: NodeId, program: ProgramId) -> Key {
    Key([programs_of(node).0, Key::from(program.to_words()).0].concat())
}

fn row_of(spec: ProgramSpec) -> ProgramRow {
    let (language, version, bytes) = match spec.kind {
        ProgramKind::Rust { bytes } => (Language::Rust, None, Some(bytes)),
        ProgramKind::Python { version, .. } => (Language::Python, Some(version), None),
    };
    ProgramRow {
        program: spec.id,
        language,
        version,
        bytes,
        architecture: spec.architecture,
        came_unix_milliseconds: since_1970().as_millis() as u64,
    }
}

impl Elsewhere {
    pub(super) fn put_program(&self, program: ProgramId) {
        // It may be gone again.
        let Ok((spec, _)) = self.host.find(program) else { return };
        let row = row_of(spec);
        self.served.lock().insert(program, row.clone());
        self.put_program_row(row);
    }

    pub(super) fn delete_program(&self, program: ProgramId) {
        if self.served.lock().remove(&program).is_some() {
            let (table, key) = (Table::Programs, program_key(self.me, program));
            self.change_tables(Change::RowDeleted { table, key });
        }
    }

    fn put_program_row(&self, row: ProgramRow) {
        let (table, key) = (Table::Programs, program_key(self.me, row.program));
        let value = encode(&OnNode { node: self.me, row });
        self.change_tables(Change::RowPut { table, key, value, overwrite: true });
    }

    /// The cluster had given this node up, and forgotten what it serves.
    pub(super) fn put_programs_again(&self) {
        let served: Vec<_> = self.served.lock().values().cloned().collect();
        served.into_iter().for_each(|row| self.put_program_row(row));
        self.flush_tables();
    }

    /// The programs that this node serves.
    pub(crate) fn own_programs(&self) -> Vec<ServedProgram> {
        let node = self.me;
        self.served.lock().values().map(|row| OnNode { node, row: row.clone() }).collect()
    }

    /// What all nodes serve, node by node, as the tables know it; nothing if they do not answer.
    pub(crate) fn all_programs(&self, patience: Duration) -> Option<Vec<ServedProgram>> {
        let mut all: Vec<ServedProgram> = self.all_rows(Table::Programs, patience)?;
        // What this node knows of itself may not be on disk yet, or be gone.
        all.retain(|served| served.node != self.me);
        all.extend(self.own_programs());
        all.sort_by_key(|served| (served.node, served.row.program));
        Some(all)
    }
}
