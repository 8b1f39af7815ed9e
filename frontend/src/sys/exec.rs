//! A program that is ready to be executed: everything that execve(2) takes, made beforehand, since a child between fork
//! and exec should not allocate.

use std::ffi::{CStr, CString, c_char};
use std::io;

use super::signals::{Disposition, set_file_size_signal};

/// A file with its arguments and environment.
#[derive(Debug)]
pub(crate) struct Image {
    path: CString,
    arguments: Words,
    environment: Words,
    /// The same as arguments of sh(1), for a script without an interpreter line.
    as_script: Words,
}

const SHELL: &CStr = c"/bin/sh";

/// Strings, and the null-terminated array of pointers to them.
#[derive(Debug)]
struct Words {
    /// What the pointers point to.
    _strings: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl Words {
    fn new(strings: Vec<CString>) -> Self {
        // A CString's bytes stay where they are when the vector that holds it moves.
        let mut pointers: Vec<_> = strings.iter().map(|string| string.as_ptr()).collect();
        pointers.push(std::ptr::null());
        Self {
            _strings: strings,
            pointers,
        }
    }
}

impl Image {
    /// Makes it ready.
    pub(crate) fn new(path: CString, arguments: Vec<CString>, environment: Vec<CString>) -> Self {
        let mut script = vec![SHELL.to_owned(), path.clone()];
        script.extend(arguments.iter().skip(1).cloned());
        Self {
            path,
            arguments: Words::new(arguments),
            environment: Words::new(environment),
            as_script: Words::new(script),
        }
    }

    /// Becomes that program, which keeps every descriptor that is not close-on-exec. A script without an interpreter line
    /// is given to sh(1), as execvp(3) does. It comes back only with an error.
    pub(crate) fn execute(&self) -> io::Error {
        set_file_size_signal(Disposition::Default);
        let mut error = self.execve(&self.path, &self.arguments);
        if error.raw_os_error() == Some(libc::ENOEXEC) {
            error = self.execve(SHELL, &self.as_script);
        }
        set_file_size_signal(Disposition::Ignore);
        error
    }

    /// The same for a program of ours: what the kernel does not execute is damaged, or another machine's, and no script.
    pub(crate) fn execute_no_script(&self) -> io::Error {
        set_file_size_signal(Disposition::Default);
        let error = self.execve(&self.path, &self.arguments);
        set_file_size_signal(Disposition::Ignore);
        error
    }

    /// The file.
    pub(crate) fn path(&self) -> &CStr {
        &self.path
    }

    fn execve(&self, path: &CStr, arguments: &Words) -> io::Error {
        // SAFETY: a C string, and two null-terminated arrays of C strings that live as long as `self`.
        unsafe {
            libc::execve(
                path.as_ptr(),
                arguments.pointers.as_ptr(),
                self.environment.pointers.as_ptr(),
            )
        };
        io::Error::last_os_error()
    }
}
