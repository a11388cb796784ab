//! A finding before it is written out.

use std::hash::{Hash, Hasher};

use cutape_model::{ObjectId, Site};
use rustc_hash::FxHasher;

use super::Deferral;
use crate::finding::Severity;
use crate::reported::Key;
use crate::state::State;

/// What the program does wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mistake {
    /// It makes the call that the finding is about.
    ThisCall,
    /// It made that call, which later ones show to be wrong.
    Earlier(Site),
    /// It calls the function, wherever.
    Function,
    /// Whatever it calls.
    Process,
}

/// A finding before it is written out.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) rule: &'static str,
    /// Where it differs from the catalogue's.
    pub(crate) severity: Option<Severity>,
    /// It rests on an assumption, also if the rule's findings usually do not.
    pub(crate) is_assumed: bool,
    /// Replays have shown it.
    pub(crate) is_proven: bool,
    pub(crate) title: String,
    pub(crate) message: String,
    pub(crate) objects: Vec<ObjectId>,
    pub(crate) chain: Vec<String>,
    /// Distinguishes findings of one rule at one place of the program.
    pub(crate) subject: u64,
    /// Reported at the end, unless a later call shows that it was no mistake.
    pub(crate) deferral: Option<Deferral>,
    /// It says what a finding that was put off would say.
    pub(crate) replaces: Option<Deferral>,
    /// Where the program makes the mistake.
    pub(crate) mistake: Mistake,
    /// The call that a finding at the end is about.
    pub(crate) site: Option<Site>,
}

impl Draft {
    pub(crate) fn new(
        rule: &'static str,
        title: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            rule,
            severity: None,
            is_assumed: false,
            is_proven: false,
            title: title.into(),
            message: message.into(),
            objects: Vec::new(),
            chain: Vec::new(),
            subject: 0,
            deferral: None,
            replaces: None,
            mistake: Mistake::ThisCall,
            site: None,
        }
    }

    /// What it has in common with those that repeat it: the call that is wrong, and objects that
    /// were created by the same calls.
    pub(crate) fn key(&self, state: &State, this: Site) -> Key {
        let mut hash = FxHasher::default();
        let mut add = |site: Site| {
            (site.function, site.caller, site.stack).hash(&mut hash);
        };
        add(match self.mistake {
            Mistake::ThisCall => this,
            Mistake::Earlier(site) => site,
            Mistake::Function => Site {
                caller: 0,
                stack: 0,
                ..this
            },
            Mistake::Process => Site {
                function: "",
                caller: 0,
                stack: 0,
                ..this
            },
        });
        let objects = self.objects.iter().filter_map(|&id| state.objects.get(id));
        objects.for_each(|object| add(object.created));
        if !matches!(self.mistake, Mistake::Earlier(_)) {
            self.subject.hash(&mut hash);
        }
        // It is no repetition of one that was only assumed.
        self.is_proven.hash(&mut hash);
        (self.rule, hash.finish())
    }

    /// What it says, for a rule that asks [`Check::is_reported`] first.
    pub(crate) fn text(mut self, title: impl Into<String>, message: impl Into<String>) -> Self {
        (self.title, self.message) = (title.into(), message.into());
        self
    }

    pub(crate) fn severity(mut self, severity: Severity) -> Self {
        self.severity = Some(severity);
        self
    }

    /// A kernel's parameter is taken for a pointer that the kernel follows.
    pub(crate) fn assumed(mut self) -> Self {
        self.is_assumed = true;
        self
    }

    /// Replays have shown it: see [`crate::ProvenPair`].
    pub(crate) fn proven(mut self) -> Self {
        (self.is_proven, self.severity) = (true, Some(Severity::Error));
        self
    }

    pub(crate) fn object(mut self, id: ObjectId) -> Self {
        self.subject ^= u64::from(id.number()).rotate_left(17) + 1;
        if !self.objects.contains(&id) {
            self.objects.push(id);
        }
        self
    }

    /// The mistake is an earlier call, and is reported once.
    pub(crate) fn culprit(mut self, site: Site) -> Self {
        self.mistake = Mistake::Earlier(site);
        self
    }

    /// One finding about a function is enough.
    pub(crate) fn once(mut self) -> Self {
        self.mistake = Mistake::Function;
        self
    }

    /// One finding about a process is enough.
    pub(crate) fn once_in_process(mut self) -> Self {
        self.mistake = Mistake::Process;
        self
    }

    /// Names an object that does not tell findings of one place apart: a loop may use many.
    pub(crate) fn about(mut self, id: ObjectId) -> Self {
        if !self.objects.contains(&id) {
            self.objects.push(id);
        }
        self
    }

    pub(crate) fn deferred(mut self, until: Deferral) -> Self {
        self.deferral = Some(until);
        self
    }

    pub(crate) fn replaces(mut self, deferral: Deferral) -> Self {
        self.replaces = Some(deferral);
        self
    }

    pub(crate) fn site(mut self, site: Site) -> Self {
        self.site = Some(site);
        self
    }

    pub(crate) fn chain(mut self, chain: Vec<String>) -> Self {
        self.chain = chain;
        self
    }

    pub(crate) fn subject(mut self, subject: u64) -> Self {
        self.subject ^= subject.rotate_left(7) + 1;
        self
    }
}
