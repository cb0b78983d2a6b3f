//! The programs that this node serves: rows in the tables of the cluster, which are there while the node is a member.
//!
//! | table | key | value |
//! |---|---|---|
//! | programs | the node's id, and then the program's | an [`OnNode`] with a [`ProgramRow`] |

use super::ControlClient;
use crate::machine::head::programs_of;
use aktis_protocol::admin::{OnNode, ProgramRow};
use aktis_protocol::control::encode;
use aktis_protocol::tables::{Change, Key, Table};
use aktis_protocol::{NodeId, ProgramId};
use std::collections::BTreeMap;

/// See the module.
pub(super) type Programs = BTreeMap<ProgramId, ProgramRow>;

fn program_key(node: NodeId, program: ProgramId) -> Key {
    Key([programs_of(node).0, Key::from(program.to_words()).0].concat())
}

impl ControlClient {
    pub(super) fn on_program_served(&mut self, row: ProgramRow) {
        self.programs.insert(row.program, row.clone());
        self.put_program(row);
    }

    pub(super) fn on_program_dropped(&mut self, program: ProgramId) {
        if self.programs.remove(&program).is_some() {
            let (table, key) = (Table::Programs, program_key(self.me(), program));
            self.records.add(Change::RowDeleted { table, key });
        }
    }

    fn put_program(&mut self, row: ProgramRow) {
        let (table, key) = (Table::Programs, program_key(self.me(), row.program));
        let value = encode(&OnNode { node: self.me(), row });
        self.records.add(Change::RowPut { table, key, value, overwrite: true });
    }

    /// The cluster had given this node up, and forgotten what it serves.
    pub(super) fn put_programs_again(&mut self) {
        let served: Vec<_> = self.programs.values().cloned().collect();
        served.into_iter().for_each(|row| self.put_program(row));
    }

    /// The programs that this node serves.
    pub fn own_programs(&self) -> Vec<OnNode<ProgramRow>> {
        let node = self.me();
        self.programs.values().map(|row| OnNode { node, row: row.clone() }).collect()
    }
}
