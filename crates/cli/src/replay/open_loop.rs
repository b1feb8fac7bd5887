//! Sending on time, whatever the answers do.
//!
//! One thread builds bodies a bounded number ahead; one waits for each arrival's moment and hands the body to the
//! runtime; every request is a task of its own. Nothing on the way from clock to socket waits for an answer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Uri, header::CONTENT_TYPE};
use http_body_util::Full;
use tokio::{runtime::Handle, sync::mpsc as results};
use tokio_util::sync::CancellationToken;

use super::{pace::sleep_until, prompt::PromptMaker};
use crate::{
    client::{Exchange, Failure, FailureKind, HttpClient, exchange},
    trace::{Arrival, Trace},
};

/// From the first body to the first arrival, so that bodies are ahead.
const LEAD: Duration = Duration::from_millis(100);

/// Where and how requests are sent.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) client: HttpClient,
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    /// Request ids are this and the trace's line.
    pub(super) id_prefix: String,
    pub(super) timeout: Duration,
}

impl Target {
    /// The request for a line of the trace.
    pub(super) fn request(&self, line: u32, body: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        request.uri_mut().clone_from(&self.uri);
        request.headers_mut().clone_from(&self.headers);
        request
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Ok(id) = HeaderValue::try_from(format!("{}{line}", self.id_prefix)) {
            request.headers_mut().entry("x-request-id").or_insert(id);
        }
        request
    }
}

/// What is being sent, for the progress line.
#[derive(Debug, Default)]
pub(super) struct Gauges {
    pub(super) sent: AtomicU64,
    pub(super) in_flight: AtomicU64,
    pub(super) peak: AtomicU64,
}

/// A request that ended.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) line: u32,
    pub(super) planned: Duration,
    pub(super) late: Duration,
    pub(super) exchange: Exchange,
}

/// A replay to run.
#[derive(Debug)]
pub(super) struct OpenLoop {
    pub(super) trace: Arc<Trace>,
    pub(super) arrivals: Vec<Arrival>,
    pub(super) maker: PromptMaker,
    pub(super) target: Arc<Target>,
    pub(super) look_ahead: usize,
    pub(super) max_in_flight: usize,
}

struct Job {
    line: u32,
    at: Duration,
    body: Bytes,
}

impl OpenLoop {
    /// Starts the threads. Every arrival becomes one [`Finished`], unless cancelled; the channel closes after the
    /// last. It has room for all, so that no result is waited with.
    pub(super) fn start(
        self,
        runtime: Handle,
        gauges: Arc<Gauges>,
        cancel: CancellationToken,
    ) -> std::io::Result<results::Receiver<Finished>> {
        let Self {
            trace,
            arrivals,
            maker,
            target,
            look_ahead,
            max_in_flight,
        } = self;
        let (finished, receiver) = results::channel(arrivals.len().max(1));
        let (built, jobs) = mpsc::sync_channel(look_ahead);
        thread::Builder::new().name("bodies".to_owned()).spawn(move || {
            for Arrival { index, at } in arrivals {
                let request = &trace.requests[index];
                let body = Bytes::from(maker.body(request, request.output_tokens));
                if built
                    .send(Job {
                        line: request.line,
                        at,
                        body,
                    })
                    .is_err()
                {
                    return;
                }
            }
        })?;
        let pacer = Pacer {
            target,
            max_in_flight: max_in_flight as u64,
            gauges,
            cancel,
            finished,
        };
        thread::Builder::new()
            .name("arrivals".to_owned())
            .spawn(move || pacer.run(&jobs, &runtime))?;
        Ok(receiver)
    }
}

struct Pacer {
    target: Arc<Target>,
    max_in_flight: u64,
    gauges: Arc<Gauges>,
    cancel: CancellationToken,
    finished: results::Sender<Finished>,
}

impl Pacer {
    fn run(self, jobs: &mpsc::Receiver<Job>, runtime: &Handle) {
        let mut begin = None;
        for job in jobs {
            let begin = *begin.get_or_insert_with(|| Instant::now() + LEAD);
            let moment = begin + job.at;
            if !sleep_until(moment, &self.cancel) {
                return;
            }
            self.gauges.sent.fetch_add(1, Ordering::Relaxed);
            let in_flight = self.gauges.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
            if in_flight > self.max_in_flight {
                self.gauges.in_flight.fetch_sub(1, Ordering::Relaxed);
                self.refuse(&job);
                continue;
            }
            self.gauges.peak.fetch_max(in_flight, Ordering::Relaxed);
            runtime.spawn(send(
                self.target.clone(),
                job,
                moment,
                self.gauges.clone(),
                self.cancel.clone(),
                self.finished.clone(),
            ));
        }
    }

    fn refuse(&self, job: &Job) {
        let message = format!(
            "{} requests were in flight; raise --max-in-flight or lower --rate-scale",
            self.max_in_flight
        );
        let failure = Failure {
            kind: FailureKind::InFlightLimit,
            message,
        };
        let exchange = Exchange {
            failure: Some(failure),
            ..Exchange::default()
        };
        let finished = Finished {
            line: job.line,
            planned: job.at,
            late: Duration::ZERO,
            exchange,
        };
        self.finished
            .try_send(finished)
            .expect("the channel has room for every arrival and outlives the pacer");
    }
}

async fn send(
    target: Arc<Target>,
    job: Job,
    moment: Instant,
    gauges: Arc<Gauges>,
    cancel: CancellationToken,
    finished: results::Sender<Finished>,
) {
    let late = moment.elapsed();
    let Job { line, at, body } = job;
    let request = target.request(line, body);
    let exchange = cancel
        .run_until_cancelled(exchange(&target.client, request, target.timeout))
        .await;
    gauges.in_flight.fetch_sub(1, Ordering::Relaxed);
    if let Some(exchange) = exchange {
        // The receiver is gone only when nobody counts any more.
        let _ = finished
            .send(Finished {
                line,
                planned: at,
                late,
                exchange,
            })
            .await;
    }
}
