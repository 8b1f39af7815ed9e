//! A session as `list` and `show` tell it.

use cgleaf_shared::id::BootTime;
use serde_json::{Value, json};

use crate::cli::output::wall_clock;
use crate::launch;
use crate::ops::{Leader, LeafSeen, Look, Reach, Session, State};
use crate::records::Tier;

/// What was found out about a session, once.
pub(in crate::cli) struct View {
    pub(in crate::cli) session: Session,
    pub(super) look: Look,
    pub(super) leader: Option<Leader>,
    pub(super) members: Option<usize>,
}

impl View {
    pub(super) fn of(reach: &Reach, session: Session) -> Self {
        let look = reach.look(&session);
        Self::with(reach, session, look)
    }

    /// Of many, which are looked at together.
    pub(super) fn of_all(reach: &Reach, sessions: Vec<Session>) -> Vec<Self> {
        let looks = reach.look_at_all(&sessions);
        let all = sessions.into_iter().zip(looks);
        all.map(|(session, look)| Self::with(reach, session, look))
            .collect()
    }

    fn with(reach: &Reach, session: Session, look: Look) -> Self {
        Self {
            leader: reach.leader(&session),
            members: reach.count_members(&session, &look),
            look,
            session,
        }
    }

    /// Whether everything that can be told of it is.
    pub(in crate::cli) fn is_told(&self) -> bool {
        let is_counted = self.members.is_some() || self.session.told_tier() != Some(Tier::Cgroup);
        match self.look.state {
            State::Unknown => false,
            State::Running | State::Frozen => is_counted,
            _ => true,
        }
    }

    /// The arguments of the leader, while it lives.
    pub(super) fn argv(&self) -> Vec<String> {
        match self.leader {
            Some(leader) if leader.alive == Some(true) => Reach::argv(leader.process.pid),
            _ => Vec::new(),
        }
    }

    /// How long ago it was made, in short.
    pub(super) fn age(&self) -> String {
        let ago = self
            .session
            .created()
            .and_then(|created| BootTime::now().0.checked_sub(created.0));
        let Some(seconds) = ago.map(|nanoseconds| nanoseconds / 1_000_000_000) else {
            return "?".to_owned();
        };
        match seconds {
            0..60 => format!("{seconds}s"),
            60..3600 => format!("{}m", seconds / 60),
            3600..86400 => format!("{}h", seconds / 3600),
            _ => format!("{}d", seconds / 86400),
        }
    }

    /// As DESIGN 4.1 names the fields.
    pub(super) fn to_json(&self) -> Value {
        let session = &self.session;
        let record = session.record();
        let state = session.listed.as_ref().map(|listed| listed.entry.state);
        json!({
            "session": session.id,
            "name": session.name(),
            "tier": session.told_tier().map(Tier::name),
            "state": self.look.state.name(),
            "leader": self.leader.map(|leader| json!({
                "pid": leader.process.pid,
                "start": leader.process.start,
                "alive": leader.alive,
                "stopped": leader.stopped,
            })),
            "exit": record.and_then(|record| record.exit),
            "leaf": self.leaf_json(),
            "members": self.members,
            "created": session.created().and_then(wall_clock),
            "argv": self.argv(),
            "phase": record.map(|record| record.phase),
            "helper": session.socket(),
            "log": record.and_then(|record| record.log.as_ref()),
            "user_frozen": state.map(|state| state.user_frozen),
            "held": state.map(|state| state.held),
            "ancestor_frozen": state.map(|state| state.ancestor_frozen),
            "poisoned": state.map(|state| state.poisoned),
            "survives_logout": record.and_then(launch::survives_logout),
            "remark": self.look.remark,
        })
    }

    fn leaf_json(&self) -> Option<Value> {
        let attestation = self.session.attestation()?;
        // Where it is in the file system, for whoever wants to look; the path in the hierarchy where it is not here.
        let shown = match &self.look.leaf {
            LeafSeen::Here(dir) => Some(dir.shown().display().to_string()),
            _ => None,
        };
        Some(json!({
            "path": attestation.leaf_path,
            "id": attestation.leaf_id,
            "directory": shown,
        }))
    }
}
