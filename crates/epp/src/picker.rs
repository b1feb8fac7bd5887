//! Places one request: what model, which tokens, which keys, then the pick.

use std::{net::SocketAddr, sync::Arc};

use lmetric_kvevents::SourceState;
use lmetric_prefix::{BlockKey, KeySeed};
use lmetric_scheduler::{Pick, PickRequest, Prompt, Scheduler, Time};
use lmetric_telemetry::Timer;
use tokio::time::Instant;

use crate::{
    clock::Clock,
    fleet::{Fleet, Groups, Listed, Member, Resolved},
    guard::{Inference, Place, Placement},
    metrics::PlaceMetrics,
    record::{Placed, Recorder},
    refusal::Refusal,
    request::ParsedRequest,
    tokens::{Chains, Ladder, Rung},
};

/// Chooses an endpoint for each request.
pub struct Picker {
    parts: PickerParts,
}

/// What a [`Picker`] is made of.
pub struct PickerParts {
    /// The ledger.
    pub scheduler: Arc<Scheduler>,
    /// Who takes part.
    pub fleet: Arc<Fleet>,
    /// Tokenizer groups by model name.
    pub groups: Groups,
    /// Where tokens come from.
    pub ladder: Arc<Ladder>,
    /// Seed of all keys.
    pub seed: KeySeed,
    /// The process's clock.
    pub clock: Clock,
    /// Times and counts.
    pub metrics: PlaceMetrics,
    /// Who records requests, where that is wanted.
    pub record: Option<Arc<Recorder>>,
}

/// What a request's model name comes to.
#[derive(Debug, Default)]
struct Meaning {
    /// Tokenizer group, if anybody knows.
    group: Option<Arc<str>>,
    /// It names a LoRA adapter.
    adapter: bool,
    /// Only engines that list the name are candidates.
    restricted: bool,
}

impl Picker {
    /// A picker.
    pub fn new(parts: PickerParts) -> Self {
        Self { parts }
    }

    async fn meaning(&self, request: &ParsedRequest) -> Result<Meaning, Refusal> {
        let Some(model) = request.model.as_deref() else {
            return Ok(Meaning {
                group: self.only_group(),
                ..Meaning::default()
            });
        };
        match self.parts.fleet.resolve(model).await {
            Resolved::Listed(Listed {
                adapter,
                group,
                partial,
            }) => Ok(Meaning {
                group: Some(group),
                adapter,
                restricted: adapter || partial,
            }),
            Resolved::Perhaps => Ok(Meaning {
                group: self.parts.groups.get(model).or_else(|| self.only_group()),
                ..Meaning::default()
            }),
            Resolved::Unknown(served) => Err(Refusal::unknown_model(model, &served)),
        }
    }

    /// The group of all endpoints, where they have but one.
    fn only_group(&self) -> Option<Arc<str>> {
        let members = self.parts.fleet.members();
        let mut groups = members.iter().map(|member| &member.group);
        let first = groups.next()?;
        groups.all(|group| group == first).then(|| first.clone())
    }

    /// Engines that may be asked for a group's tokens.
    fn engines(&self, group: &str) -> Vec<SocketAddr> {
        let now = Instant::now();
        self.parts
            .fleet
            .members()
            .iter()
            .filter(|member| *member.group == *group && member.is_ready(now))
            .map(|member| member.target.address)
            .collect()
    }

    async fn choose(&self, request: &Arc<ParsedRequest>, arrived: Time) -> Result<Placement, Refusal> {
        let Meaning {
            group,
            adapter,
            restricted,
        } = self.meaning(request).await?;
        let model = request.model.as_deref();
        let group = group.unwrap_or_default();
        let counted = self
            .parts
            .ladder
            .count(request, &group, || self.engines(&group))
            .await;
        let chains = Chains {
            seed: self.parts.seed,
            group: &group,
            lora: model.filter(|_| adapter),
            salt: request.cache_salt.as_deref(),
        };
        let prompts = chains.prompts(&counted, &self.parts.scheduler.spaces());
        let asked = PickRequest {
            request_id: &request.request_id,
            model: model.unwrap_or_default(),
            prompts: &prompts,
            weight: request.weight(),
            estimated: counted.rung == Rung::Estimate,
            subset: request.subset.as_ref(),
            lora: model.filter(|_| restricted),
            session: request.session,
        };
        let pick = {
            let _timer = Timer::start(&self.parts.metrics.pick);
            self.parts
                .scheduler
                .pick(&asked, self.parts.clock.now(), &mut rand::rng())?
        };
        self.observe(&prompts, &pick);
        let recording = self.parts.record.as_ref().and_then(|recorder| {
            recorder.begin(&Placed {
                request,
                counted: &counted,
                chains: &chains,
                reservation: pick.reservation,
                arrived,
            })
        });
        let member = self.parts.fleet.members().slot(pick.endpoint.slot).cloned();
        let member = member.filter(|member| member.id == pick.endpoint);
        if let Some(member) = &member
            && request.report_mode
        {
            for keys in prompts.iter().filter_map(|prompt| keys_for(prompt, member)) {
                member.expect_report(keys);
            }
        }
        let learn = Learn {
            scheduler: self.parts.scheduler.clone(),
            fleet: self.parts.fleet.clone(),
        };
        let exact = counted.rung != Rung::Estimate && !prompts.is_empty();
        Ok(Placement::reserved(
            pick,
            self.parts.scheduler.clone(),
            self.parts.clock,
            self.parts.fleet.clone(),
            exact.then(|| Box::new(learn) as Box<dyn Inference>),
            recording,
        ))
    }

    fn observe(&self, prompts: &[Prompt], pick: &Pick) {
        if prompts.is_empty() {
            return;
        }
        let tokens: u64 = prompts.iter().map(|prompt| u64::from(prompt.tokens)).sum();
        self.parts.metrics.prompt.observe(tokens as f64);
        self.parts.metrics.hit.observe(pick.hit_tokens as f64);
    }
}

impl Place for Picker {
    async fn place(&self, request: Arc<ParsedRequest>) -> Result<Placement, Refusal> {
        let _timer = Timer::start(&self.parts.metrics.place);
        self.choose(&request, self.parts.clock.now()).await
    }
}

/// The prompt's keys in the member's own block size.
fn keys_for<'a>(prompt: &'a Prompt, member: &Member) -> Option<&'a [BlockKey]> {
    let size = member.block_size()?;
    prompt
        .chains
        .iter()
        .find(|(space, _)| space.block_size == size && space.group == member.group)
        .map(|(_, chain)| chain.keys.as_slice())
}

/// Learns from the engine's own count of cached tokens what a source that is only partly known holds. A live
/// source has told everything: there a larger count is no news of blocks.
struct Learn {
    scheduler: Arc<Scheduler>,
    fleet: Arc<Fleet>,
}

impl Inference for Learn {
    fn cached_tokens(&self, pick: &Pick, tokens: u64) {
        let Some((slot, keys)) = self.scheduler.inferred_holders(pick.reservation, tokens) else {
            return;
        };
        if let Some(member) = self.fleet.members().slot(slot) {
            member.with_source(|source| {
                if source.state() == SourceState::Partial {
                    source.infer(keys);
                }
            });
        }
    }
}
