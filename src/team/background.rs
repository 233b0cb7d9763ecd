//! Work in the background.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use super::{SharedState, Team, locked};

/// Work that another member leads while the caller does something else: the team is away with it. Alone, it is done at once.
pub struct BackgroundTask<R> {
    shared: Arc<SharedState>,
    done: Arc<Mutex<Option<(Team, R)>>>,
}

impl Team {
    pub fn spawn<R: Send + 'static>(self, work: impl FnOnce(&Self) -> R + Send + 'static) -> BackgroundTask<R> {
        let (shared, members) = (Arc::clone(&self.shared), self.members);
        let done = Arc::new(Mutex::new(None));
        let end = Arc::clone(&done);
        let task = move || {
            let result = work(&self);
            let shared = Arc::clone(&self.shared);
            // Within the lock: once it is free the team has another leader, who calls too.
            let mut end = locked(&end);
            *end = Some((self, result));
            shared.signal();
        };
        if members == 1 {
            task();
        } else {
            *locked(&shared.background) = Some(Box::new(task));
            shared.signal();
        }
        BackgroundTask { shared, done }
    }

    /// Has whoever waits for an errand look again.
    pub fn notify(&self) {
        self.shared.signal();
    }
}

impl<R> BackgroundTask<R> {
    /// The team, and what came of it. Who waits takes part.
    pub fn wait(self) -> (Team, R) {
        self.until(|| locked(&self.done).take())
    }

    /// Returns once something is so, which the errand's leader tells with [`Team::notify`], or at its end.
    pub fn wait_for(&self, so: impl Fn() -> bool) {
        self.until(|| (so() || locked(&self.done).is_some()).then_some(()));
    }

    fn until<T>(&self, look: impl Fn() -> Option<T>) -> T {
        let posted = &self.shared.posted.0;
        loop {
            let seen = posted.load(Ordering::Acquire);
            if let Some(found) = look() {
                return found;
            }
            // The first place is that of the member who leads.
            self.shared.help(self.shared.queues.len() - 1);
            self.shared.await_change(posted, seen);
        }
    }
}
