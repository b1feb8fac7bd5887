//! The pick: candidates, hits, scores, choice and reservation, in one step under the scheduler's lock.

use lmetric_prefix::{BlockKey, PrefixIndex, SharedIndex, SourceId};
use rand::RngCore;
use smallvec::SmallVec;

use crate::{
    HotspotAction, NoEndpoint, Pick, PickRequest, Prompt, Time,
    decisions::{CandidateView, Record},
    endpoint::{Endpoint, Face, SpaceId},
    hotspot::{Arrival, Detector},
    ledger::{self, Reservation, ReservationId, Slab, held_run},
    policy::{Asked, Candidate, Queued, View, draw},
    shadow::{Seen, Shadow},
    state::State,
    sync::checkpoint,
};

/// Buffers that keep their memory from pick to pick.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    candidates: Vec<Candidate>,
    backlog: Vec<Queued>,
    /// One candidate's queue, by age.
    queue: Vec<(ReservationId, Queued)>,
    scores: Vec<f64>,
    filtered: Vec<bool>,
    /// Leading blocks held, for each prompt and candidate (prompt by prompt).
    runs: Vec<u32>,
    /// Tokens held of the first prompt, by candidate.
    held: Vec<u64>,
    /// Hit tokens by candidate, while load alone decides.
    hits: Vec<u64>,
    /// What each candidate's look-ups need: the space that it speaks, and whether its open requests claim blocks.
    spoken: Vec<(Option<SpaceId>, bool)>,
    sources: Vec<SourceId>,
    places: Vec<u32>,
    found: Vec<u32>,
}

impl Scratch {
    fn score(&mut self, state: &mut State, asked: &Asked<'_>, rng: &mut dyn RngCore) {
        let Self {
            candidates,
            backlog,
            scores,
            ..
        } = self;
        scores.clear();
        let view = View {
            asked,
            candidates,
            backlog,
        };
        state.policy.score(&view, scores, rng);
    }

    /// Appends what `endpoint` has to prefill, oldest first; where it stands.
    fn line_up(&mut self, slab: &Slab, endpoint: &Endpoint) -> (u32, u32) {
        self.queue.clear();
        let open = endpoint.open.iter().filter_map(|place| slab.get(*place));
        self.queue.extend(open.filter(|found| found.q > 0).map(|found| {
            let queued = Queued {
                left: small(found.q),
                tokens: small(found.tokens()),
            };
            (found.id, queued)
        }));
        self.queue.sort_unstable_by_key(|(id, _)| *id);
        let from = self.backlog.len() as u32;
        self.backlog.extend(self.queue.iter().map(|(_, queued)| *queued));
        (from, self.backlog.len() as u32)
    }
}

/// Keys and block size of the first prompt's first chain.
fn first_chain<'a>(request: &PickRequest<'a>) -> (&'a [BlockKey], u32) {
    let chain = request.prompts.first().and_then(|prompt| prompt.chains.first());
    chain.map_or((&[], 16), |(_, chain)| (&chain.keys, chain.block_size.get()))
}

/// Chooses and reserves. O(endpoints + look-up), and O(requests in prefill) for a policy that looks into queues.
pub(crate) fn pick(
    state: &mut State,
    index: &SharedIndex,
    request: &PickRequest<'_>,
    now: Time,
    rng: &mut dyn RngCore,
) -> Result<Pick, NoEndpoint> {
    let mut scratch = std::mem::take(&mut state.scratch);
    let picked = pick_with(state, &mut scratch, index, request, now, rng);
    state.scratch = scratch;
    match &picked {
        Ok(_) => state.counters.picks += 1,
        Err(_) => state.counters.refused += 1,
    }
    picked
}

fn pick_with(
    state: &mut State,
    scratch: &mut Scratch,
    index: &SharedIndex,
    request: &PickRequest<'_>,
    now: Time,
    rng: &mut dyn RngCore,
) -> Result<Pick, NoEndpoint> {
    state.refresh_rates(now);
    gather(state, scratch, request, now)?;
    let weight = request.weight.max(1);
    let tokens: u64 = request.prompts.iter().map(|one| u64::from(one.tokens)).sum();

    // the scheduler's lock is held: the overlay stands still while the index is read after it
    checkpoint();
    look_up(state, scratch, &index.read(), request.prompts);

    let (keys, block_tokens) = first_chain(request);
    let asked = Asked {
        weight,
        tokens,
        keys,
        block_tokens,
        session: request.session,
        seconds: now.secs_since(Time::default()) * state.config.pace().rate(1.0),
    };
    scratch.score(state, &asked, rng);
    scratch.filtered.clear();
    scratch.filtered.resize(scratch.candidates.len(), false);
    let class = watch_hotspots(state, scratch, &asked, request, now, rng);

    let filtered = &scratch.filtered;
    let Some((winner, ties)) = draw(&scratch.scores, |at| !filtered[at], rng) else {
        return Err(NoEndpoint::NoneReady);
    };
    let chosen = scratch.candidates[winner];
    let Some(place) = state
        .slab
        .insert(|id| Reservation::new(id, request, &state.spaces, now))
    else {
        let open = state.slab.len();
        return Err(NoEndpoint::LedgerFull { open });
    };
    let Scratch {
        candidates, backlog, ..
    } = &*scratch;
    let view = View {
        asked: &asked,
        candidates,
        backlog,
    };
    state.policy.chosen(&view, winner);
    record(state, scratch, request, &asked, now, winner, ties, class);
    show(state, scratch, request, &asked, now, winner);

    let rates = state.rates();
    let count = scratch.candidates.len();
    let runs = scratch.runs.iter().skip(winner).step_by(count).copied();
    let Some(endpoint) = state.fleet.at_mut(chosen.slot) else {
        return Err(NoEndpoint::NoneReady);
    };
    // its clock may not have been looked at, while nothing but time went by
    state.counters.released_by_rate += ledger::advance(&mut state.slab, endpoint, now, rates);
    ledger::open(&mut state.slab, endpoint, place, runs, chosen.queued, now);
    let Some(reservation) = state.slab.get(place) else {
        return Err(NoEndpoint::NoneReady);
    };
    endpoint.ejection.picked(reservation.id, now);
    let hit_tokens = reservation.predicted_tokens();
    let charged_tokens = tokens - hit_tokens;
    if let Some(kv_use) = &mut endpoint.kv_use {
        kv_use.pledged += charged_tokens;
    }
    state.mean_prompt.add(charged_tokens as f64 / f64::from(weight));
    Ok(Pick {
        reservation: reservation.id,
        endpoint: endpoint.id,
        address: endpoint.spec.address,
        rank: endpoint.spec.rank,
        hit_tokens,
        charged_tokens,
    })
}

/// Candidates in the order of their slots: ready, in the subset, able to serve the adapter, not ejected (unless all are).
fn gather(
    state: &mut State,
    scratch: &mut Scratch,
    request: &PickRequest<'_>,
    now: Time,
) -> Result<(), NoEndpoint> {
    let rates = state.rates();
    let mean_prompt = state.mean_prompt.get();
    let (mut ready, mut allowed, mut able, mut out) = (0_usize, 0_usize, 0_usize, 0_usize);
    let shadow_wants_backlog = state.shadow.as_ref().is_some_and(Shadow::wants_backlog);
    let wants_backlog = state.policy.wants_backlog() || shadow_wants_backlog;
    let asks_endpoints = wants_backlog || request.subset.is_some() || request.lora.is_some();
    scratch.candidates.clear();
    scratch.spoken.clear();
    scratch.backlog.clear();
    let State {
        fleet,
        slab,
        counters,
        ..
    } = state;
    for pass in 0..2 {
        let all_are_out = pass == 1;
        for slot in 0..fleet.slots() {
            fleet.refresh(slot, |endpoint| {
                counters.released_by_rate += ledger::advance(slab, endpoint, now, rates);
                Face::of(endpoint, mean_prompt)
            });
            let Some(face) = fleet.face(slot).filter(|face| face.ready) else {
                continue;
            };
            ready += 1;
            let mut backlog = (0, 0);
            if asks_endpoints || face.maybe_out {
                let Some(endpoint) = fleet.at(face.candidate.slot) else {
                    continue;
                };
                if request
                    .subset
                    .is_some_and(|subset| !subset.allows(endpoint.spec.address))
                {
                    continue;
                }
                allowed += 1;
                if request.lora.is_some_and(|adapter| !endpoint.serves(adapter)) {
                    continue;
                }
                able += 1;
                if !all_are_out && endpoint.ejection.stands_out(now) {
                    out += 1;
                    continue;
                }
                if wants_backlog {
                    backlog = scratch.line_up(slab, endpoint);
                }
            } else {
                allowed += 1;
                able += 1;
            }
            scratch.candidates.push(Candidate {
                backlog,
                ..face.candidate
            });
            scratch.spoken.push((face.space, face.claims));
        }
        if !scratch.candidates.is_empty() || out == 0 {
            break;
        }
    }
    if !scratch.candidates.is_empty() {
        return Ok(());
    }
    Err(match request.lora {
        _ if ready == 0 => NoEndpoint::NoneReady,
        Some(adapter) if allowed > 0 && able == 0 => NoEndpoint::AdapterUnknown {
            adapter: adapter.into(),
        },
        _ => NoEndpoint::SubsetEmpty { ready },
    })
}

/// Fills in what each candidate holds of each prompt, overlay included.
fn look_up(state: &State, scratch: &mut Scratch, index: &PrefixIndex, prompts: &[Prompt]) {
    let count = scratch.candidates.len();
    scratch.runs.clear();
    scratch.runs.resize(count * prompts.len(), 0);
    scratch.held.clear();
    scratch.held.resize(count, 0);
    for (number, prompt) in prompts.iter().enumerate() {
        for (spec, chain) in &prompt.chains {
            let Some(space) = state.spaces.find(spec) else {
                continue;
            };
            let size = chain.block_size.get();
            let most = (chain.keys.len() as u32).min(prompt.tokens.saturating_sub(1) / size);
            look_up_chain(state, scratch, index, &chain.keys, space);
            for (place, run) in scratch.places.iter().zip(&scratch.found) {
                let at = *place as usize;
                scratch.runs[number * count + at] = *run;
                scratch.candidates[at].hit += u64::from((*run).min(most)) * u64::from(size);
                if number == 0 {
                    scratch.held[at] = u64::from(*run) * u64::from(size);
                }
            }
        }
    }
}

/// Fills `places` with the candidates that speak `space`, and `found` with the run that each holds.
fn look_up_chain(
    state: &State,
    scratch: &mut Scratch,
    index: &PrefixIndex,
    keys: &[BlockKey],
    space: SpaceId,
) {
    scratch.places.clear();
    scratch.sources.clear();
    for (place, (candidate, spoken)) in scratch.candidates.iter().zip(&scratch.spoken).enumerate() {
        if spoken.0 == Some(space) {
            scratch.places.push(place as u32);
            scratch.sources.push(candidate.slot);
        }
    }
    index.longest_runs(keys, &scratch.sources, &mut scratch.found);
    if !state.config.overlay {
        return;
    }
    for (place, run) in scratch.places.iter().zip(&mut scratch.found) {
        let at = *place as usize;
        let slot = scratch.candidates[at].slot;
        let (_, claims) = scratch.spoken[at];
        if claims && let Some(endpoint) = state.fleet.at(slot) {
            *run = held_run(&endpoint.claims, index, slot, keys, *run as usize) as u32;
        }
    }
}

/// Lets the detector see the request; marks whom its filter takes out, or scores anew by load alone. Returns the class.
fn watch_hotspots(
    state: &mut State,
    scratch: &mut Scratch,
    asked: &Asked<'_>,
    request: &PickRequest<'_>,
    now: Time,
    rng: &mut dyn RngCore,
) -> Option<u64> {
    let action = state.config.hotspot;
    scratch.hits.clear();
    if action == HotspotAction::Off || !state.policy.is_guarded() {
        return None;
    }
    let arrival = arrival(request, &scratch.held, &scratch.scores)?;
    let heat = heat(&mut state.hotspot, action, &arrival, now, &mut scratch.filtered)?;
    if heat.load_only {
        scratch.hits.extend(
            scratch
                .candidates
                .iter_mut()
                .map(|one| std::mem::take(&mut one.hit)),
        );
        scratch.score(state, asked, rng);
    }
    Some(heat.class)
}

/// A request as a detector sees it; none without a block.
pub(crate) fn arrival<'a>(
    request: &PickRequest<'a>,
    held: &'a [u64],
    scores: &'a [f64],
) -> Option<Arrival<'a>> {
    let (_, chain) = request.prompts.first()?.chains.first()?;
    Some(Arrival {
        keys: &chain.keys,
        block_tokens: chain.block_size.get(),
        held,
        scores,
    })
}

/// What a detector makes of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heat {
    /// The hotspot's class.
    pub(crate) class: u64,
    /// Load alone decides; else holders are filtered out.
    pub(crate) load_only: bool,
}

/// Lets `detector` see the request; marks in `filtered` whom its filter takes out, never all.
pub(crate) fn heat(
    detector: &mut Detector,
    action: HotspotAction,
    arrival: &Arrival<'_>,
    now: Time,
    filtered: &mut [bool],
) -> Option<Heat> {
    let mut hot: SmallVec<[(u32, BlockKey); 4]> = SmallVec::new();
    detector.arrive(arrival, now, |depth, class| hot.push((depth, class)));
    let mut named = None;
    for (depth, class) in hot {
        match action {
            HotspotAction::LoadOnly => {
                return Some(Heat {
                    class: class.get(),
                    load_only: true,
                });
            }
            HotspotAction::Filter => {
                let holds = |at: usize| arrival.held[at] >= u64::from(depth);
                let remain = (0..filtered.len()).any(|at| !filtered[at] && !holds(at));
                if remain {
                    for (at, out) in filtered.iter_mut().enumerate() {
                        *out |= holds(at);
                    }
                    named.get_or_insert(Heat {
                        class: class.get(),
                        load_only: false,
                    });
                }
            }
            HotspotAction::Off => {}
        }
    }
    named
}

/// Shows the pick to the shadow, with the hits as they were found.
fn show(
    state: &mut State,
    scratch: &mut Scratch,
    request: &PickRequest<'_>,
    asked: &Asked<'_>,
    now: Time,
    winner: usize,
) {
    let Some(shadow) = &mut state.shadow else {
        return;
    };
    let Scratch {
        candidates,
        backlog,
        held,
        hits,
        ..
    } = scratch;
    for (candidate, hit) in candidates.iter_mut().zip(hits.iter()) {
        candidate.hit = *hit;
    }
    shadow.see(
        &Seen {
            request,
            asked,
            backlog,
            held,
            action: state.config.hotspot,
            now,
            winner,
        },
        candidates,
    );
}

#[expect(
    clippy::too_many_arguments,
    reason = "called once, with what the pick has at hand"
)]
fn record(
    state: &mut State,
    scratch: &Scratch,
    request: &PickRequest<'_>,
    asked: &Asked<'_>,
    now: Time,
    winner: usize,
    ties: u32,
    class: Option<u64>,
) {
    let rank = state
        .fleet
        .at(scratch.candidates[winner].slot)
        .and_then(|endpoint| endpoint.spec.rank);
    let entry = Record {
        request_id: request.request_id,
        model: request.model,
        at: now,
        policy: state.config.policy,
        tokens: asked.tokens,
        weight: asked.weight,
        winner,
        rank,
        ties,
        class,
    };
    let fleet = &state.fleet;
    let view = |at: usize| {
        let Candidate {
            slot,
            hit,
            queued,
            batch,
            ..
        } = scratch.candidates[at];
        let view = CandidateView {
            slot: slot.0,
            hit: small(hit),
            q: small(queued),
            bs: small(batch),
            score: scratch.scores[at],
            filtered: scratch.filtered[at],
        };
        let address = fleet
            .face(usize::from(slot.0))
            .map_or_else(unspecified, |face| face.address);
        (address, view)
    };
    let rank_of = |at: usize| (scratch.filtered[at], scratch.scores[at]);
    state.ring.record(&entry, scratch.candidates.len(), rank_of, view);
}

fn unspecified() -> std::net::SocketAddr {
    (std::net::Ipv4Addr::UNSPECIFIED, 0).into()
}

fn small(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
