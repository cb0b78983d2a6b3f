//! Generic functions and actors with lists of types, in a crate that is strict about lints.
#![deny(missing_docs, warnings, unused, unreachable_pub)]
#![forbid(unsafe_code)]

use aktis::prelude::*;
use aktis::{ActorOptions, RemoteActor, RemoteFunction, TaskOptions};

/// A function that others see.
#[remote(T = [u64, f64], retries = 5)]
pub fn largest<T: PartialOrd>(items: Vec<T>) -> Option<T> {
    items.into_iter().reduce(|a, b| if a > b { a } else { b })
}

#[remote((K, V) = [(u8, String), (u16, Vec<u8>)], N = [1, { 1 + 1 }])]
fn mixed<K, V, const N: usize>(key: K, value: V) -> (K, V, [u8; N])
where
    K: Copy,
{
    (key, value, [0; N])
}

/// A stack.
pub struct Stack<T: Clone> {
    items: Vec<T>,
}

#[actor(T = [u64, String])]
impl<T: Clone> Stack<T>
where
    Stack<T>: RemoteActor,
{
    fn new() -> Self {
        Self { items: Vec::new() }
    }
    /// Puts an item on top.
    fn push(&mut self, item: T) {
        self.items.push(item);
    }
    fn top(&self) -> Option<T> {
        self.items.last().cloned()
    }
    #[cfg(any())]
    fn absent(&self) {}
    fn merge(&mut self, other: StackHandle<T>) -> aktis::Result<()> {
        let _ = other.top();
        Ok(())
    }
    fn count(&self) -> usize {
        self.items.len()
    }
}

fn any_largest<T: PartialOrd>(items: ObjectRef<Vec<T>>) -> ObjectRef<Option<T>>
where
    largest<T>: RemoteFunction,
{
    largest::<T>::remote(items)
}

fn named() -> (TaskOptions<largest<u64>>, ActorOptions<Stack<u64>>) {
    (largest::<u64>::options().cpus(2), Stack::<u64>::options().name("stack"))
}

fn calls() -> aktis::Result<()> {
    let _: ObjectRef<Option<u64>> = largest::<u64>::remote(vec![1, 2]);
    let _: ObjectRef<Option<f64>> = largest::remote(vec![1.0]);
    let _: ObjectRef<Option<f64>> = any_largest(aktis::put(vec![1.0])?);
    let _ = mixed::<u8, String, 1>::remote(1, "x");
    let _ = mixed::<u16, Vec<u8>, 2>::options().priority(1).remote(1, vec![1]);
    let stack: StackHandle<String> = Stack::<String>::remote();
    let _ = (stack.push("x"), stack.top(), stack.count(), stack.clone().merge(&stack));
    let _: StackHandle<u64> = Stack::find("stack")?;
    let (task, actor) = named();
    let _ = (task.remote(vec![1]), actor.clone().remote());
    Ok(())
}

fn main() {
    #[remote(T = [u8, u16])]
    fn inside<T>(value: T) -> T {
        value
    }

    let _: (fn() -> aktis::Result<()>, fn(u8) -> ObjectRef<u8>) = (calls, inside::<u8>::remote);
    assert_eq!(inside(1u32), 1);
}
