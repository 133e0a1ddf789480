//! A panic is told before it is reported. Knows no peer.
//!
//! The panic hook runs before the rank unwinds and may take long: with `RUST_BACKTRACE` the standard one
//! reads the symbols of the whole program. In that time the rank looks as if it stood still. So a hook in
//! front of the program's own leaves the message where the link thread finds it, and the peers know within a
//! moment.

use crate::world::panic_message;
use std::cell::RefCell;
use std::panic;
use std::sync::{Arc, Once, OnceLock};

/// What the panic of a rank's thread says, once it panics.
#[derive(Default)]
pub(super) struct LastWords(OnceLock<String>);

thread_local! {
    /// Where a panic of this thread is told, while it is a rank.
    static OF_THREAD: RefCell<Option<Arc<LastWords>>> = const { RefCell::new(None) };
}

impl LastWords {
    /// What was said.
    pub(super) fn get(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }
}

/// Puts the hook in front of the one that is there. Once per process.
pub(super) fn put_hook_first() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let reporting = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            // A thread that ends has no place any more.
            let _ = OF_THREAD.try_with(|place| {
                if let Ok(place) = place.try_borrow()
                    && let Some(words) = &*place
                {
                    let _ = words.0.set(panic_message(panic.payload()));
                }
            });
            reporting(panic);
        }));
    });
}

/// Runs `work`, a panic of which is told in `words`.
pub(super) fn telling<T>(words: &Arc<LastWords>, work: impl FnOnce() -> T) -> T {
    /// Nothing is told any more, also after an unwinding.
    struct Quiet;
    impl Drop for Quiet {
        fn drop(&mut self) {
            OF_THREAD.take();
        }
    }
    let _quiet = Quiet;
    OF_THREAD.replace(Some(Arc::clone(words)));
    work()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::thread;

    #[test]
    fn a_panic_is_told_while_it_is_reported() {
        let words = Arc::<LastWords>::default();
        let (inner, seen) = (Arc::clone(&words), Arc::<OnceLock<Option<String>>>::default());
        let report = Arc::clone(&seen);
        panic::set_hook(Box::new(move |_| {
            let _ = report.set(inner.get().map(str::to_owned));
        }));
        put_hook_first();
        let fails = |text: &'static str| catch_unwind(AssertUnwindSafe(|| panic!("{text}")));
        assert!(fails("before").is_err() && words.get().is_none());
        assert_eq!(seen.get(), Some(&None));
        assert!(telling(&words, || thread::spawn(|| panic!("elsewhere")).join()).is_err());
        assert_eq!(words.get(), None);
        assert!(telling(&words, || fails("index 9")).is_err());
        assert_eq!(words.get(), Some("index 9"));
        assert!(OF_THREAD.with_borrow(Option::is_none));
    }
}
