//! Generic remote functions and actors: each combination of listed types is registered and found by itself.

mod support;

use aktis::prelude::*;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::iter::Sum;
use support::start;

#[remote(T = [u64, f64])]
fn total<T: Sum<T>>(items: Vec<T>) -> T {
    items.into_iter().sum()
}

/// The product of two lists: four functions.
#[remote(K = [u8, String], V = [u64, Option<bool>], cpus = 0.5)]
fn pairs<K, V>(keys: Vec<K>, values: Vec<V>) -> BTreeMap<K, V>
where
    K: Ord,
{
    keys.into_iter().zip(values).collect()
}

/// Two functions.
#[remote((F, T) = [(u8, u64), (i8, i64)])]
fn convert<F, T: From<F>>(value: F) -> T {
    T::from(value)
}

#[remote(N = [2, 3])]
fn chunks<const N: usize>(items: Vec<u8>) -> Vec<Vec<u8>> {
    items.chunks(N).map(<[u8]>::to_vec).collect()
}

#[remote(T = [u64, i8], stream)]
fn repeated<T: Clone>(item: T, count: usize) -> impl Iterator<Item = T> {
    std::iter::repeat_n(item, count)
}

#[remote(T = [u64, String], returns = 2)]
fn twice<T: Clone>(item: T) -> (T, T) {
    (item.clone(), item)
}

#[derive(Serialize, Deserialize)]
struct Refused<T>(T);

impl<T: Display> Display for Refused<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} is refused", self.0)
    }
}

#[remote(T = [u64, String])]
fn refuse<T: Display>(item: T) -> Result<T, Refused<T>> {
    Err(Refused(item))
}

struct Stack<T> {
    items: Vec<T>,
}

#[actor(T = [u64, String, Vec<u8>])]
impl<T: Clone> Stack<T> {
    fn new(first: T) -> Self {
        Self { items: vec![first] }
    }
    fn push(&mut self, item: T) -> usize {
        self.items.push(item);
        self.items.len()
    }
    fn pop(&mut self) -> Result<T, String> {
        self.items.pop().ok_or_else(|| "the stack is empty".to_owned())
    }
    fn count(&self) -> usize {
        self.items.len()
    }
}

struct Cell<T> {
    value: T,
}

#[actor(T = [u64, String], max_concurrency = 4)]
impl<T> Cell<T>
where
    T: Clone,
{
    fn new(value: T) -> Result<Self, String> {
        Ok(Self { value })
    }
    async fn read(&self) -> T {
        std::future::ready(()).await;
        self.value.clone()
    }
    async fn write(&mut self, value: T) {
        self.value = value;
    }
}

#[remote(T = [u64, String])]
fn push_two<T: Clone + DeserializeOwned + Serialize>(stack: StackHandle<T>, item: T) -> aktis::Result<usize>
where
    Stack<T>: aktis::RemoteActor,
{
    stack.push(item.clone()).get()?;
    stack.push(item).get()
}

#[test]
fn each_listed_type_has_a_function_of_its_own() {
    let session = start();
    let _entered = session.enter();
    assert_eq!(total::<u64>::remote(vec![1, 2, 3]).get().unwrap(), 6);
    assert_eq!(total::<f64>::remote(vec![0.5, 0.25]).get().unwrap(), 0.75);
    assert_eq!(total::remote(vec![1u64, 2]).get().unwrap(), 3, "the type is inferred");
    assert_eq!(total::<f64>::options().cpus(0.5).remote(vec![1.5]).get().unwrap(), 1.5);
    assert_eq!(total(vec![1u8, 2]), 3, "a local call takes any type");
}

#[test]
fn several_parameters_are_a_product_or_tuples() {
    let session = start();
    let _entered = session.enter();
    let map = pairs::<String, Option<bool>>::remote(vec!["a".to_owned()], vec![None]);
    assert_eq!(map.get().unwrap(), BTreeMap::from([("a".to_owned(), None)]));
    assert_eq!(pairs::<u8, u64>::remote(vec![1], vec![2]).get().unwrap(), BTreeMap::from([(1, 2)]));
    assert_eq!(convert::<u8, u64>::remote(7).get().unwrap(), 7u64);
    assert_eq!(convert::<i8, i64>::remote(-7).get().unwrap(), -7i64);
    assert_eq!(chunks::<2>::remote(vec![1, 2, 3]).get().unwrap(), [vec![1, 2], vec![3]]);
    assert_eq!(chunks::<3>::remote(vec![1, 2, 3]).get().unwrap(), [[1, 2, 3]]);
}

#[test]
fn streams_several_returns_and_errors_are_generic_too() {
    let session = start();
    let _entered = session.enter();
    let items: Vec<i8> = repeated::<i8>::remote(-1, 3).map(|item| item.unwrap().get().unwrap()).collect();
    assert_eq!(items, [-1, -1, -1]);
    let (first, second) = twice::<String>::remote("x");
    assert_eq!(first.get().unwrap() + &second.get().unwrap(), "xx");
    let aktis::Error::Task(error) = refuse::<String>::remote("it").get().unwrap_err() else { panic!() };
    assert_eq!(error.downcast::<Refused<String>>().unwrap().0, "it");
}

#[test]
fn names_tell_the_types() {
    let session = start();
    let _entered = session.enter();
    let pending = total::<u64>::options().gpus(1000).remote(vec![]);
    assert!(pending.explain().contains("total<u64>"), "{}", pending.explain());
    Stack::<Vec<u8>>::options().name("stack").detached().remote(vec![1]);
    let error = Stack::<u64>::find("stack").unwrap_err().to_string();
    assert!(error.contains("Stack<Vec<u8>>::new, not by generics::Stack<u64>::new"), "{error}");
    let found = Stack::<Vec<u8>>::find("stack").unwrap();
    assert_eq!(found.pop().get().unwrap(), [1]);
    found.kill().unwrap();
}

#[test]
fn generic_actors_keep_values_of_their_type() {
    let session = start();
    let _entered = session.enter();
    let (numbers, texts) = (Stack::<u64>::remote(1), Stack::<String>::options().restarts(1).remote("a"));
    assert_eq!(numbers.push(2).get().unwrap(), 2);
    assert_eq!(push_two::<String>::remote(&texts, "b").get().unwrap(), 3);
    assert_eq!((numbers.pop().get().unwrap(), texts.pop().get().unwrap()), (2, "b".to_owned()));
    assert_eq!(numbers.clone().count().get().unwrap(), 1);
    numbers.pop().get().unwrap();
    assert!(numbers.pop().get().unwrap_err().to_string().contains("the stack is empty"));
}

#[test]
fn generic_actors_may_be_async() {
    let session = start();
    let _entered = session.enter();
    let cell = Cell::<String>::remote("old");
    cell.write("new").get().unwrap();
    assert_eq!(cell.read().get().unwrap(), "new");
    assert_eq!(Cell::<u64>::remote(3).read().get().unwrap(), 3);
}
