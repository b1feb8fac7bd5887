//! The operator, its chart and everything it makes on a real Kubernetes. `make e2e-core` starts the cluster and runs this inside it;
//! elsewhere every test here is skipped by name.

mod bad_input;
mod bad_objects;
mod bench;
mod chart;
mod crds;
mod deletion;
mod failures;
mod gateway;
mod idle;
mod load;
mod nodes;
mod operator_lost;
mod optional_apis;
mod orphaned;
mod picker_account;
mod picker_killed;
mod rollout;
mod scale;
mod serving;
mod stand_in;
mod support;
mod tokenizer;
mod upgrade;
mod watch;
