//! Stories of placement groups.

use super::*;

#[test]
fn a_group_is_prepared_committed_used_and_returned() {
    let mut talk = Talk::with(&[cpus(2), cpus(2), cpus(2)]);
    talk.want_group(1, 7, GroupStrategy::StrictSpread, &[2, 1]);
    assert_eq!(talk.heard(), ["1 reserve [0]", "2 reserve [1]"]);
    let inside = |bundle| GroupPlace { group: group_id(7), bundle };
    let used = |bundle| Demand { group: Some(inside(bundle)), ..demand(1) };
    assert_eq!(talk.want(3, 1, used(None)), []);
    assert!(talk.reasons()[0].ends_with("is not ready: its resources are being set aside"));
    talk.reserved(1, 7, 1, Ok(()));
    assert_eq!(talk.heard(), [""; 0], "not all have it");
    talk.reserved(2, 7, 1, Ok(()));
    assert_eq!(talk.heard(), ["1 commit", "2 commit", "1 ready [1, 2]"]);
    talk.pass(LOOK);
    assert_eq!(talk.placed(1), [(1, 1)]);
    assert_eq!(talk.want(3, 2, used(Some(1))), [(2, 1)]);
    assert_eq!(talk.want(3, 3, used(Some(2))), []);
    assert!(talk.reasons()[0].ends_with("has 2 bundles, and none is number 2"));
    let free = talk.want(3, 4, Demand { needs: cpus(2), ..demand(1) });
    assert_eq!(free, [(3, 1)], "others do not use what is set aside");

    talk.say(1, ToPlacer::GroupRemoved { group: group_id(7) });
    assert_eq!(talk.heard(), ["1 removed: it was removed", "1 return [0]", "2 return [1]"]);
    talk.say(1, ToPlacer::Returned { group: group_id(7) });
    assert_eq!(talk.placer.groups(), 1);
    talk.say(2, ToPlacer::Returned { group: group_id(7) });
    assert_eq!(talk.placer.groups(), 0);
    talk.say(3, ToPlacer::GroupWatched { group: group_id(7) });
    assert_eq!(talk.heard(), ["3 removed: it was removed"]);
}

#[test]
fn a_refusal_or_a_death_returns_everything_and_another_way_is_tried() {
    let mut talk = Talk::with(&[cpus(2), cpus(2), cpus(2)]);
    talk.want_group(1, 7, GroupStrategy::StrictSpread, &[2, 2]);
    assert_eq!(talk.heard(), ["1 reserve [0]", "2 reserve [1]"]);
    talk.reserved(1, 7, 1, Ok(()));
    talk.reserved(2, 7, 1, Err("2 CPU are in use".into()));
    let heard = talk.heard();
    assert_eq!(heard[..2], ["1 return [0]", "2 return [1]"]);
    assert!(heard[2].ends_with("could not set its part aside: 2 CPU are in use"), "{heard:?}");
    talk.pass(LOOK);
    assert_eq!(talk.heard(), ["1 reserve [0]", "3 reserve [1]"], "not where it was refused");
    talk.reserved(1, 7, 1, Ok(()));
    talk.reserved(3, 7, 2, Ok(()));
    assert_eq!(talk.heard(), [""; 0], "an answer to an earlier question does not count");
    talk.step(PlacerInput::NodeLeft { node: node(3) });
    assert_eq!(talk.heard()[0], "1 return [0]");
    talk.pass(LOOK);
    assert_eq!(talk.heard(), ["1 reserve [0]", "2 reserve [1]"]);
    talk.pass(PREPARE_MICROSECONDS_MAX);
    let heard = talk.heard();
    assert_eq!(heard[..2], ["1 return [0]", "2 return [1]"]);
    assert_eq!(heard[2], "1 pending: its resources could not be set aside in time");
}

#[test]
fn nodes_that_have_nothing_for_a_bundle_are_counted() {
    let mut talk = Talk::with(&[cpus(2), cpus(0), cpus(2)]);
    talk.want_group(1, 7, GroupStrategy::StrictSpread, &[1, 1, 1]);
    talk.pass(LOOK);
    let expected = "1 pending: its 3 bundles want 3 different nodes, of 3 that there are, \
                    1 of which have not what any bundle needs";
    assert_eq!(talk.heard(), [expected]);
}

#[test]
fn a_ready_group_that_loses_a_node_is_repaired_around_what_is_left() {
    let mut talk = Talk::with(&[cpus(2), cpus(2)]);
    talk.want_group(1, 7, GroupStrategy::StrictSpread, &[2, 2]);
    talk.reserved(1, 7, 1, Ok(()));
    talk.reserved(2, 7, 1, Ok(()));
    talk.said.clear();
    talk.step(PlacerInput::NodeLeft { node: node(2) });
    assert!(talk.heard()[0].starts_with("1 pending: node"));
    talk.pass(LOOK);
    assert_eq!(talk.heard(), ["1 pending: its 2 bundles want 2 different nodes, of 1 that there are"]);
    talk.join(3, cpus(4), Labels::new());
    talk.pass(LOOK);
    assert_eq!(talk.heard(), ["3 reserve [1]"]);
    talk.reserved(3, 7, 2, Ok(()));
    assert_eq!(talk.heard(), ["3 commit", "1 ready [1, 3]"]);
    talk.step(PlacerInput::NodeLeft { node: node(1) });
    assert_eq!(talk.heard(), ["3 return [1]"], "its maker is gone");
    talk.step(PlacerInput::NodeLeft { node: node(3) });
    assert_eq!(talk.placer.groups(), 0);
}

#[test]
fn a_group_that_never_finds_all_free_at_once_waits_for_it_where_it_is() {
    let mut talk = Talk::with(&[cpus(2), cpus(2)]);
    talk.learn();
    talk.report(1, cpus(1), busy(LONG, 0, 1));
    talk.report(2, cpus(1), busy(LONG, 0, 1));
    talk.want_group(1, 7, GroupStrategy::StrictSpread, &[2, 2]);
    talk.want_group(2, 8, GroupStrategy::StrictSpread, &[2, 2]);
    assert_eq!(talk.heard(), ["1 pending: its resources are in use", "2 pending: its resources are in use"]);
    talk.pass(GROUP_PATIENCE_MICROSECONDS);
    assert_eq!(talk.heard(), ["1 reserve [0]", "2 reserve [1]"], "groups invariant 3: one of them");
    assert_eq!(talk.want(1, 1, demand(1)), [], "nothing more is bound there");
    talk.reserved(1, 7, 1, Ok(()));
    talk.pass(PATIENT_MICROSECONDS_MAX / 2);
    talk.reserved(2, 7, 1, Ok(()));
    let heard = talk.heard();
    assert!(heard.contains(&"1 ready [1, 2]".to_owned()), "{heard:?}");
}

#[test]
fn groups_that_cannot_be_are_explained_or_refused() {
    let mut talk = Talk::with(&[cpus(2), cpus(2)]);
    talk.want_group(1, 1, GroupStrategy::Pack, &[1, 3]);
    talk.want_group(1, 2, GroupStrategy::StrictPack, &[2, 1]);
    talk.want_group(1, 3, GroupStrategy::Pack, &[2, 2, 1]);
    talk.want_group(1, 4, GroupStrategy::Pack, &[]);
    assert_eq!(
        talk.heard(),
        [
            "1 pending: bundle 1: no node has 3 CPU; the largest has 2 CPU",
            "1 pending: its bundles do not fit on one node together",
            "1 pending: its bundles do not fit on the 2 nodes together",
            "1 removed: a placement group has at least one bundle",
        ]
    );
}

#[test]
fn what_finds_no_room_in_a_group_at_home_goes_to_another_part_of_it() {
    let mut talk = group_on_two_nodes(false);
    talk.learn();
    let inside = GroupPlace { group: group_id(7), bundle: None };
    for (request, function) in [(1, TINY), (2, SHORT)] {
        let stuck = Demand { group: Some(inside), function, ..demand(1) };
        assert_eq!(talk.want(1, request, stuck), [(2, 1)], "an actor has the bundle, and is in no queue");
    }
}

/// A group of two bundles, on the nodes 1 and 2 of three, that node 1 has made.
fn group_on_two_nodes(detached: bool) -> Talk {
    let mut talk = Talk::with(&[cpus(2), cpus(2), cpus(2)]);
    let spec = GroupSpec {
        group: group_id(7),
        bundles: vec![cpus(1), cpus(1)],
        strategy: GroupStrategy::StrictSpread,
        name: Some("known".into()),
        detached,
        ..GroupSpec::default()
    };
    talk.say(1, ToPlacer::GroupWanted { spec });
    talk.pass(LOOK);
    talk.reserved(1, 7, 1, Ok(()));
    talk.reserved(2, 7, 1, Ok(()));
    assert_eq!(talk.heard().last().unwrap(), "3 ready [1, 2]");
    talk
}

#[test]
fn a_placer_that_begins_anew_knows_its_groups_and_waits_for_their_nodes() {
    let mut talk = group_on_two_nodes(false);
    talk.restart(&[1, 2, 3]);
    let waits = "its nodes have yet to say what they have kept of it";
    talk.join(3, cpus(2), Labels::new());
    talk.say(3, ToPlacer::GroupWatched { group: group_id(7) });
    assert_eq!(
        talk.heard(),
        [format!("3 pending: {waits}"), format!("3 pending: {waits}")],
        "it is not gone"
    );
    talk.join(2, cpus(2), Labels::new());
    talk.kept(2, 7, &[1]);
    talk.pass(KEPT_FOR);
    assert_eq!(talk.heard(), [format!("2 pending: {waits}")], "its other node may join again");
    talk.join(1, cpus(2), Labels::new());
    talk.kept(1, 7, &[0]);
    assert_eq!(
        talk.heard(),
        [&format!("1 pending: {waits}"), "1 ready [1, 2]", "2 ready [1, 2]", "3 ready [1, 2]"]
    );
}

#[test]
fn what_the_nodes_of_a_restored_group_do_not_have_any_more_is_placed_again() {
    // One does not come back.
    let mut talk = group_on_two_nodes(true);
    talk.restart(&[1, 2, 3]);
    talk.join(3, cpus(2), Labels::new());
    talk.join(2, cpus(2), Labels::new());
    talk.kept(2, 7, &[1]);
    talk.step(PlacerInput::NodeLeft { node: node(1) });
    talk.pass(LOOK);
    assert_eq!(talk.heard().last().unwrap(), "3 reserve [0]");
    // One comes back with nothing, and has had the time to say otherwise.
    let mut talk = group_on_two_nodes(true);
    talk.restart(&[1, 2]);
    talk.join(1, cpus(2), Labels::new());
    talk.join(2, cpus(2), Labels::new());
    talk.kept(2, 7, &[1]);
    talk.pass(LOOK);
    assert!(!talk.heard().contains(&"1 reserve [0]".to_owned()));
    talk.pass(KEPT_FOR);
    assert_eq!(talk.heard(), ["1 reserve [0]"]);
    // All are gone for good: it gets others, though nobody but its row knows of it.
    let mut talk = group_on_two_nodes(true);
    talk.restart(&[]);
    talk.join(4, cpus(2), Labels::new());
    talk.join(5, cpus(2), Labels::new());
    talk.pass(LOOK);
    assert!(talk.heard().ends_with(&["4 reserve [0]".to_owned(), "5 reserve [1]".to_owned()]));
}

#[test]
fn a_group_whose_maker_is_gone_is_returned_after_a_restart() {
    for had_left_before in [true, false] {
        let mut talk = group_on_two_nodes(false);
        talk.restart(if had_left_before { &[2, 3] } else { &[1, 2, 3] });
        talk.join(2, cpus(2), Labels::new());
        talk.said.clear();
        if !had_left_before {
            talk.kept(2, 7, &[1]);
            talk.step(PlacerInput::NodeLeft { node: node(1) });
            assert_eq!(talk.heard(), ["2 removed: the node that made it has left", "2 return [1]"]);
            talk.say(2, ToPlacer::Returned { group: group_id(7) });
        } else {
            talk.kept(2, 7, &[1]);
            assert_eq!(talk.heard(), ["2 return [1]"]);
        }
        assert_eq!((talk.placer.groups(), talk.rows.len()), (0, 0));
    }
}

#[test]
fn a_group_that_was_removed_while_a_node_was_away_does_not_come_back_with_it() {
    let mut talk = group_on_two_nodes(true);
    talk.restart(&[1, 2, 3]);
    talk.join(3, cpus(2), Labels::new());
    talk.said.clear();
    talk.say(3, ToPlacer::GroupRemoved { group: group_id(7) });
    assert_eq!(talk.heard(), ["3 removed: it was removed"]);
    assert_eq!((talk.placer.groups(), talk.rows.len()), (0, 0));
    talk.join(1, cpus(2), Labels::new());
    talk.kept(1, 7, &[0]);
    talk.say(1, ToPlacer::GroupWatched { group: group_id(7) });
    assert_eq!(talk.heard(), ["1 return [0]", "1 removed: it was removed"]);
    talk.say(1, ToPlacer::GroupRemoved { group: group_id(7) });
    assert_eq!(talk.heard(), ["1 removed: it was removed"], "whoever removes it learns that it is gone");
}

#[test]
fn nobody_is_told_of_a_group_that_is_not_on_disk_nor_of_the_end_of_one_that_is() {
    let mut talk = Talk::with(&[cpus(2)]);
    talk.is_disk_slow = true;
    talk.want_group(1, 7, GroupStrategy::Pack, &[1]);
    talk.want_group(1, 8, GroupStrategy::Pack, &[9]);
    talk.reserved(1, 7, 1, Ok(()));
    assert_eq!(talk.heard(), ["1 reserve [0]"], "neither that it is ready, nor that the other one waits");
    talk.write();
    assert_eq!(
        talk.heard(),
        ["1 commit", "1 ready [1]", "1 pending: bundle 0: no node has 9 CPU; the largest has 2 CPU"]
    );
    assert_eq!(talk.rows[&group_id(7)].nodes, [Some(node(1))]);
    talk.say(1, ToPlacer::GroupRemoved { group: group_id(7) });
    talk.say(1, ToPlacer::GroupWatched { group: group_id(7) });
    assert_eq!(talk.heard(), [""; 0], "the control process may die, and then it is still there");
    talk.write();
    assert_eq!(talk.heard(), ["1 removed: it was removed", "1 return [0]"]);
    talk.say(1, ToPlacer::Returned { group: group_id(7) });
    assert_eq!((talk.placer.groups(), talk.rows.len()), (1, 1));
}

#[test]
fn a_group_that_cannot_be_written_down_is_not_made() {
    let mut talk = Talk::with(&[cpus(2)]);
    talk.is_disk_slow = true;
    talk.want_group(1, 7, GroupStrategy::Pack, &[1]);
    let (group, _, write) = talk.unwritten.remove(0);
    talk.step(PlacerInput::GroupWritten { group, write, outcome: Err("the table is full".into()) });
    talk.write();
    let why = "1 removed: the control process cannot keep it: the table is full";
    assert_eq!(talk.heard(), ["1 reserve [0]", why, "1 return [0]"]);
    assert_eq!(talk.rows.len(), 0);
}

#[test]
fn what_a_node_has_kept_is_still_its_own_when_it_joins_again() {
    let mut talk = group_on_two_nodes(false);
    talk.join(2, cpus(2), Labels::new());
    assert!(talk.heard()[0].starts_with("1 pending: node"));
    talk.kept(2, 7, &[1]);
    assert!(talk.heard().contains(&"1 ready [1, 2]".to_owned()));
    // One that was away for too long is asked to return what another has by now.
    talk.step(PlacerInput::NodeLeft { node: node(2) });
    talk.pass(LOOK);
    assert!(talk.heard().contains(&"3 reserve [1]".to_owned()));
    talk.reserved(3, 7, 2, Ok(()));
    talk.join(2, cpus(2), Labels::new());
    talk.said.clear();
    talk.kept(2, 7, &[1]);
    assert_eq!(talk.heard(), ["2 return [1]"]);
}

#[test]
fn a_node_that_says_twice_what_it_has_kept_keeps_it() {
    let mut talk = group_on_two_nodes(false);
    talk.join(2, cpus(2), Labels::new());
    talk.kept(2, 7, &[1]);
    assert!(talk.heard().contains(&"1 ready [1, 2]".to_owned()));
    talk.kept(2, 7, &[1]);
    assert_eq!(talk.heard(), [""; 0]);
}

/// A group of two bundles that node 2 had, and lost when it was taken for dead. One of them is on node 3 by now; of the
/// other its new node has left as well, and there is room for it nowhere.
fn group_that_was_half_placed_again() -> Talk {
    let mut talk = Talk::with(&[cpus(0), cpus(2)]);
    talk.want_group(1, 7, GroupStrategy::Pack, &[1, 1]);
    talk.reserved(2, 7, 1, Ok(()));
    assert_eq!(talk.heard(), ["2 reserve [0, 1]", "2 commit", "1 ready [2, 2]"]);
    talk.step(PlacerInput::NodeLeft { node: node(2) });
    talk.join(3, cpus(1), Labels::new());
    talk.join(4, cpus(1), Labels::new());
    talk.pass(LOOK);
    talk.reserved(3, 7, 2, Ok(()));
    talk.reserved(4, 7, 2, Ok(()));
    assert_eq!(talk.heard().last().unwrap(), "1 ready [3, 4]");
    talk.step(PlacerInput::NodeLeft { node: node(4) });
    talk.pass(LOOK);
    talk.said.clear();
    talk
}

#[test]
fn a_node_that_cannot_keep_all_of_a_group_returns_all_of_it() {
    let mut talk = group_that_was_half_placed_again();
    talk.join(2, cpus(2), Labels::new());
    talk.kept(2, 7, &[0, 1]);
    assert_eq!(talk.heard(), ["2 return [0, 1]"], "it is not ready: nobody has one of its bundles");
    // It had said so once more before it heard that, and the bundle that was in its way is lost, too.
    talk.step(PlacerInput::NodeLeft { node: node(3) });
    talk.said.clear();
    talk.kept(2, 7, &[0, 1]);
    assert_eq!(talk.heard(), ["2 return [0, 1]"]);
    talk.say(2, ToPlacer::Returned { group: group_id(7) });
    talk.say(2, ToPlacer::Returned { group: group_id(7) });
    talk.pass(LOOK);
    assert_eq!(talk.heard(), ["2 reserve [0, 1]"]);
}

#[test]
fn a_node_that_is_to_return_a_group_does_not_get_more_of_it_at_the_same_time() {
    let mut talk = group_that_was_half_placed_again();
    talk.join(2, cpus(2), Labels::new());
    talk.pass(LOOK);
    assert_eq!(talk.heard(), ["2 reserve [1]"]);
    talk.kept(2, 7, &[0, 1]);
    let heard = talk.heard();
    assert_eq!((&*heard[0], heard.last().unwrap().as_str()), ("2 return [1]", "2 return [0, 1]"));
    talk.reserved(2, 7, 3, Ok(()));
    assert!(!talk.heard().contains(&"2 commit".to_owned()), "it has dropped what it had set aside");
}

#[test]
fn groups_with_names_are_known_everywhere_and_bundles_go_where_labels_suit() {
    let mut talk = Talk::with(&[cpus(4)]);
    talk.join(2, cpus(4), Labels::from([("zone".into(), "b".into())]));
    let rule = LabelRule { name: "zone".into(), test: LabelTest::Exists };
    let spec = GroupSpec {
        group: group_id(7),
        bundles: vec![cpus(1), cpus(1)],
        labels: vec![vec![rule]],
        name: Some("known".into()),
        ..GroupSpec::default()
    };
    talk.say(1, ToPlacer::GroupWanted { spec });
    talk.pass(LOOK);
    assert_eq!(talk.heard(), ["2 reserve [0, 1]"]);
    talk.reserved(2, 7, 1, Ok(()));
    assert_eq!(talk.heard(), ["2 commit", "1 ready [2, 2]", "2 ready [2, 2]"]);
    talk.join(3, cpus(1), Labels::new());
    assert_eq!(talk.heard(), ["3 ready [2, 2]"]);
}
