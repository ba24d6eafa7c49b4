//! Makes libgit2 run the trusted filters wherever it converts between files and blobs: when it writes
//! files, stages them and compares them.

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Once};

use libgit2_sys::git_buf;

use crate::filter_program::{self, Direction};
use crate::filters::{FilterSet, TrustedFilter, current};

/// `GIT_PASSTHROUGH`: the content stays as it is.
const PASSTHROUGH: c_int = -30;
/// `GIT_ERROR`.
const ERROR: c_int = -1;
/// `GIT_FILTER_DRIVER_PRIORITY`: after line endings and keywords, as in git.
const PRIORITY: c_int = 200;
/// `GIT_FILTER_TO_WORKTREE`.
const TO_WORKTREE: c_uint = 0;

/// `git_filter_source`.
#[repr(C)]
struct Source {
    _private: [u8; 0],
}

/// `git_filter` (version 1), from libgit2's `git2/sys/filter.h`.
#[repr(C)]
struct Registration {
    version: c_uint,
    attributes: *const c_char,
    initialize: Option<unsafe extern "C" fn(*mut Registration) -> c_int>,
    shutdown: Option<unsafe extern "C" fn(*mut Registration)>,
    check: Option<
        unsafe extern "C" fn(
            *mut Registration,
            *mut *mut c_void,
            *const Source,
            *const *const c_char,
        ) -> c_int,
    >,
    apply: Option<
        unsafe extern "C" fn(
            *mut Registration,
            *mut *mut c_void,
            *mut git_buf,
            *const git_buf,
            *const Source,
        ) -> c_int,
    >,
    stream: Option<unsafe extern "C" fn()>,
    cleanup: Option<unsafe extern "C" fn(*mut Registration, *mut c_void)>,
}

/// The filter of one file.
type Payload = (Arc<FilterSet>, TrustedFilter);

#[allow(unsafe_code)] // Functions of libgit2, which is linked, that its bindings lack.
unsafe extern "C" {
    fn git_filter_register(
        name: *const c_char,
        filter: *mut Registration,
        priority: c_int,
    ) -> c_int;
    fn git_filter_source_path(source: *const Source) -> *const c_char;
    fn git_filter_source_mode(source: *const Source) -> c_uint;
}

/// Registers the filters with libgit2, once in a process.
#[allow(unsafe_code)] // libgit2's bindings have no filters.
pub(crate) fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        libgit2_sys::init();
        // It lives as long as the process.
        let registration = Box::leak(Box::new(Registration {
            version: 1,
            attributes: c"filter=*".as_ptr(),
            initialize: None,
            shutdown: None,
            check: Some(check),
            apply: Some(apply),
            stream: None,
            cleanup: Some(cleanup),
        }));
        // SAFETY: the registration and its strings are never freed, and its layout is libgit2's.
        let code = unsafe { git_filter_register(c"studio".as_ptr(), registration, PRIORITY) };
        debug_assert_eq!(code, 0, "libgit2 accepts the filter");
    });
}

/// Takes the files whose `filter` attribute names a trusted filter.
#[allow(unsafe_code)] // A callback of libgit2.
unsafe extern "C" fn check(
    _registration: *mut Registration,
    payload: *mut *mut c_void,
    _source: *const Source,
    values: *const *const c_char,
) -> c_int {
    // SAFETY: libgit2 passes one value for the one attribute of the registration. Values that are
    // not texts (true, false) point to constants, which are texts as well.
    let name = unsafe { if (*values).is_null() { None } else { Some(CStr::from_ptr(*values)) } };
    let Some(set) = current() else { return PASSTHROUGH };
    let name = name.and_then(|name| name.to_str().ok());
    let Some(filter) = name.and_then(|name| set.filters.get(name)).cloned() else {
        return PASSTHROUGH;
    };
    let boxed: Box<Payload> = Box::new((set, filter));
    // SAFETY: libgit2 passes the place of the payload, which `cleanup` frees.
    unsafe { *payload = Box::into_raw(boxed).cast() };
    0
}

/// Converts the content of a file or a blob.
#[allow(unsafe_code)] // A callback of libgit2.
unsafe extern "C" fn apply(
    _registration: *mut Registration,
    payload: *mut *mut c_void,
    target: *mut git_buf,
    content: *const git_buf,
    source: *const Source,
) -> c_int {
    // SAFETY: `check` set the payload; the buffers and the source live during the call.
    let ((set, filter), path, direction, content) = unsafe {
        let payload = &*(*payload).cast::<Payload>();
        let path = CStr::from_ptr(git_filter_source_path(source)).to_bytes();
        let direction = match git_filter_source_mode(source) {
            TO_WORKTREE => Direction::Smudge,
            1.. => Direction::Clean,
        };
        let content = match (*content).ptr.is_null() {
            true => &[],
            false => std::slice::from_raw_parts((*content).ptr.cast::<u8>(), (*content).size),
        };
        (payload, Path::new(OsStr::from_bytes(path)), direction, content)
    };
    match filter_program::convert(set, filter, direction, path, content) {
        Ok(Some(converted)) => {
            // SAFETY: libgit2 copies the bytes into its own buffer.
            unsafe { libgit2_sys::git_buf_set(target, converted.as_ptr().cast(), converted.len()) }
        }
        Ok(None) => PASSTHROUGH,
        Err(reason) => {
            let reason = CString::new(reason.replace('\0', " ")).unwrap_or_default();
            let class = libgit2_sys::GIT_ERROR_FILTER as c_int;
            // SAFETY: libgit2 copies the text.
            unsafe { libgit2_sys::git_error_set_str(class, reason.as_ptr()) };
            ERROR
        }
    }
}

/// Frees what `check` made.
#[allow(unsafe_code)] // A callback of libgit2.
unsafe extern "C" fn cleanup(_registration: *mut Registration, payload: *mut c_void) {
    if !payload.is_null() {
        // SAFETY: it is the box of `check`, and libgit2 calls this once for it.
        drop(unsafe { Box::from_raw(payload.cast::<Payload>()) });
    }
}
