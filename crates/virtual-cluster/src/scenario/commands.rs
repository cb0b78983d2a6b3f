//! What can happen in a story.

use super::line::{Line, parse_bytes, parse_duration, parse_number};
use super::stage::Stage;
use crate::world::World;
use aktis_logic::machine::node::{Guest, NodeConfig, NodeInput, ProgramConfig, SPILL_ABOVE_PERCENT_DEFAULT};
use aktis_protocol::actors::{ActorSpec, Away};
use aktis_protocol::control::{FromNode, SharedValue, ToNode};
use aktis_protocol::resources::{CPU, GPU};
use aktis_protocol::{
    Amount, Failure, FailureKind, FunctionId, GroupPlace, GroupSpec, GroupStrategy, Labels, NodeId,
    ProcessSlot, ProgramId, Resources, Shape, ShardIndex,
};

impl Stage {
    /// Does what the line says.
    pub(super) fn perform(&mut self, line: &Line) -> Result<(), String> {
        if line.command() == "node" {
            return self.begin(line);
        }
        let by = self.process(line.by())?;
        match line.command() {
            "start" => {
                let process = self.process(line.word(1)?)?;
                self.send(process, ToNode::Started)
            }
            "kill" => {
                let process = self.process(line.word(1)?)?;
                self.kill(process)
            }
            "wait" => {
                let microseconds = parse_duration(line.word(1)?)?;
                self.wait(microseconds)
            }
            "deaths" => {
                self.deaths_unhandled = line.word(1)? == "unhandled";
                Ok(())
            }
            "handled" => {
                let process = self.process(line.word(1)?)?;
                self.send(by, ToNode::DeathHandled { process })
            }
            "disk" => self.set_disk(line.word(1)?),
            "program" => self.add_program(line),
            "attach" => self.attach(line),
            "detach" => {
                let process = self.process(line.word(1)?)?;
                self.send(process, ToNode::Detached)
            }
            "group" | "watch-group" | "remove-group" => self.perform_on_group(line, by),
            "lane" | "give-up" | "queue" | "return" | "block" | "unblock" => self.perform_on_lane(line, by),
            "actor" | "arguments-ready" | "constructed" | "ended" | "find" | "hold-actor"
            | "release-actor" | "kill-actor" | "escape-actor" | "orphan-actor" | "actor-away"
            | "actor-back" => self.perform_on_actor(line, by),
            _ => self.perform_on_object(line, by),
        }
    }

    fn begin(&mut self, line: &Line) -> Result<(), String> {
        let store_bytes = line.bytes("store", 1 << 20)?;
        let config = NodeConfig {
            node: NodeId::default(),
            labels: Labels::new(),
            resources: resources(line, &["store", "spill", "spill-above", "entries"])?,
            store_bytes,
            entries_max: line.number("entries", 1024)? as u32,
            spill_bytes_max: line.bytes("spill", 1 << 30)?,
            spill_file_is_shared: true,
            spill_above_percent: line.number("spill-above", u64::from(SPILL_ABOVE_PERCENT_DEFAULT))? as u32,
            driver: match line.word(1) {
                Ok("daemon") => None,
                word => Some(ProgramConfig {
                    program: Self::program(""),
                    shared_worker: word != Ok("template"),
                    shares: false,
                }),
            },
        };
        self.world = Some(World::new(config));
        self.settle()
    }

    /// `program NAME [template]`.
    fn add_program(&mut self, line: &Line) -> Result<(), String> {
        let program = Self::program(line.word(1)?);
        let added = ProgramConfig { program, shared_worker: !line.says("template"), shares: false };
        self.world()?.input(NodeInput::ProgramAdded(added));
        self.settle()
    }

    /// `attach NAME [program=NAME]`: a driver of that program, or another node.
    fn attach(&mut self, line: &Line) -> Result<(), String> {
        let guest = match line.option("program") {
            Some(program) => Guest::Driver(Self::program(program)),
            None => Guest::Peer(NodeId::default()),
        };
        let process = self.world()?.attach(guest)?;
        self.guests.insert(line.word(1)?.to_owned(), process);
        self.settle()
    }

    /// Time passes in small steps, so that disk and processes keep up.
    fn wait(&mut self, microseconds: u64) -> Result<(), String> {
        let mut left = microseconds;
        while left > 0 {
            let step = left.min(1000);
            self.world()?.pass(step);
            self.settle()?;
            left -= step;
        }
        Ok(())
    }

    fn set_disk(&mut self, state: &str) -> Result<(), String> {
        match state {
            "full" => self.world()?.disk_error = Some("no space left on device".into()),
            "ok" => self.world()?.disk_error = None,
            "stopped" => self.disk_stopped = true,
            "running" => self.disk_stopped = false,
            _ => return Err(format!("a disk is full, ok, stopped or running, not {state:?}")),
        }
        self.settle()
    }

    fn perform_on_lane(&mut self, line: &Line, by: ProcessSlot) -> Result<(), String> {
        let name = line.word(1)?;
        match line.command() {
            "lane" => {
                let shape = Shape {
                    resources: resources(line, &["env", "group", "bundle", "program", "priority"])?,
                    isolated: line.says("isolated"),
                    environment: environment(line),
                    group: group_place(line)?,
                    program: self.program_for(line, by)?,
                    priority: priority(line)?,
                    ..Shape::default()
                };
                self.send(by, ToNode::LaneWanted { request: 0, shape, shard: ShardIndex(0) })?;
                let told = self.told.get(&by).into_iter().flatten();
                let opened = told.rev().find_map(|message| match message {
                    FromNode::LaneOpened { lane, .. } => Some(lane.clone()),
                    _ => None,
                });
                let lane = opened.ok_or("no lane was opened")?.map_err(|failure| failure.message)?;
                self.lanes.insert(name.to_owned(), lane);
                Ok(())
            }
            "give-up" => {
                let lane = self.lane(name)?;
                self.send(by, ToNode::LaneForgotten { lane })
            }
            "queue" => {
                let queued = parse_number(line.word(2)?)? as u32;
                let lane = self.lane(name)?;
                self.world()?.input(NodeInput::LaneDemand { lane, queued });
                self.settle()
            }
            command => {
                let shape = self.shape(name)?;
                let held = self.leases.entry(by).or_default();
                let position = held.iter().position(|(_, of)| *of == shape);
                let position = position.ok_or_else(|| format!("process {by} has no lease for {name:?}"))?;
                let lease = held[position].0;
                match command {
                    "return" => {
                        held.remove(position);
                        self.send(by, ToNode::LeaseReturned { lease })
                    }
                    _ => self.send(by, ToNode::LeaseBlocked { lease, blocked: command == "block" }),
                }
            }
        }
    }

    /// `group NAME "cpus=1" "cpus=1 gpus=1" … [strict-spread] [detached] [name=NAME]`: a bundle in each pair of quotes.
    fn perform_on_group(&mut self, line: &Line, by: ProcessSlot) -> Result<(), String> {
        let group = Self::group(line.word(1)?);
        let message = match line.command() {
            "group" => {
                let words = line.words_from(2).iter().filter(|word| word.contains('='));
                let bundles = words.map(|word| match Line::parse(&format!("bundle {word}"))? {
                    Some(bundle) => resources(&bundle, &[]),
                    None => Ok(Resources::none()),
                });
                let strategy = match line.says("strict-spread") {
                    true => GroupStrategy::StrictSpread,
                    false => GroupStrategy::Pack,
                };
                let (bundles, name) =
                    (bundles.collect::<Result<_, _>>()?, line.option("name").map(str::to_owned));
                let detached = line.says("detached");
                let labels = Vec::new();
                ToNode::GroupWanted { spec: GroupSpec { group, bundles, labels, strategy, name, detached } }
            }
            "watch-group" => ToNode::GroupWatched { group },
            _ => ToNode::GroupRemoved { group },
        };
        self.send(by, message)
    }

    /// `program=NAME`; else that of the process.
    fn program_for(&mut self, line: &Line, by: ProcessSlot) -> Result<ProgramId, String> {
        let own = self.world()?.program_of(by).unwrap_or_default();
        Ok(line.option("program").map_or(own, Self::program))
    }

    fn perform_on_actor(&mut self, line: &Line, by: ProcessSlot) -> Result<(), String> {
        let name = line.word(1)?;
        let actor = Self::actor(name);
        let message = match line.command() {
            "actor" => {
                let spec = ActorSpec { program: self.program_for(line, by)?, ..actor_spec(line, name)? };
                ToNode::ActorWanted { spec: Box::new(spec) }
            }
            "arguments-ready" => ToNode::ActorArgumentsReady(actor),
            "constructed" => {
                let incarnation = self.hosted_incarnation(by, name)?;
                ToNode::ActorStarted { actor, incarnation }
            }
            "ended" => {
                let failure = Failure::new(FailureKind::ActorDied, line.word(2)?);
                ToNode::ActorEnded { actor, failure }
            }
            "find" => ToNode::NameWanted { request: 0, name: name.to_owned() },
            "hold-actor" => ToNode::ActorHeld { actor },
            "release-actor" => ToNode::ActorReleased { actor },
            "orphan-actor" => ToNode::ActorOrphaned { actor },
            "actor-away" => {
                ToNode::ActorAway { actor, away: Away { reason: line.word(2)?.to_owned(), is_moved: false } }
            }
            "actor-back" => ToNode::ActorBack { actor },
            "kill-actor" => ToNode::ActorKilled { actor, restart: line.says("restart"), request: None },
            _ => {
                let host = self.process(line.word(2)?)?;
                ToNode::ActorEscaped { actor, host }
            }
        };
        self.send(by, message)
    }

    /// The life that a process was last asked to begin.
    fn hosted_incarnation(&self, by: ProcessSlot, name: &str) -> Result<u32, String> {
        let actor = Self::actor(name);
        let told = self.told.get(&by).into_iter().flatten();
        let asked = told.rev().find_map(|message| match message {
            FromNode::HostActor { spec, incarnation, .. } if spec.actor == actor => Some(*incarnation),
            _ => None,
        });
        asked.ok_or_else(|| format!("process {by} was not asked to host {name:?}"))
    }

    fn perform_on_object(&mut self, line: &Line, by: ProcessSlot) -> Result<(), String> {
        let name = line.word(1)?;
        let object = Self::object(name);
        match line.command() {
            "put" => {
                self.write(line, by)?;
                self.seal(line, by)
            }
            "write" => self.write(line, by),
            "seal" => self.seal(line, by),
            "abandon" => self.send(by, ToNode::Abandoned { object }),
            "restore" => {
                let request = self.request(object);
                self.send(by, ToNode::RestoreWanted { request, object })
            }
            "pin" => {
                let entry = self.entry(name)?;
                let pinned = self.world()?.index.pin(entry, by);
                pinned.then_some(()).ok_or_else(|| format!("{name:?} is not in memory"))
            }
            "unpin" => {
                let entry = self.entry(name)?;
                self.world()?.index.unpin(entry, by);
                Ok(())
            }
            "escape" => {
                let value = line.says("inline").then(inline);
                self.send(by, ToNode::Escaped { object, value })
            }
            "resolve" => {
                let value = match line.says("stored") {
                    true => SharedValue::Stored { entry: self.entry(name)?, contains: false },
                    false => inline(),
                };
                self.send(by, ToNode::Resolved { object, value })
            }
            "hold" => self.send(by, ToNode::Held { object }),
            "release" => self.send(by, ToNode::Released { object }),
            "subscribe" => self.send(by, ToNode::Subscribed { object }),
            "contain" => {
                let inside = line.words_from(2);
                let holder = self.process(line.option("holder").unwrap_or(line.by()))?;
                let objects = inside.iter().filter(|name| !name.starts_with('@'));
                let actors = inside.iter().filter_map(|name| name.strip_prefix('@'));
                let message = ToNode::Contains {
                    container: object,
                    holder,
                    objects: objects.map(|name| Self::object(name)).collect(),
                    actors: actors.map(Self::actor).collect(),
                };
                self.send(by, message)
            }
            other => Err(format!("there is no command {other:?}")),
        }
    }

    fn write(&mut self, line: &Line, by: ProcessSlot) -> Result<(), String> {
        let object = Self::object(line.word(1)?);
        let bytes = parse_bytes(line.word(2)?)?;
        let request = self.request(object);
        self.send(by, ToNode::ExtentWanted { request, object, bytes })
    }

    fn seal(&mut self, line: &Line, by: ProcessSlot) -> Result<(), String> {
        let object = Self::object(line.word(1)?);
        let holder = self.process(line.option("for").unwrap_or(line.by()))?;
        self.send(by, ToNode::Sealed { object, holder })
    }
}

fn inline() -> SharedValue {
    SharedValue::Inline { bytes: vec![42], contains: false }
}

/// All options that are amounts of resources; `cpus` and `gpus` are the usual ones.
fn resources(line: &Line, others: &[&str]) -> Result<Resources, String> {
    let mut resources = Resources::none();
    for (key, value) in line.options().filter(|(key, _)| !others.contains(key)) {
        let amount = value.parse().ok().and_then(Amount::from_f64);
        let amount = amount.ok_or_else(|| format!("{value:?} is not an amount"))?;
        let name = match key {
            "cpus" => CPU,
            "gpus" => GPU,
            other => other,
        };
        resources.set(name, amount);
    }
    Ok(resources)
}

/// `group=NAME [bundle=NUMBER]`.
fn group_place(line: &Line) -> Result<Option<GroupPlace>, String> {
    let bundle = line.option("bundle").map(parse_number).transpose()?.map(|number| number as u32);
    Ok(line.option("group").map(|name| GroupPlace { group: Stage::group(name), bundle }))
}

/// `env=NAME`.
fn environment(line: &Line) -> String {
    line.option("env").unwrap_or_default().to_owned()
}

/// `priority=NUMBER`.
fn priority(line: &Line) -> Result<i32, String> {
    line.option("priority").map_or(Ok(0), |text| text.parse().map_err(|_| format!("{text:?} is no priority")))
}

fn actor_spec(line: &Line, name: &str) -> Result<ActorSpec, String> {
    Ok(ActorSpec {
        actor: Stage::actor(name),
        program: ProgramId::default(),
        constructor: FunctionId(1),
        arguments: Vec::new(),
        type_name: "Counter".into(),
        name: line.option("name").map(str::to_owned),
        resources: resources(
            line,
            &["name", "restarts", "lives", "env", "placed-cpus", "group", "bundle", "program", "priority"],
        )?,
        placement: Resources::none().with(CPU, Amount::units(line.number("placed-cpus", 0)?)),
        environment: environment(line),
        isolated: line.says("isolated"),
        detached: line.says("detached"),
        ends_with_creator: line.says("ends-with-creator"),
        awaits_arguments: line.says("awaits-arguments"),
        restarts_max: line.number("restarts", 0)? as u32,
        lives: line.number("lives", 0)? as u32,
        group: group_place(line)?,
        priority: priority(line)?,
        concurrency: 1,
        details: name.as_bytes().to_vec(),
        ..ActorSpec::default()
    })
}
