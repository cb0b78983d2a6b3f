//! The title of a worker process: what it is running.

use std::cell::RefCell;
use std::sync::OnceLock;

static PREFIX: OnceLock<&'static str> = OnceLock::new();

thread_local! {
    /// What this thread has shown last.
    static SHOWN: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Shows what the process is running, and tells whether that is news. Naming the same thing again costs nothing.
pub(crate) fn show(name: &str) -> bool {
    SHOWN.with_borrow_mut(|shown| {
        let news = shown != name;
        if news {
            let compat = || std::env::var_os("AKTIS_COMPAT").is_some_and(|value| value == "1");
            let prefix = PREFIX.get_or_init(|| if compat() { "ray::" } else { "aktis::" });
            aktis_store::set_title([prefix, name]);
            shown.clear();
            shown.push_str(name);
        }
        news
    })
}
