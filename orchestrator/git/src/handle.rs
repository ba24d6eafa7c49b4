//! Handles of libgit2 on repositories. To open one takes about 0.3 ms, because configurations are
//! read and packs are listed: an operation that needs several keeps them.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

use base::failure::Result;

/// The handles that a thread keeps.
#[derive(Default)]
struct KeptHandles {
    /// The number of operations in progress that keep handles, one within the other.
    operations: usize,
    handles: Vec<Rc<git2::Repository>>,
}

thread_local! {
    static KEPT: RefCell<KeptHandles> = RefCell::default();
}

/// Runs an operation in which this thread opens each repository once. At the end the handles are
/// closed, with the settings and objects that they remember.
pub fn keep_open<R>(operation: impl FnOnce() -> R) -> R {
    KEPT.with_borrow_mut(|kept| kept.operations += 1);
    let _end = OperationEnd;
    operation()
}

/// Closes the handles at the end of the outermost operation.
struct OperationEnd;

impl Drop for OperationEnd {
    fn drop(&mut self) {
        let closed = KEPT.with_borrow_mut(|kept| {
            kept.operations -= 1;
            if kept.operations == 0 { std::mem::take(&mut kept.handles) } else { Vec::new() }
        });
        drop(closed);
    }
}

/// Returns the handle on a git directory: the kept one, or a new one.
pub(crate) fn get(
    git_dir: &Path,
    open: impl FnOnce() -> Result<git2::Repository>,
) -> Result<Rc<git2::Repository>> {
    let is_same = |handle: &&Rc<git2::Repository>| handle.path() == git_dir;
    if let Some(handle) = KEPT.with_borrow(|kept| kept.handles.iter().find(is_same).cloned()) {
        return Ok(handle);
    }
    let handle = Rc::new(open()?);
    KEPT.with_borrow_mut(|kept| {
        if kept.operations > 0 {
            kept.handles.push(Rc::clone(&handle));
        }
    });
    Ok(handle)
}
