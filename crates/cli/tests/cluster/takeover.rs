//! Detached actors, and the machines of those who created them.

use crate::Counter;
use crate::machines::{Cluster, Machine, PATIENCE, run, until};
use rustix::process::{Pid, Signal, kill_process};

/// The process of the actor with this name, as its machine says.
fn process_of(machine: &Machine, name: &str) -> Option<Pid> {
    let listed = machine.json(&["list", "actors", "--json"]);
    let row = listed["actors"].as_array()?.iter().find(|row| row["name"] == name)?;
    Pid::from_raw(row["pid"].as_i64()? as i32)
}

#[test]
fn a_detached_actor_outlives_the_machine_of_its_creator() {
    for stops in [false, true] {
        let mut cluster = Cluster::new(0, &[1, 0]);
        let session = cluster.head().session();
        let _entered = session.enter();
        {
            let creator = cluster.machines[2].session();
            let _entered = creator.enter();
            let counter = Counter::options().name("kept").detached().cpus(1).restarts(1).remote(10);
            assert_eq!(counter.add(1).get_timeout(PATIENCE).unwrap(), 11);
            assert_eq!(cluster.machine_of(&counter.ancestors().get_timeout(PATIENCE).unwrap()), 1);
            creator.shutdown();
        }
        let known = Counter::find("kept").expect("it is known everywhere");
        assert_eq!(known.add(1).get_timeout(PATIENCE).unwrap(), 12);
        match stops {
            true => assert!(run(&cluster.machines[2].path, &["stop"]).status.success()),
            false => cluster.machines[2].kill(),
        }
        let mut found = None;
        until("it is found", || {
            found = Counter::find("kept").ok();
            found.is_some()
        });
        let found = found.expect("just found");
        assert_eq!(found.add(1).get_timeout(PATIENCE).unwrap(), 13, "it has lived on");
        assert_eq!(known.add(1).get_timeout(PATIENCE).unwrap(), 14, "so have its handles");
        let another = Counter::options().name("kept").remote(0).add(1).get_timeout(PATIENCE);
        assert!(another.unwrap_err().to_string().contains("kept"), "the name is taken");
        // One restart is left.
        let process = process_of(&cluster.machines[1], "kept").expect("its machine owns it");
        kill_process(process, Signal::KILL).expect("it runs");
        until("it lives again, and starts anew", || {
            found.add(1).get_timeout(PATIENCE).is_ok_and(|total| total < 14)
        });
        assert!(Counter::find("kept").is_ok());
        let process = process_of(&cluster.machines[1], "kept").expect("it is there again");
        kill_process(process, Signal::KILL).expect("it runs");
        until("it is dead", || found.add(1).get_timeout(PATIENCE).is_err());
        until("its name is free", || Counter::find("kept").is_err());
        let another = Counter::options().name("kept").cpus(1).remote(0);
        assert_eq!(another.add(1).get_timeout(PATIENCE).unwrap(), 1);
        drop((known, found, another));
        cluster.machines.remove(2);
        cluster.wait_until_empty();
    }
}
