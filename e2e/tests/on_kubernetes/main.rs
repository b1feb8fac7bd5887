//! The operator, its chart and everything it makes on a real Kubernetes. `make e2e-core` starts the cluster and runs this inside it;
//! elsewhere every test here is skipped by name.

mod bad_input;
mod bad_objects;
mod chart;
mod crds;
mod deletion;
mod ext_proc;
mod gateway;
mod idle;
mod load;
mod nodes;
mod operator_lost;
mod picker_killed;
mod picker_rights;
mod rollout;
mod scale;
mod serving;
mod stand_in;
mod support;
mod tokenizer;
mod watch;
