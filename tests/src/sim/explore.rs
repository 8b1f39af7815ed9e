//! Drives the real engines through every interleaving with a simulated world, or through random ones.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::marker::PhantomData;

use cgleaf::group::engine::{Answer, Destroy, Doubt, Refusal};
use cgleaf::group::gc::{Gc, Judgement};
use cgleaf::group::guards::Guards;

use super::kernel::{History, Property, SimKernel};
use super::world::{Config, Move, World};

/// Frozen looks of a simulated gc: the code's twenty would only repeat these. (A trace is held to the model's twenty.)
pub const SIM_GC_LOOKS: u8 = if cfg!(feature = "trace") { 20 } else { 3 };

/// No engine takes more steps than this: five judgements of at most some twenty processes each, and the wait.
const LONGEST_RUN: u32 = 2_000;

#[derive(Clone, PartialEq, Eq, Hash)]
enum Machine<G: Guards> {
    Destroy(Destroy<G>),
    Gc(Gc<G, SIM_GC_LOOKS>),
}

#[cfg(feature = "trace")]
impl<G: Guards> Machine<G> {
    fn actor(&self, index: usize) -> String {
        let name = if matches!(self, Machine::Destroy(_)) {
            "destroy"
        } else {
            "gc"
        };
        format!("{name}-{index}")
    }
}

/// What an engine has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answered {
    /// A destroy.
    Destroy(Answer),
    /// A gc.
    Gc(Judgement),
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Engine<G: Guards> {
    machine: Machine<G>,
    history: History,
    answered: Option<Answered>,
}

/// The world and the engines in it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct State<G: Guards> {
    world: World,
    engines: Vec<Engine<G>>,
}

/// One thing that happens: in the world, or a step of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening {
    /// In the world.
    World(Move),
    /// A step of the engine of this index.
    Engine(usize),
}

impl<G: Guards> State<G> {
    /// The beginning.
    pub fn new(config: &Config) -> State<G> {
        let destroy = || Machine::Destroy(Destroy::default());
        let gc = || Machine::Gc(Gc::default());
        let machines = (0..config.destroyers)
            .map(|_| destroy())
            .chain((0..config.collectors).map(|_| gc()));
        let engine = |machine| Engine {
            machine,
            history: History::default(),
            answered: None,
        };
        State {
            world: World::new(config),
            engines: machines.map(engine).collect(),
        }
    }

    /// Have all engines answered?
    pub fn is_over(&self) -> bool {
        self.engines.iter().all(|engine| engine.answered.is_some())
    }

    /// What the engines answered so far.
    pub fn answers(&self) -> impl Iterator<Item = Answered> {
        self.engines.iter().filter_map(|engine| engine.answered)
    }

    /// Everything that may happen now. Empty when the engines are done.
    pub fn happenings(&self, config: &Config) -> Vec<Happening> {
        if self.is_over() {
            return Vec::new();
        }
        let mut all: Vec<Happening> = self
            .world
            .moves(config)
            .into_iter()
            .map(Happening::World)
            .collect();
        let waiting = self
            .engines
            .iter()
            .enumerate()
            .filter(|(_, engine)| engine.answered.is_none());
        all.extend(waiting.map(|(index, _)| Happening::Engine(index)));
        all
    }

    /// Lets it happen; says which property it broke.
    pub fn apply(&mut self, happening: Happening, config: &Config) -> Option<Property> {
        match happening {
            Happening::World(happening) => {
                self.world.apply(happening, config);
                None
            }
            Happening::Engine(index) => self.step(index, config),
        }
    }

    /// One step of an engine, and those readings after it that come out the same whenever they are made: of a process
    /// that has ended. (What happens in the world before one of those might as well happen after it.)
    fn step(&mut self, index: usize, config: &Config) -> Option<Property> {
        loop {
            let broken = self.single_step(index, config);
            if broken.is_some() || !self.next_reading_is_settled(index) {
                return broken;
            }
        }
    }

    fn next_reading_is_settled(&self, index: usize) -> bool {
        let next = match &self.engines[index].machine {
            Machine::Destroy(destroy) => destroy.next_read(),
            Machine::Gc(gc) => gc.next_read(),
        };
        next.is_some_and(|pid| !self.world.lives(pid.get()))
    }

    fn single_step(&mut self, index: usize, config: &Config) -> Option<Property> {
        let engine = &mut self.engines[index];
        let mut kernel: SimKernel<'_, G> = SimKernel {
            config,
            world: &mut self.world,
            history: &mut engine.history,
            broken: None,
            guards: PhantomData,
            #[cfg(feature = "trace")]
            actor: engine.machine.actor(index),
        };
        let answered = match &mut engine.machine {
            Machine::Destroy(destroy) => destroy.step(&mut kernel).map(Answered::Destroy),
            Machine::Gc(gc) => gc.step(&mut kernel).map(Answered::Gc),
        };
        let broken = kernel.broken;
        if matches!(engine.machine, Machine::Destroy(_)) {
            // The record says `destroying` before the engine does anything; from here on gc keeps its hands off it.
            self.world.destroying = true;
        }
        engine.answered = answered;
        broken.or_else(|| self.broken_by_answer(index, config))
    }

    fn broken_by_answer(&self, index: usize, config: &Config) -> Option<Property> {
        let engine = &self.engines[index];
        let live = self.world.ours_live();
        let settled = engine.history.owes_nothing();
        let broken = match engine.answered? {
            Answered::Destroy(Answer::Ended) if live => Some(Property::DestroyedProgramStopped),
            Answered::Destroy(
                Answer::Ended | Answer::Alive(Doubt::NotProven | Doubt::NotEndedYet),
            ) if !settled => Some(Property::FreezesUnseenGroup),
            Answered::Destroy(Answer::Refused(Refusal::Unproven)) if live => {
                Some(Property::RefusesOnlyForeign)
            }
            Answered::Gc(Judgement::Over) if live => Some(Property::GcKeepsRunning),
            Answered::Gc(Judgement::Over) if !engine.history.froze && !config.rebooted => {
                Some(Property::GcProbesUnseenGroup)
            }
            _ => None,
        };
        let left_frozen = self.is_over() && self.world.held() && !self.world.user_stop;
        broken.or(left_frozen.then_some(Property::NotLeftFrozen))
    }
}

/// How an exploration came out.
#[derive(Debug)]
pub struct Exploration {
    /// Distinct states seen.
    pub states: usize,
    /// Steps from one state to another that were tried.
    pub transitions: usize,
    /// The longest way.
    pub depth: usize,
    /// A property that broke, and how it came to that.
    pub broken: Option<(Property, Vec<Happening>)>,
    /// Every answer that some interleaving gives.
    pub answers: HashSet<Answered>,
}

fn fingerprint(value: &impl Hash) -> u128 {
    let half = |salt: u64| {
        let mut hasher = DefaultHasher::new();
        salt.hash(&mut hasher);
        value.hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(1) << 64 | half(2)
}

/// Every interleaving of one configuration, states that were seen before left out.
pub fn explore<G: Guards>(config: &Config, tolerated: &[Property]) -> Exploration {
    let start: State<G> = State::new(config);
    let mut seen = HashSet::from([fingerprint(&start)]);
    let mut result = Exploration {
        states: 1,
        transitions: 0,
        depth: 0,
        broken: None,
        answers: HashSet::new(),
    };
    let mut stack = vec![(start.happenings(config), start)];
    let mut path: Vec<Happening> = Vec::new();
    while let Some((happenings, state)) = stack.last_mut() {
        let Some(happening) = happenings.pop() else {
            stack.pop();
            path.pop();
            continue;
        };
        let mut next = state.clone();
        result.transitions += 1;
        if let Some(broken) = next.apply(happening, config)
            && !tolerated.contains(&broken)
        {
            path.push(happening);
            result.broken = Some((broken, path));
            return result;
        }
        if seen.insert(fingerprint(&next)) {
            result.states += 1;
            result.answers.extend(next.answers());
            path.push(happening);
            result.depth = result.depth.max(path.len());
            stack.push((next.happenings(config), next));
        }
    }
    result
}

/// A small generator of numbers that are the same on every machine (splitmix64).
pub struct Seeded(pub u64);

impl Seeded {
    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        usize::try_from(mixed % u64::try_from(bound).unwrap_or(u64::MAX)).unwrap_or(0)
    }
}

/// One random interleaving, to its end. `eager` is how many times out of 8 the world moves before an engine does.
pub fn random_run<G: Guards>(
    config: &Config,
    random: &mut Seeded,
    eager: usize,
) -> Result<Vec<Answered>, Property> {
    let mut state: State<G> = State::new(config);
    let mut engine_steps = 0;
    while !state.is_over() {
        let (world, engines): (Vec<_>, Vec<_>) = state
            .happenings(config)
            .into_iter()
            .partition(|happening| matches!(happening, Happening::World(_)));
        let choices = if !world.is_empty() && random.below(8) < eager {
            world
        } else {
            engines
        };
        let happening = choices[random.below(choices.len())];
        if matches!(happening, Happening::Engine(_)) {
            engine_steps += 1;
        }
        if let Some(broken) = state.apply(happening, config) {
            return Err(broken);
        }
        if engine_steps > LONGEST_RUN {
            return Err(Property::EveryRunEnds);
        }
    }
    Ok(state.answers().collect())
}
