//! `/metrics` with vLLM's families, names, labels and order.
//!
//! The page is a captured one with the samples of every family that moves written anew; `light` leaves the
//! other families out.

use std::fmt::Write;
use std::sync::LazyLock;

use crate::args::MetricsPage;
use crate::histogram::Histogram;
use crate::lane::Snapshot;
use crate::site::Site;

/// As captured.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=1.0.0; charset=utf-8";

struct Family {
    name: &'static str,
    header: String,
    samples: String,
}

static CAPTURED: LazyLock<Vec<Family>> = LazyLock::new(|| {
    let mut families: Vec<Family> = Vec::new();
    for line in include_str!("../data/metrics-page.txt").lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let name = help.split(' ').next().unwrap_or(help);
            families.push(Family {
                name,
                header: String::new(),
                samples: String::new(),
            });
        }
        let Some(family) = families.last_mut() else {
            continue;
        };
        let text = if line.starts_with('#') {
            &mut family.header
        } else {
            &mut family.samples
        };
        text.push_str(line);
        text.push('\n');
    }
    families
});

/// The whole page of one engine.
pub(crate) fn page(site: &Site) -> String {
    let settings = site.settings();
    let model = settings.models[0].as_str();
    let ranks: Vec<Snapshot> = site
        .snapshots
        .iter()
        .map(|snapshot| snapshot.lock().clone())
        .collect();
    let full = settings.metrics_page == MetricsPage::Full;
    let mut page = String::with_capacity(if full { 64 << 10 } else { 16 << 10 });
    for family in CAPTURED.iter() {
        let mut samples = Samples {
            out: &mut page,
            header: &family.header,
            name: family.name,
            model,
        };
        if !moving(&mut samples, site, &ranks) && full {
            page.push_str(&family.header);
            page.push_str(&family.samples.replace("tiny-qwen2", model));
        }
    }
    page
}

/// A label's value and its sample.
type Labelled = (&'static str, fn(&Snapshot) -> f64);

/// Writes the samples of one family.
struct Samples<'a> {
    out: &'a mut String,
    header: &'a str,
    name: &'a str,
    model: &'a str,
}

impl Samples<'_> {
    fn head(&mut self) {
        self.out.push_str(self.header);
    }

    fn line(&mut self, suffix: &str, before: &str, rank: usize, after: &str, value: f64) {
        let Self { out, name, model, .. } = self;
        let _ = writeln!(
            out,
            "{name}{suffix}{{{before}engine=\"{rank}\",{after}model_name=\"{model}\"}} {value:?}"
        );
    }

    /// One sample per rank.
    fn each(&mut self, ranks: &[Snapshot], value: impl Fn(&Snapshot) -> f64) -> bool {
        self.labelled(ranks, &[""], |snapshot, _| value(snapshot))
    }

    /// One sample per rank and label between `engine` and `model_name` (labels are sorted by name).
    fn labelled(
        &mut self,
        ranks: &[Snapshot],
        labels: &[&str],
        value: impl Fn(&Snapshot, &str) -> f64,
    ) -> bool {
        self.head();
        for (rank, snapshot) in ranks.iter().enumerate() {
            for label in labels {
                self.line("", "", rank, label, value(snapshot, label));
            }
        }
        true
    }

    /// One sample per rank and label after `model_name`.
    fn trailing(&mut self, ranks: &[Snapshot], label: &str, values: &[Labelled]) -> bool {
        self.head();
        let Self { out, name, model, .. } = self;
        for (rank, snapshot) in ranks.iter().enumerate() {
            for (text, value) in values {
                let value = value(snapshot);
                let _ = writeln!(
                    out,
                    "{name}{{engine=\"{rank}\",model_name=\"{model}\",{label}=\"{text}\"}} {value:?}"
                );
            }
        }
        true
    }

    fn histogram(&mut self, ranks: &[Snapshot], histogram: impl Fn(&Snapshot) -> &Histogram) -> bool {
        self.head();
        for (rank, snapshot) in ranks.iter().enumerate() {
            let histogram = histogram(snapshot);
            for (bound, count) in histogram.cumulative() {
                let bound = if bound.is_finite() {
                    format!("{bound:?}")
                } else {
                    "+Inf".to_owned()
                };
                self.line("_bucket", "", rank, &format!("le=\"{bound}\","), count as f64);
            }
            self.line("_count", "", rank, "", histogram.count() as f64);
            self.line("_sum", "", rank, "", histogram.sum());
        }
        true
    }
}

/// Writes the family if it is one that moves.
fn moving(samples: &mut Samples<'_>, site: &Site, ranks: &[Snapshot]) -> bool {
    match samples.name {
        "process_start_time_seconds" => {
            samples.head();
            let _ = writeln!(samples.out, "process_start_time_seconds {:?}", site.started());
            true
        }
        "vllm:num_requests_running" => samples.each(ranks, |s| f64::from(s.load.running)),
        "vllm:num_requests_waiting" => samples.each(ranks, |s| f64::from(s.waiting())),
        "vllm:num_requests_waiting_by_reason" => samples.trailing(
            ranks,
            "reason",
            &[("capacity", |s| f64::from(s.waiting())), ("deferred", |_| 0.0)],
        ),
        "vllm:engine_sleep_state" => samples.trailing(
            ranks,
            "sleep_state",
            &[
                ("awake", |_| 1.0),
                ("weights_offloaded", |_| 0.0),
                ("discard_all", |_| 0.0),
            ],
        ),
        "vllm:kv_cache_usage_perc" => samples.each(ranks, |s| s.load.kv_usage),
        "vllm:prefix_cache_queries_total" => samples.each(ranks, |s| s.counters.prefix_queries as f64),
        "vllm:prefix_cache_hits_total" => samples.each(ranks, |s| s.counters.prefix_hits as f64),
        "vllm:num_preemptions_total" => samples.each(ranks, |s| s.counters.preemptions as f64),
        "vllm:prompt_tokens_total" => samples.each(ranks, |s| s.counters.prompt_tokens as f64),
        "vllm:prompt_tokens_by_source_total" => samples.trailing(
            ranks,
            "source",
            &[
                ("local_compute", |s| {
                    (s.counters.prompt_tokens - s.counters.cached_tokens) as f64
                }),
                ("local_cache_hit", |s| s.counters.cached_tokens as f64),
                ("external_kv_transfer", |_| 0.0),
            ],
        ),
        "vllm:prompt_tokens_cached_total" => samples.each(ranks, |s| s.counters.cached_tokens as f64),
        "vllm:generation_tokens_total" => samples.each(ranks, |s| s.counters.generation_tokens as f64),
        "vllm:request_success_total" => samples.labelled(
            ranks,
            &[
                "finished_reason=\"stop\",",
                "finished_reason=\"length\",",
                "finished_reason=\"abort\",",
                "finished_reason=\"error\",",
                "finished_reason=\"repetition\",",
            ],
            |s, label| match label {
                "finished_reason=\"stop\"," => s.stopped as f64,
                "finished_reason=\"length\"," => (s.counters.finished - s.stopped) as f64,
                "finished_reason=\"abort\"," => s.counters.aborted as f64,
                _ => 0.0,
            },
        ),
        "vllm:time_to_first_token_seconds" => samples.histogram(ranks, |s| &s.histograms.first_token),
        "vllm:request_time_per_output_token_seconds" => samples.histogram(ranks, |s| &s.histograms.per_token),
        "vllm:e2e_request_latency_seconds" => samples.histogram(ranks, |s| &s.histograms.latency),
        "vllm:request_queue_time_seconds" => samples.histogram(ranks, |s| &s.histograms.queue),
        "vllm:request_prompt_tokens" => samples.histogram(ranks, |s| &s.histograms.prompt),
        "vllm:request_generation_tokens" => samples.histogram(ranks, |s| &s.histograms.generation),
        "vllm:lora_requests_info" => {
            let settings = site.settings();
            if settings.adapters.is_empty() {
                return true;
            }
            samples.head();
            let Snapshot {
                running_adapters: running,
                waiting_adapters: waiting,
                ..
            } = &ranks[0];
            let _ = writeln!(
                samples.out,
                "vllm:lora_requests_info{{max_lora=\"{}\",running_lora_adapters=\"{running}\",waiting_lora_adapters=\"{waiting}\"}} {:?}",
                settings.adapters.len(),
                crate::fleet::unix_seconds()
            );
            true
        }
        "vllm:cache_config_info" => {
            samples.head();
            for rank in 0..ranks.len() {
                cache_config(samples.out, site, rank);
            }
            true
        }
        _ => false,
    }
}

fn cache_config(out: &mut String, site: &Site, rank: usize) {
    let settings = site.settings();
    let engine = &settings.engine;
    let (block, blocks) = (engine.block_size, engine.num_gpu_blocks);
    let tokens = u64::from(block) * u64::from(blocks);
    let caching = if engine.enable_prefix_caching {
        "True"
    } else {
        "False"
    };
    let concurrency = tokens as f64 / f64::from(settings.max_model_len);
    let bytes = (tokens as f64 * engine.model.kv_bytes) as u64;
    let utilization = settings.gpu_memory_utilization;
    let _ = writeln!(
        out,
        "vllm:cache_config_info{{_block_size_resolved=\"True\",block_size=\"{block}\",cache_dtype=\"auto\",cache_hit_alignment_tokens=\"None\",effective_attention_block_size=\"{block}\",enable_mamba_shared_prefix_checkpoint=\"False\",enable_prefix_caching=\"{caching}\",engine=\"{rank}\",gpu_memory_utilization=\"{utilization}\",hash_block_size=\"None\",is_attention_free=\"False\",kv_cache_dtype_skip_layers=\"[]\",kv_cache_layout=\"None\",kv_cache_max_concurrency=\"{concurrency:?}\",kv_cache_memory_bytes=\"{bytes}\",kv_cache_size_tokens=\"{tokens}\",kv_offloading_backend=\"native\",kv_offloading_size=\"None\",kv_sharing_fast_prefill=\"False\",mamba_block_size=\"None\",mamba_cache_dtype=\"auto\",mamba_cache_mode=\"none\",mamba_page_size_padded=\"None\",mamba_ssm_cache_dtype=\"float32\",num_cpu_blocks=\"None\",num_gpu_blocks=\"{blocks}\",num_gpu_blocks_override=\"None\",prefix_cache_retention_interval=\"0\",prefix_caching_hash_algo=\"xxhash\",prefix_match_unit=\"None\",replayssm_buffer_len=\"16\",skip_page_size_padded=\"None\",sliding_window=\"None\",swa_bounded_replay=\"True\",use_kda_recoverssm=\"False\",use_replayssm=\"False\",user_specified_block_size=\"True\"}} 1.0"
    );
}
