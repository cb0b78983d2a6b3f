//! Operations equal what plain loops compute, for all types and sizes, on one machine and between several.

mod support;

use aktis_collective::{Bf16, CollectiveError, Element, F16, Group, ReduceOp};
use proptest::prelude::*;
use std::time::Duration;
use support::{run, run_with};

/// A number of which sums and products of a few are exact in every type.
trait Small: Element + PartialEq + std::fmt::Debug {
    fn from_small(number: u8) -> Self;
}

macro_rules! small {
    ($($number:ty: $convert:expr),*) => {
        $(impl Small for $number {
            fn from_small(number: u8) -> Self {
                $convert(number)
            }
        })*
    };
}

small! {
    f32: f32::from, f64: f64::from, i32: i32::from, i64: i64::from, u8: |number| number,
    F16: |number: u8| F16::from(f32::from(number)), Bf16: |number: u8| Bf16::from(f32::from(number))
}

/// Element `index` of the array of `rank`: 0 to 3.
fn digit(rank: usize, index: usize) -> u8 {
    ((rank * 31 + index * 7 + index / 5) % 4) as u8
}

fn array<T: Small>(rank: usize, length: usize) -> Vec<T> {
    (0..length).map(|index| T::from_small(digit(rank, index))).collect()
}

fn expected<T: Small>(op: ReduceOp, size: usize, length: usize) -> Vec<T> {
    let combined = |index: usize| {
        let digits = (0..size).map(|rank| u32::from(digit(rank, index)));
        let number = match op {
            ReduceOp::Sum | ReduceOp::Mean => digits.sum::<u32>(),
            ReduceOp::Product => digits.product(),
            ReduceOp::Min => digits.min().unwrap_or_default(),
            ReduceOp::Max => digits.max().unwrap_or_default(),
        };
        T::from_small(number as u8)
    };
    (0..length).map(combined).collect()
}

fn check_all<T: Small>(group: &mut Group, op: ReduceOp, length: usize) {
    let (rank, size) = (group.rank(), group.size());
    let wanted = expected::<T>(op, size, length);

    let mut own = array::<T>(rank, length);
    group.all_reduce(&mut own, op).expect("all_reduce");
    assert!(own == wanted, "all_reduce of {length} at {rank}");

    let mut output = vec![T::from_small(9); length];
    group.all_reduce_into(&array(rank, length), &mut output, op).expect("all_reduce_into");
    assert!(output == wanted, "all_reduce_into of {length} at {rank}");

    let root = length % size;
    let mut own = array::<T>(rank, length);
    group.reduce(&mut own, op, root).expect("reduce");
    assert!(own == if rank == root { wanted } else { array(rank, length) }, "reduce of {length} at {rank}");

    let mut part = vec![T::from_small(9); length];
    group.reduce_scatter(&array::<T>(rank, length * size), &mut part, op).expect("reduce_scatter");
    let whole = expected::<T>(op, size, length * size);
    assert!(part == whole[rank * length..][..length], "reduce_scatter of {length} at {rank}");
}

fn check_moves<T: Small>(group: &mut Group, length: usize) {
    let (rank, size) = (group.rank(), group.size());
    let mut all = vec![T::from_small(9); length * size];
    group.all_gather(&array::<T>(rank, length), &mut all).expect("all_gather");
    let wanted: Vec<T> = (0..size).flat_map(|rank| array(rank, length)).collect();
    assert!(all == wanted, "all_gather of {length} at {rank}");

    let root = (length + 1) % size;
    let mut own = array::<T>(rank, length);
    group.broadcast(&mut own, root).expect("broadcast");
    assert!(own == array(root, length), "broadcast of {length} at {rank}");

    // Around the ring; who sends first does not matter, as long as it is not everybody.
    if size > 1 {
        let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);
        let mut received = vec![T::from_small(9); length];
        if rank == 0 {
            group.send(&array::<T>(rank, length), next).expect("send");
            group.receive(&mut received, before).expect("receive");
        } else {
            group.receive(&mut received, before).expect("receive");
            group.send(&array::<T>(rank, length), next).expect("send");
        }
        assert!(received == array(before, length), "send of {length} to {rank}");
    }
    group.barrier().expect("barrier");
}

const SIZES: [usize; 6] = [0, 1, 7, 1000, 40_001, 700_003];

#[test]
fn all_operations_equal_plain_loops_on_one_machine() {
    for members in [1, 2, 3, 4] {
        run(&vec!["a"; members], |group| {
            for length in SIZES {
                check_all::<f32>(group, ReduceOp::Sum, length);
                check_moves::<f32>(group, length);
            }
            for op in [ReduceOp::Sum, ReduceOp::Product, ReduceOp::Min, ReduceOp::Max] {
                for length in [5, 30_011] {
                    check_all::<f64>(group, op, length);
                    check_all::<F16>(group, op, length);
                    check_all::<Bf16>(group, op, length);
                    check_all::<i32>(group, op, length);
                    check_all::<i64>(group, op, length);
                    check_all::<u8>(group, op, length);
                }
            }
        });
    }
}

#[test]
fn all_operations_equal_plain_loops_between_machines() {
    for places in [&["a", "b"][..], &["a", "b", "c"], &["a", "b", "a", "b", "c"], &["a", "b", "b", "c", "d"]]
    {
        run(places, |group| {
            for length in [0, 1, 7, 30_001, 1_000_003] {
                check_all::<f32>(group, ReduceOp::Sum, length);
                check_moves::<i32>(group, length);
            }
            check_all::<F16>(group, ReduceOp::Max, 100_001);
            check_all::<u8>(group, ReduceOp::Product, 100_001);
        });
    }
}

#[test]
fn a_mean_divides_by_the_number_of_members() {
    for places in [&["a", "a", "a", "a"][..], &["a", "b", "a", "b"]] {
        run(places, |group| {
            for length in [3, 50_000] {
                let mut array = vec![group.rank() as f32; length];
                group.all_reduce(&mut array, ReduceOp::Mean).expect("mean");
                assert!(array.iter().all(|number| *number == 1.5));
                let refused = group.all_reduce(&mut [1_i32], ReduceOp::Mean);
                assert!(matches!(refused, Err(CollectiveError::Invalid(_))), "{refused:?}");
            }
        });
    }
}

#[test]
fn not_a_number_wins_in_min_and_max() {
    run(&["a", "a", "b"], |group| {
        for op in [ReduceOp::Min, ReduceOp::Max] {
            let mut array = [1.0_f32, if group.rank() == 1 { f32::NAN } else { 2.0 }];
            group.all_reduce(&mut array, op).expect("reduced");
            assert!(array[0] == 1.0 && array[1].is_nan());
        }
    });
}

#[test]
fn members_that_disagree_are_told_how() {
    for places in [&["a", "a", "a"][..], &["a", "b", "c"]] {
        let errors = run_with(places, Duration::from_secs(20), |group| {
            let length = if group.rank() == 2 { 11 } else { 10 };
            let error =
                group.all_reduce(&mut vec![1.0_f32; length], ReduceOp::Sum).expect_err("they disagree");
            assert_eq!(group.barrier(), Err(error.clone()), "the group stays broken");
            error.to_string()
        });
        for error in errors {
            assert!(error.contains("operation 1") && error.contains("rank 2"), "{error}");
            assert!(error.contains("of 11 float32") && error.contains("of 10 float32"), "{error}");
        }
    }
    // Leaders that would use other streams for these find out as well.
    for length in [1, 500_000] {
        let errors = run_with(&["a", "b", "c"], Duration::from_secs(20), |group| {
            let mut array = vec![1_u8; if group.rank() == 1 { length } else { 2_000_000 }];
            group.all_reduce(&mut array, ReduceOp::Sum).expect_err("they disagree").to_string()
        });
        assert!(errors.iter().all(|error| error.contains("members disagree")), "{errors:?}");
        let errors = run_with(&["a", "b"], Duration::from_secs(20), |group| {
            let root = group.rank();
            group.broadcast(&mut vec![1_u8; length], root).expect_err("they disagree").to_string()
        });
        assert!(errors.iter().all(|error| error.contains("from rank 0")), "{errors:?}");
    }
    let errors = run_with(&["a", "a"], Duration::from_secs(20), |group| {
        let done = if group.rank() == 0 { group.barrier() } else { group.broadcast(&mut [1_u8], 0) };
        done.expect_err("they disagree").to_string()
    });
    assert!(
        errors.iter().all(|error| error.contains("barrier") && error.contains("broadcast")),
        "{errors:?}"
    );
}

#[test]
fn a_received_array_has_the_type_and_length_that_was_sent() {
    for places in [&["a", "a"][..], &["a", "b"]] {
        let errors = run_with(places, Duration::from_secs(20), |group| {
            if group.rank() == 0 {
                group.send(&[1.0_f32; 4], 1).map(|()| String::new()).unwrap_or_default()
            } else {
                group.receive(&mut [0_i32; 4], 0).expect_err("another type").to_string()
            }
        });
        assert!(
            errors[1].contains("send of 4 int32") && errors[1].contains("send of 4 float32"),
            "{errors:?}"
        );
    }
}

#[test]
fn a_member_that_does_not_come_is_named_after_the_timeout() {
    for places in [&["a", "a", "a"][..], &["a", "b", "b"]] {
        let done = std::sync::Barrier::new(3);
        let errors = run_with(places, Duration::from_millis(300), |group| {
            let outcome = if group.rank() == 1 { None } else { Some(group.barrier()) };
            done.wait();
            outcome.map(|outcome| outcome.expect_err("one is missing").to_string())
        });
        for error in errors.into_iter().flatten() {
            assert!(error.contains("timed out") && error.contains("rank 1"), "{error}");
        }
    }
}

#[test]
fn a_member_that_leaves_is_named() {
    for places in [&["a", "a", "a"][..], &["a", "b", "c"], &["a", "b", "b"]] {
        let errors = run_with(places, Duration::from_secs(20), |group| {
            group.barrier().expect("all are there");
            (group.rank() != 2).then(|| group.barrier().expect_err("one has left").to_string())
        });
        for error in errors.into_iter().flatten() {
            assert!(error.contains("rank 2 is gone: it has left"), "{error}");
        }
    }
}

#[test]
fn bad_arguments_leave_the_group_as_it_was() {
    run(&["a", "a"], |group| {
        let mut array = [1.0_f64; 3];
        for refused in [
            group.broadcast(&mut array, 2),
            group.reduce(&mut array, ReduceOp::Sum, 7),
            group.send(&array, group.rank()),
            group.all_gather(&[1.0_f64; 2], &mut array),
            group.reduce_scatter(&[1.0_f64; 2], &mut array, ReduceOp::Sum),
            group.all_reduce_into(&[1.0_f64; 2], &mut array, ReduceOp::Sum),
        ] {
            let Err(CollectiveError::Invalid(text)) = refused else { panic!("{refused:?}") };
            assert!(text.contains("hint:"), "{text}");
        }
        group.all_reduce(&mut array, ReduceOp::Sum).expect("nothing has happened");
        assert_eq!(array, [2.0; 3]);
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Members of any number on any machines get the bits that a sum in some order gives, and all the same.
    #[test]
    fn all_members_get_the_same_bits(
        places in proptest::collection::vec(0..3_usize, 1..6),
        length in prop_oneof![0..100_usize, 10_000..30_000_usize, 200_000..400_000_usize],
        seed in any::<u64>(),
    ) {
        let names: Vec<&str> = places.iter().map(|place| ["a", "b", "c"][*place]).collect();
        let number = |rank: usize, index: usize| {
            let mixed = (seed ^ (rank as u64) << 40 ^ index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (mixed >> 40) as f32 / 1e3
        };
        let totals = run(&names, |group| {
            let rank = group.rank();
            let mut array: Vec<f32> = (0..length).map(|index| number(rank, index)).collect();
            group.all_reduce(&mut array, ReduceOp::Sum).expect("sum");
            array
        });
        for (index, total) in totals[0].iter().enumerate() {
            let exact: f64 = (0..names.len()).map(|rank| f64::from(number(rank, index))).sum();
            prop_assert!((f64::from(*total) - exact).abs() <= exact * 1e-6);
        }
        prop_assert!(totals.iter().all(|total| *total == totals[0]));
    }
}
