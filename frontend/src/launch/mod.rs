//! Starting a program in a session of its own (DESIGN 4): the helper found or started, the id claimed, the leaf made,
//! the program enrolled before it is executed.

mod adopt;
mod child;
mod claim;
mod clean;
mod end;
mod exec;
mod failure;
mod gate;
mod group_tier;
mod helper;
mod last_words;
mod leaf;
mod lease;
mod log;
mod logout;
mod lone_sockets;
mod machine;
mod message;
mod named_directory;
mod plan;
mod program;
mod run;
mod scope;
mod signals;
mod start;
mod start_helper;
mod take_over;
mod waker;
mod watch;

pub use adopt::{Adoption, adopt};
pub use claim::Identity;
pub use exec::exec;
pub use failure::{BEFORE_THE_PROGRAM, Failure, NOT_EXECUTABLE, NOT_FOUND};
pub use helper::connect_or_start;
pub(crate) use helper::{empty_leaf, start_own};
#[cfg(feature = "cli")]
pub(crate) use last_words::{ENDED_WITHOUT_A_WORD, NEITHER_ANSWERS_NOR_ENDS};
pub use lease::Lease;
pub use logout::survives_logout;
#[cfg(feature = "cli")]
pub(crate) use logout::{ends_with_it, lingers, who_logs_out};
#[cfg(feature = "cli")]
pub(crate) use machine::{is_filtered, takes_connections, tool as system_tool};
pub(crate) use named_directory::directory_of;
pub use plan::{Plan, Site, TierWanted};
pub use program::{MARK_VARIABLE, Program, SESSION_VARIABLE};
pub use run::{Leftovers, RunOptions, TIMED_OUT, run};
pub use start::start;
pub use start_helper::this_program_can_serve;
pub(crate) use take_over::is_stranded;
