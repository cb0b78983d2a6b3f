//! What a session keeps until it ends, though no Python object refers to it.

use aktis_runtime::{Handle, Runtime};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

/// What is kept for one session.
#[derive(Default)]
struct Kept {
    /// References that were pickled on their own: somebody may still ask for them by their ids.
    references: Vec<Handle>,
    /// Functions and classes, by what they are: calls name them by their ids alone, and actors may start again.
    exports: HashMap<[u64; 2], Handle>,
    /// The ids of these, and of those that refer to objects or actors.
    exported: HashSet<[u64; 2]>,
}

/// By the [number](Runtime::number) of the session.
static SESSIONS: Mutex<Option<HashMap<u64, Kept>>> = Mutex::new(None);

fn with_session<R>(session: u64, act: impl FnOnce(&mut Kept) -> R) -> R {
    let mut sessions = SESSIONS.lock();
    act(sessions.get_or_insert_default().entry(session).or_default())
}

/// Keeps a reference until its session ends.
pub(crate) fn keep(handle: Handle) {
    if let Some(runtime) = handle.runtime().filter(|runtime| !runtime.is_closed()) {
        with_session(runtime.number(), |kept| kept.references.push(handle));
    }
}

/// The object that holds this exported code in the session; `put` makes it if there is none.
pub(crate) fn export<E>(
    runtime: &Runtime,
    code: &[u8],
    put: impl FnOnce() -> Result<Handle, E>,
) -> Result<[u64; 2], E> {
    let (session, hash) = (runtime.number(), hash(code));
    let found = with_session(session, |kept| kept.exports.get(&hash).map(|handle| handle.id().to_words()));
    if let Some(words) = found {
        return Ok(words);
    }
    let handle = put()?;
    let mut extra = None;
    let words = with_session(session, |kept| match kept.exports.get(&hash) {
        // Another thread was faster.
        Some(first) => {
            extra = Some(handle);
            first.id().to_words()
        }
        None => {
            let words = handle.id().to_words();
            kept.exports.insert(hash, handle);
            kept.exported.insert(words);
            words
        }
    });
    drop(extra);
    Ok(words)
}

/// An object is exported code, though others keep it.
pub(crate) fn note_export(runtime: &Runtime, words: [u64; 2]) {
    with_session(runtime.number(), |kept| kept.exported.insert(words));
}

/// Nobody can name this exported code any more.
pub(crate) fn forget_export(session: u64, words: [u64; 2]) {
    if let Some(kept) = SESSIONS.lock().as_mut().and_then(|sessions| sessions.get_mut(&session)) {
        kept.exported.remove(&words);
    }
}

/// Whether an object is exported code of the session.
pub(crate) fn is_export(session: u64, words: [u64; 2]) -> bool {
    with_session(session, |kept| kept.exported.contains(&words))
}

/// The session is over: nothing of it is kept any more.
pub(crate) fn forget(session: u64) {
    let kept = SESSIONS.lock().as_mut().and_then(|sessions| sessions.remove(&session));
    drop(kept);
}

/// 128 bits that tell one code from another.
fn hash(code: &[u8]) -> [u64; 2] {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, code).hash(&mut hasher);
        hasher.finish()
    };
    [half(0), half(1)]
}
