//! What can be expected in a story: `expect SUBJECT …`.

use super::line::{Line, parse_bytes, parse_number};
use super::stage::Stage;
use aktis_logic::directory::Value;
use aktis_logic::machine::node::ProcessView;
use aktis_protocol::actors::ActorPlace;
use aktis_protocol::control::{FromNode, SharedValue, ToNode};
use aktis_protocol::{Amount, FailureKind, GroupState, ProcessSlot, resources};

impl Stage {
    /// Compares what the line says with what is.
    pub(super) fn expect(&mut self, line: &Line) -> Result<(), String> {
        match line.word(1)? {
            "free-space" => {
                same_number(parse_bytes(line.word(2)?)?, self.world()?.node.store_bytes_available())
            }
            "spilled" => same_number(parse_bytes(line.word(2)?)?, self.world()?.node.spilled_bytes()),
            "copies" => same_number(parse_number(line.word(2)?)?, self.world()?.node.copies() as u64),
            "objects" => same_number(parse_number(line.word(2)?)?, self.world()?.node.objects() as u64),
            "actors" => same_number(parse_number(line.word(2)?)?, self.world()?.node.actors() as u64),
            "idle-cpus" => {
                let found = self.world()?.node.resources_available().get(resources::CPU);
                same_amount(line.word(2)?, found)
            }
            "debt-cpus" => {
                let found = self.world()?.node.resources_debt().get(resources::CPU);
                same_amount(line.word(2)?, found)
            }
            "shapes" => same_number(parse_number(line.word(2)?)?, self.world()?.node.shapes() as u64),
            "lanes" => same_number(parse_number(line.word(2)?)?, self.world()?.lanes.len() as u64),
            "leases" => {
                let shape = self.shape(line.word(2)?)?;
                same_number(parse_number(line.word(3)?)?, self.world()?.node.leases(shape) as u64)
            }
            "revoked" => self.expect_revoked(line),
            "explain" => self.expect_explained(line),
            "process" => self.expect_process(line),
            "gpus" => self.expect_gpus(line),
            "environment" => self.expect_environment(line),
            "names" => self.expect_names(line),
            "group" => self.expect_group(line),
            "removed" => self.expect_removed(line),
            "programs" => same_number(parse_number(line.word(2)?)?, self.world()?.node.programs() as u64),
            "told-to-end" => self.expect_told_to_end(line),
            "shared-worker" => self.expect_shared_worker(line),
            "groups" => same_number(parse_number(line.word(2)?)?, self.world()?.node.groups() as u64),
            "actor" => self.expect_actor(line),
            "found" => self.expect_found(line),
            "known" | "unknown" => {
                let known = self.world()?.node.knows_object(Self::object(line.word(2)?));
                same(line.word(1)?, if known { "known" } else { "unknown" })
            }
            "resident" | "on-disk" => {
                let resident = self.world()?.node.is_resident(Self::object(line.word(2)?));
                same(line.word(1)?, if resident { "resident" } else { "on-disk" })
            }
            "value" => self.expect_value(line),
            "answer" => self.expect_answer(line),
            other => Err(format!("nothing can be expected of {other:?}")),
        }
    }

    /// `expect revoked LANE COUNT by PROCESS`: how often it was asked for a lease, since it began.
    fn expect_revoked(&mut self, line: &Line) -> Result<(), String> {
        let shape = self.shape(line.word(2)?)?;
        let process = self.process(line.by())?;
        let told = self.told.get(&process).into_iter().flatten();
        let asked = told.filter(|message| **message == FromNode::LeaseRevoked { shape }).count();
        same_number(parse_number(line.word(3)?)?, asked as u64)
    }

    /// `expect explain LANE "text"`: the node's explanation contains the text.
    fn expect_explained(&mut self, line: &Line) -> Result<(), String> {
        let lane = self.lane(line.word(2)?)?;
        let process = self.process(line.by())?;
        self.send(process, ToNode::ShapeQuestion { request: 0, lane })?;
        match self.told.get(&process).and_then(|told| told.last()) {
            Some(FromNode::ShapeExplained { text, .. }) => contains(line.word(3)?, text),
            other => Err(format!("expected an explanation, found {other:?}")),
        }
    }

    /// `expect process NAME starting|alive|leaving|dead|free`.
    fn expect_process(&mut self, line: &Line) -> Result<(), String> {
        let process = self.process(line.word(2)?);
        let view = match process {
            Ok(slot) => self.world()?.node.process(slot),
            Err(_) => None,
        };
        same(
            line.word(3)?,
            match view {
                Some(ProcessView::Starting) => "starting",
                Some(ProcessView::Alive) => "alive",
                Some(ProcessView::Leaving) => "leaving",
                Some(ProcessView::Dead) => "dead",
                None => "free",
            },
        )
    }

    /// `expect gpus PROCESS INDEX…`: what it was started with.
    fn expect_gpus(&mut self, line: &Line) -> Result<(), String> {
        let process = self.process(line.word(2)?)?;
        let world = self.world()?;
        let gpus = world.workers.get(&process).map(|worker| worker.gpus.clone()).unwrap_or_default();
        let found: Vec<_> = gpus.iter().map(u32::to_string).collect();
        same(&line.words_from(3).join(" "), &found.join(" "))
    }

    /// `expect environment PROCESS NAME`: how it was set up.
    fn expect_environment(&mut self, line: &Line) -> Result<(), String> {
        let process = self.process(line.word(2)?)?;
        let worker = self.world()?.workers.get(&process);
        same(line.word(3)?, worker.map(|worker| worker.environment.as_str()).unwrap_or_default())
    }

    /// `expect told-to-end ACTOR yes|no by PROCESS`: whether it was told to end the actor.
    fn expect_told_to_end(&mut self, line: &Line) -> Result<(), String> {
        let actor = Self::actor(line.word(2)?);
        let process = self.process(line.by())?;
        let mut told = self.told.get(&process).into_iter().flatten();
        let ends =
            |message: &FromNode| matches!(message, FromNode::EndActor { actor: of, .. } if *of == actor);
        same(line.word(3)?, if told.any(ends) { "yes" } else { "no" })
    }

    /// `expect shared-worker PROCESS|none by PROCESS`: what it was told last.
    fn expect_shared_worker(&mut self, line: &Line) -> Result<(), String> {
        let process = self.process(line.by())?;
        let told = self.told.get(&process).into_iter().flatten();
        let heard = told.rev().find_map(|message| match message {
            FromNode::SharedWorker { process } => Some(*process),
            _ => None,
        });
        let expected = match line.word(2)? {
            "none" => None,
            name => Some(self.process(name)?),
        };
        same(&format!("{expected:?}"), &format!("{heard:?}"))
    }

    /// `expect names NAME…`: what the node answers who asks for all names.
    fn expect_names(&mut self, line: &Line) -> Result<(), String> {
        let process = self.process(line.by())?;
        self.send(process, ToNode::NamesWanted { request: 0, namespace: String::new() })?;
        match self.told.get(&process).and_then(|told| told.last()) {
            Some(FromNode::Names { names, left_out: 0, .. }) => {
                same(&line.words_from(2).join(" "), &names.join(" "))
            }
            other => Err(format!("expected names, found {other:?}")),
        }
    }

    /// `expect group NAME pending|ready|removed ["text"] [by WATCHER]`: what the watcher was last told.
    fn expect_group(&mut self, line: &Line) -> Result<(), String> {
        let group = Self::group(line.word(2)?);
        let process = self.process(line.by())?;
        let told = self.told.get(&process).into_iter().flatten();
        let state = told.rev().find_map(|message| match message {
            FromNode::GroupChanged { group: changed, state } if *changed == group => Some(state),
            _ => None,
        });
        let (found, text) = match state.ok_or("nothing was told about this group")? {
            GroupState::Pending(text) => ("pending", text.as_str()),
            GroupState::Ready => ("ready", ""),
            GroupState::Removed(text) => ("removed", text.as_str()),
        };
        same(line.word(3)?, found)?;
        contains(line.words_from(4).first().map_or("", String::as_str), text)
    }

    /// `expect removed LANE [by SUBMITTER]`: it was told that its tasks fail.
    fn expect_removed(&mut self, line: &Line) -> Result<(), String> {
        let lane = self.lane(line.word(2)?)?;
        let process = self.process(line.by())?;
        let told = self.told.get(&process).into_iter().flatten();
        let removed = told.rev().any(|message| match message {
            FromNode::LaneRemoved { lane: removed, failure } => {
                *removed == lane && failure.kind == FailureKind::GroupRemoved
            }
            _ => false,
        });
        removed.then_some(()).ok_or_else(|| "the lane was not removed".to_owned())
    }

    /// `expect actor NAME pending|alive|dead|unknown ["text"] [incarnation=N] [in=PROCESS] [by HOLDER]`: what
    /// the holder was last told; `unknown` if the node does not know the actor.
    fn expect_actor(&mut self, line: &Line) -> Result<(), String> {
        let actor = Self::actor(line.word(2)?);
        let holder = self.process(line.by())?;
        if line.word(3)? == "unknown" {
            let known = self.world()?.node.actor_place(actor);
            return known.map_or(Ok(()), |place| Err(format!("expected unknown, found {place:?}")));
        }
        let told = self.told.get(&holder).into_iter().flatten();
        let place = told.rev().find_map(|message| match message {
            FromNode::ActorChanged { actor: changed, place } if *changed == actor => Some(place.clone()),
            _ => None,
        });
        let place = place.ok_or_else(|| format!("process {holder} was told nothing about this actor"))?;
        match place {
            ActorPlace::Pending(text) | ActorPlace::Moved(text) => {
                same(line.word(3)?, "pending")?;
                contains(line.word(4).unwrap_or(""), &text)
            }
            ActorPlace::Dead(failure) => {
                same(line.word(3)?, "dead")?;
                contains(line.word(4).unwrap_or(""), &failure.message)
            }
            ActorPlace::Alive { process, incarnation, .. } => {
                same(line.word(3)?, "alive")?;
                self.expect_host(line, process)?;
                same_number(line.number("incarnation", u64::from(incarnation))?, u64::from(incarnation))
            }
        }
    }

    fn expect_host(&mut self, line: &Line, found: ProcessSlot) -> Result<(), String> {
        let Some(name) = line.option("in") else { return Ok(()) };
        let expected = self.process(name)?;
        same(&format!("process {expected}"), &format!("process {found}"))
    }

    /// `expect found NAME yes|no`: what the last `find` gave.
    fn expect_found(&mut self, line: &Line) -> Result<(), String> {
        let process = self.process(line.by())?;
        let told = self.told.get(&process).into_iter().flatten();
        let found = told.rev().find_map(|message| match message {
            FromNode::ActorFound { found, .. } => Some(found.clone()),
            _ => None,
        });
        let found = found.ok_or("nobody looked for an actor")?;
        let is_it = found.is_some_and(|found| {
            let name = line.words_from(2)[0].as_str();
            found.actor == Self::actor(name) && found.details == name.as_bytes()
        });
        same(line.word(3)?, if is_it { "yes" } else { "no" })
    }

    /// `expect value NAME pending|inline|stored|lost|failed [by PROCESS]`: what the node knows, or what that
    /// process was told when it had subscribed.
    fn expect_value(&mut self, line: &Line) -> Result<(), String> {
        let object = Self::object(line.word(2)?);
        let known = match self.world()?.node.object_value(object) {
            Some(Value::Known(value)) => describe(value),
            Some(Value::Pending { .. }) => "pending",
            None => "unknown",
        };
        let process = self.process(line.by())?;
        let told = self.told.get(&process).into_iter().flatten();
        let heard = told.rev().find_map(|message| match message {
            FromNode::ObjectResolved { object: resolved, value } if *resolved == object => {
                Some(describe(value))
            }
            _ => None,
        });
        let silent = line.by() == "driver";
        same(line.word(3)?, if silent { known } else { heard.unwrap_or("pending") })
    }

    /// `expect answer NAME none|granted|denied|restored|refused ["text"]`: the last one about this object.
    fn expect_answer(&mut self, line: &Line) -> Result<(), String> {
        let answers = self.answers.get(&Self::object(line.word(2)?));
        let (found, text) = match answers.and_then(|answers| answers.last()) {
            None => ("none", String::new()),
            Some(FromNode::ExtentGranted { .. }) => ("granted", String::new()),
            Some(FromNode::ExtentDenied { failure, .. }) => ("denied", failure.message.clone()),
            Some(FromNode::Restored { outcome: Ok(_), .. }) => ("restored", String::new()),
            Some(FromNode::Restored { outcome: Err(failure), .. }) => ("refused", failure.message.clone()),
            Some(other) => return Err(format!("unexpected answer {other:?}")),
        };
        same(line.word(3)?, found)?;
        contains(line.word(4).unwrap_or(""), &text)?;
        let count = answers.map_or(0, Vec::len) as u64;
        same_number(line.number("count", count)?, count)
    }
}

fn describe(value: &SharedValue) -> &'static str {
    match value {
        SharedValue::Inline { .. } => "inline",
        SharedValue::Stored { .. } => "stored",
        SharedValue::Failed(failure) if failure.kind == FailureKind::Lost => "lost",
        SharedValue::Failed(_) => "failed",
    }
}

fn same(expected: &str, found: &str) -> Result<(), String> {
    (expected == found).then_some(()).ok_or_else(|| format!("expected {expected}, found {found}"))
}

fn same_number(expected: u64, found: u64) -> Result<(), String> {
    same(&expected.to_string(), &found.to_string())
}

fn same_amount(expected: &str, found: Amount) -> Result<(), String> {
    same(expected, &found.to_string())
}

fn contains(expected: &str, found: &str) -> Result<(), String> {
    let is_there = found.contains(expected);
    is_there.then_some(()).ok_or_else(|| format!("expected the text {expected:?}, found {found:?}"))
}
