//! The link thread: the only one that calls MPI. Moves messages and notices until it is told to end.

use super::desk::{Desk, Key, Order, Outgoing};
use super::landing::Slot;
use super::library::{Arrival, Inbound, Library, LibraryError};
use super::options::Options;
use super::outbox::{NOTICES, News, Outbox};
use super::transfer::{Context, Receiving, Sending, Step, Turn};
use super::wire::{Notice, Stage};
use crate::CommError;
use crate::deadline::Standing;
use crate::world::{Cause, World};
use ringattn_core::Rank;
use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between two looks while payloads are under way.
const BUSY: Duration = Duration::from_micros(50);
/// While only envelopes are awaited.
const WAITING: Duration = Duration::from_micros(150);
/// While envelopes have been awaited for longer than `LONG`: a step is being computed somewhere.
const PATIENT: Duration = Duration::from_micros(500);
const LONG: Duration = Duration::from_millis(20);
/// While nothing is awaited but notices.
const IDLE: Duration = Duration::from_millis(1);
/// How often the launcher is looked for.
const LAUNCHER: Duration = Duration::from_millis(100);

/// The state of the link thread.
pub(super) struct Link {
    library: Library,
    desk: Arc<Desk>,
    options: Options,
    rank: Rank,
    /// How often to send notices.
    period: Duration,
    sends: Vec<Sending>,
    receives: Vec<Receiving>,
    outboxes: Vec<Outbox>,
    notices: Vec<(Rank, Inbound)>,
    /// The run that the sequence numbers belong to.
    numbered: u64,
    sent: HashMap<Key, u64>,
    received: HashMap<Key, u64>,
    beats: u64,
    told: Instant,
    /// When something was last under way.
    moved: Instant,
    launcher: Launcher,
    has_failed: bool,
}

/// The process that started this one.
struct Launcher {
    process: Option<rustix::process::Pid>,
    looked: Instant,
}

/// What the link thread reads from the desk in one look.
struct View {
    context: Option<Context>,
    number: u64,
    stage: Stage,
    cause: Option<Cause>,
    order: Option<Order>,
    outgoing: Vec<Outgoing>,
    keys: Vec<Key>,
}

impl Link {
    pub(super) fn new(
        library: Library,
        desk: Arc<Desk>,
        options: Options,
        period: Duration,
    ) -> Self {
        let rank = library.rank();
        let peers = (0..library.size()).map(Rank).filter(|peer| *peer != rank);
        let now = Instant::now();
        Self {
            outboxes: peers.map(Outbox::new).collect(),
            library,
            desk,
            options,
            rank,
            period,
            sends: Vec::new(),
            receives: Vec::new(),
            notices: Vec::new(),
            numbered: 0,
            sent: HashMap::new(),
            received: HashMap::new(),
            beats: 0,
            told: now,
            moved: now,
            launcher: Launcher { process: rustix::process::getppid(), looked: now },
            has_failed: false,
        }
    }

    /// The life of the link thread.
    pub(super) fn work(mut self) {
        loop {
            let view = self.view();
            if let Some(Order::Abort(code)) = view.order {
                self.library.abort(code);
            }
            let world = view.context.as_ref().map(|context| Arc::clone(&context.world));
            let notice = self.notice(&view);
            let has_posted = !view.keys.is_empty();
            let ends = view.order == Some(Order::Finalize);
            // Unwind safe: after a panic (of a message's conversion) the run is ended, and what is
            // shared lies behind locks whose contents are valid after every statement.
            let looked = catch_unwind(AssertUnwindSafe(|| self.look(view, &notice)));
            let looked = looked.unwrap_or_else(|_| Err(LibraryError::panicked()));
            if let (Err(error), Some(world)) = (looked, &world) {
                self.fail(world, &error);
            }
            self.look_for_launcher(world.as_deref());
            if ends && self.is_quiet(News::of(&notice)) {
                break;
            }
            let period = self.pace(has_posted);
            self.desk.pause(period);
        }
        self.library.finalize();
        self.desk.tell_rank(|state| state.has_ended = true);
    }

    fn view(&self) -> View {
        let mut state = self.desk.lock();
        state.peers.begin_look(Instant::now());
        let (number, stage, order) = (state.number, state.stage, state.order);
        let (rank, cause) = (self.rank, state.cause.clone());
        let Some(run) = &mut state.run else {
            let (outgoing, keys) = (Vec::new(), Vec::new());
            return View { context: None, number, stage, cause, order, outgoing, keys };
        };
        let context = Context {
            number,
            rank,
            world: Arc::clone(&run.world),
            checksum: Arc::clone(&run.checksum),
        };
        if let Some(message) = run.last_words.get().filter(|_| !run.world.has_ended()) {
            let (culprit, message) = (self.rank, message.to_owned());
            run.world.abort(Cause::Panicked { culprit, message });
        }
        let outgoing = std::mem::take(&mut run.outgoing);
        let keys = run.posted.keys().copied().collect();
        View { context: Some(context), number, stage, cause, order, outgoing, keys }
    }

    /// What this rank says of itself. Between runs it counts its notices.
    fn notice(&self, view: &View) -> Notice {
        use crate::deadline::Observe;
        let world = view.context.as_ref().map(|context| &context.world);
        let between_runs = Standing { count: self.beats, waiting_for: None };
        Notice {
            run: view.number,
            standing: world.map_or(between_runs, |world| world.standing(self.rank)),
            stage: view.stage,
            cause: world.and_then(|world| world.cause()).or_else(|| view.cause.clone()),
        }
    }

    /// One round of everything, whatever fails, so that the peers that are left still hear why.
    /// Farewells are believed last, after what was sent before them.
    fn look(&mut self, view: View, notice: &Notice) -> Result<(), LibraryError> {
        let told = self.tell(notice);
        let heard = self.hear();
        let begun = match &view.context {
            Some(context) => self.begin(context, view.outgoing, &view.keys),
            None => Ok(()),
        };
        let sent = self.progress_sends();
        let received = self.progress_receives();
        let drained = if let Some(context) = &view.context {
            self.desk.lock().peers.apply(context.number, &context.world);
            Ok(())
        } else if view.stage == Stage::Finished {
            self.drain()
        } else {
            Ok(())
        };
        told.and(heard).and(begun).and(sent).and(received).and(drained)
    }

    /// Starts the messages that were sent and those that have come for posted receives.
    fn begin(
        &mut self,
        context: &Context,
        outgoing: Vec<Outgoing>,
        keys: &[Key],
    ) -> Result<(), LibraryError> {
        if context.number != self.numbered {
            self.numbered = context.number;
            self.sent.clear();
            self.received.clear();
        }
        for outgoing in outgoing {
            self.send(context, outgoing)?;
        }
        keys.iter().try_for_each(|key| self.match_posted(context, *key))
    }

    /// Takes a message apart and sends its envelope.
    fn send(&mut self, context: &Context, outgoing: Outgoing) -> Result<(), LibraryError> {
        let Outgoing { to, tag, pack, matched } = outgoing;
        let number = self.sent.entry((to, tag)).or_default();
        let sequence = *number;
        *number += 1;
        #[cfg_attr(not(feature = "fault-injection"), allow(unused_mut))]
        let mut packet = pack();
        let envelope = context.announce((to, tag), sequence, &packet, self.options.checksum);
        #[cfg(feature = "fault-injection")]
        if let Some(fault) = self.options.fault
            && (fault.to, fault.tag, fault.sequence) == (to, tag, sequence)
        {
            let mut bytes = packet.payload.to_vec();
            bytes.last_mut().into_iter().for_each(|byte| *byte ^= 1);
            packet.payload = bytes.into();
        }
        let how = (self.options.piece, matched);
        let context = context.clone();
        self.sends.push(Sending::start(&self.library, context, envelope, packet.payload, how)?);
        Ok(())
    }

    /// Takes the envelopes that have come for the receives posted with `key`.
    fn match_posted(&mut self, context: &Context, key: Key) -> Result<(), LibraryError> {
        let (from, tag) = key;
        while self.is_posted(key) {
            let Some(arrival) = self.library.probe(Some(from), Some(tag.0))? else { break };
            let landing = self.take_posted(key);
            if let Some(landing) = &landing {
                landing.matched();
            }
            self.receives.push(Receiving::start(arrival, context.clone(), landing)?);
        }
        Ok(())
    }

    fn is_posted(&self, key: Key) -> bool {
        let state = self.desk.lock();
        state.run.as_ref().is_some_and(|run| run.posted.get(&key).is_some_and(|q| !q.is_empty()))
    }

    /// `None` when the request was given up after its message had been found: the message is lost.
    fn take_posted(&self, key: Key) -> Option<Arc<dyn Slot>> {
        self.desk.lock().run.as_mut()?.posted.get_mut(&key)?.pop_front()
    }

    /// Puts back a receive that a message of another run had matched, unless its request is gone.
    fn repost(&self, key: Key, landing: Arc<dyn Slot>) {
        let mut state = self.desk.lock();
        if landing.repost()
            && let Some(run) = &mut state.run
        {
            run.posted.entry(key).or_default().push_front(landing);
        }
    }

    fn progress_sends(&mut self) -> Result<(), LibraryError> {
        let (mut later, mut first) = (HashSet::new(), Ok(()));
        self.sends.retain_mut(|sending| {
            let turn = if later.contains(&sending.key) { Turn::Later } else { Turn::Now };
            match sending.progress(&self.library, turn) {
                Ok(Turn::Now) => {}
                Ok(Turn::Later) => drop(later.insert(sending.key)),
                Err(error) => {
                    keep_first(&mut first, error);
                    return false;
                }
            }
            !sending.is_done()
        });
        first
    }

    fn progress_receives(&mut self) -> Result<(), LibraryError> {
        let (mut later, mut first) = (HashSet::new(), Ok(()));
        let mut stale = Vec::new();
        self.receives.retain_mut(|receiving| {
            let key = receiving.key;
            let turn = if later.contains(&key) { Turn::Later } else { Turn::Now };
            let how = (self.options.piece, self.received.entry(key).or_default());
            match receiving.progress(&self.library, turn, how) {
                Ok((next, step)) => {
                    if next == Turn::Later {
                        later.insert(key);
                    }
                    match step {
                        Step::Pending => {}
                        Step::Stale(landing) => stale.push((key, landing)),
                        Step::Failed(error) => receiving.world().abort(Cause::World(error)),
                    }
                }
                Err(error) => {
                    keep_first(&mut first, error);
                    return false;
                }
            }
            !receiving.is_done()
        });
        stale.into_iter().for_each(|(key, landing)| self.repost(key, landing));
        first
    }

    /// Sends this rank's notice to the peers that it is due for.
    fn tell(&mut self, notice: &Notice) -> Result<(), LibraryError> {
        let is_due = self.told.elapsed() >= self.period;
        if is_due {
            self.told = Instant::now();
            self.beats += 1;
        }
        let (news, letter) = (News::of(notice), notice.write());
        let tell = |outbox: &mut Outbox| outbox.tell(&self.library, (news, &letter), is_due);
        self.outboxes.iter_mut().map(tell).fold(Ok(()), Result::and)
    }

    /// Receives the notices that have come.
    fn hear(&mut self) -> Result<(), LibraryError> {
        while let Some(arrival) = self.library.probe(None, Some(NOTICES.0))? {
            self.take_notice(arrival)?;
        }
        let mut heard = Vec::new();
        for (from, inbound) in &mut self.notices {
            inbound.progress(&self.library)?;
            if inbound.is_done() {
                let call = "reading a notice";
                let unreadable = |reason: super::wire::Unreadable| LibraryError {
                    call,
                    reason: format!("rank {from} sent {reason}"),
                };
                heard.push((*from, Notice::read(inbound.arrived()).map_err(unreadable)));
            }
        }
        self.notices.retain(|(_, inbound)| !inbound.is_done());
        for (from, notice) in heard {
            let notice = notice?;
            self.desk.tell_rank(|state| state.peers.hear(from, notice, Instant::now()));
        }
        Ok(())
    }

    fn take_notice(&mut self, arrival: Arrival) -> Result<(), LibraryError> {
        self.notices.push((arrival.from, arrival.receive()?));
        Ok(())
    }

    /// Receives and drops what was sent but never received, so that its senders can end.
    fn drain(&mut self) -> Result<(), LibraryError> {
        while let Some(arrival) = self.library.probe(None, None)? {
            if arrival.tag == NOTICES.0 {
                self.take_notice(arrival)?;
            } else {
                let world = Arc::new(World::new(self.library.size(), self.period));
                let context =
                    Context { number: 0, rank: self.rank, world, checksum: Arc::default() };
                self.receives.push(Receiving::start(arrival, context, None)?);
            }
        }
        Ok(())
    }

    /// Whether nothing is under way and every peer has this rank's last news.
    fn is_quiet(&self, news: News) -> bool {
        self.sends.is_empty()
            && self.receives.is_empty()
            && self.notices.is_empty()
            && self.outboxes.iter().all(|outbox| outbox.has_told(news))
    }

    /// Ends the run after the first failure of the library; further ones follow from it.
    fn fail(&mut self, world: &World, error: &LibraryError) {
        if !self.has_failed {
            self.has_failed = true;
            let (rank, reason) = (self.rank, format!("MPI: {error}"));
            world.abort(Cause::World(CommError::Transport { rank, reason }));
        }
    }

    /// Stops the run when the process that started this one is gone: nobody else would.
    fn look_for_launcher(&mut self, world: Option<&World>) {
        if self.launcher.looked.elapsed() < LAUNCHER {
            return;
        }
        self.launcher.looked = Instant::now();
        if rustix::process::getppid() != self.launcher.process {
            self.desk.tell_rank(|state| state.launcher_is_gone = true);
            if let Some(world) = world {
                let reason = "the launcher has ended".to_owned();
                world.abort(Cause::World(CommError::Stopped { reason }));
            }
        }
    }

    /// How long to sleep.
    fn pace(&mut self, has_posted: bool) -> Duration {
        if !self.receives.is_empty() || self.sends.iter().any(Sending::is_matched) {
            self.moved = Instant::now();
            return BUSY;
        }
        let awaits = has_posted || !self.sends.is_empty();
        match (awaits, self.moved.elapsed() < LONG) {
            (true, true) => WAITING,
            (true, false) => PATIENT,
            (false, _) => IDLE,
        }
    }
}

fn keep_first(first: &mut Result<(), LibraryError>, error: LibraryError) {
    if first.is_ok() {
        *first = Err(error);
    }
}
