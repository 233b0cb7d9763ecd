//! Background tasks: another member leads the team while the caller does something else.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use super::{SharedState, Team, locked};

/// A task that another member leads, with the team itself, while the caller does something else. A team of one runs the task
/// when it is spawned.
pub struct BackgroundTask<R> {
    shared: Arc<SharedState>,
    done: Arc<Mutex<Option<(Team, R)>>>,
}

impl Team {
    /// Moves the team into a background task. [`BackgroundTask::wait`] gives it back.
    pub fn spawn<R: Send + 'static>(self, work: impl FnOnce(&Self) -> R + Send + 'static) -> BackgroundTask<R> {
        // One that rests would not take the task.
        self.set_active(self.members);
        let (shared, members) = (Arc::clone(&self.shared), self.members);
        let done = Arc::new(Mutex::new(None));
        let end = Arc::clone(&done);
        let task = move || {
            let result = work(&self);
            let shared = Arc::clone(&self.shared);
            // The signal comes while the lock is held: once it is free, the team has another leader, who signals too.
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

    /// Makes a caller that waits for a background task check its condition again.
    pub fn notify(&self) {
        self.shared.signal();
    }
}

impl<R> BackgroundTask<R> {
    /// Waits for the task; returns the team and the task's result. The waiting thread takes part in the task's jobs.
    ///
    /// # Panics
    /// If a member has died.
    pub fn wait(self) -> (Team, R) {
        self.until(|| locked(&self.done).take())
    }

    /// Waits until a condition holds or the task has ended. The task's leader calls [`Team::notify`] when the condition may
    /// have changed. The waiting thread takes part in the task's jobs.
    ///
    /// # Panics
    /// If a member has died.
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
            // The task's leader has the first queue. The caller starts with the last one; sharing it with a server is harmless.
            self.shared.help(self.shared.queues.len() - 1);
            self.shared.await_change(posted, seen);
        }
    }
}
