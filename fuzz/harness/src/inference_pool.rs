//! InferencePool objects: read, validated, built.
//!
//! An input: an octet with what is installed in the cluster, then the object in YAML.

mod facts;

use std::path::Path;

use k8s_openapi::api::core::v1::ConfigMap;
use lmetric_api::{PickerConfig, pool::InferencePool};
use lmetric_operator::{
    build::{PICKER_CONFIG_KEY, TEMPLATE_REVISION, build},
    resources::{Prepared, Resources},
    validate::validate,
    validated::{Cluster, Images, Versions},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::assert_one_line;

/// No object of a pool may be larger: the API server takes 1.5 MB.
const MOST: usize = 1 << 20;

/// A pool is refused in clear words, or all its objects are built: the same ones twice, and each can be read again.
pub fn run(input: &[u8]) {
    let Some((&installed, text)) = input.split_first() else {
        return;
    };
    let Ok(mut pool) = serde_yaml::from_slice::<InferencePool>(text) else {
        return;
    };
    // the API server sees to these
    pool.metadata.namespace = Some("models".to_owned());
    pool.metadata.uid = Some("0b5e".to_owned());
    again(&pool);
    let facts = facts::facts(pool, installed);
    let validated = match validate(&facts, &Cluster::default()) {
        Ok(validated) => validated,
        Err(wrong) => {
            assert!(!wrong.is_empty(), "refused without a reason");
            for invalid in wrong {
                assert!(
                    !invalid.field.is_empty() && !invalid.remedy.is_empty(),
                    "{invalid:?}"
                );
                assert_one_line(&invalid.to_string());
            }
            return;
        }
    };
    let images = Images {
        picker: "lmetric:1".to_owned(),
        envoy: "envoy:1".to_owned(),
        pull_policy: "IfNotPresent".to_owned(),
    };
    let versions = Versions {
        template_revision: TEMPLATE_REVISION,
        tool_image: "lmetric:1".to_owned(),
    };
    let once = build(&validated, &images, &versions).map_err(|error| error.to_string());
    let twice = build(&validated, &images, &versions).map_err(|error| error.to_string());
    assert_eq!(once, twice, "equal pools give other objects");
    match once {
        Ok(resources) => sound(&resources, text.len()),
        Err(error) => assert_one_line(&error),
    }
}

fn sound(resources: &Resources<Prepared>, octets: usize) {
    let Resources {
        service_accounts,
        role_bindings,
        config_maps,
        claims,
        services,
        network_policies,
        deployments,
        disruption_budgets,
        gie_pools,
        destination_rules,
        route_filters,
        backends,
        routes,
        extension_policies,
        traffic_policies,
        pod_monitors,
        prometheus_rules,
        ..
    } = resources;
    let mut all = 0;
    let mut add = |octets: usize| all += octets;
    service_accounts.iter().map(again).for_each(&mut add);
    role_bindings.iter().map(again).for_each(&mut add);
    config_maps.iter().map(again).for_each(&mut add);
    claims.iter().map(again).for_each(&mut add);
    services.iter().map(again).for_each(&mut add);
    network_policies.iter().map(again).for_each(&mut add);
    deployments.iter().map(again).for_each(&mut add);
    disruption_budgets.iter().map(again).for_each(&mut add);
    gie_pools.iter().map(again).for_each(&mut add);
    destination_rules.iter().map(again).for_each(&mut add);
    route_filters.iter().map(again).for_each(&mut add);
    backends.iter().map(again).for_each(&mut add);
    routes.iter().map(again).for_each(&mut add);
    extension_policies.iter().map(again).for_each(&mut add);
    traffic_policies.iter().map(again).for_each(&mut add);
    pod_monitors.iter().map(again).for_each(&mut add);
    prometheus_rules.iter().map(again).for_each(&mut add);
    assert!(all <= MOST + 64 * octets, "{all} octets of objects from {octets}");
    for map in config_maps {
        readable(map);
    }
}

/// It reads as it was written. Its size as JSON.
fn again<T: Serialize + DeserializeOwned>(object: &T) -> usize {
    let written = serde_json::to_string(object).expect("an object is JSON");
    let read: T = serde_json::from_str(&written).unwrap_or_else(|error| panic!("{error}: {written}"));
    let again = serde_json::to_string(&read).expect("an object is JSON");
    assert_eq!(written, again, "it changes in reading");
    written.len()
}

/// Files in it are YAML; the picker reads its own, or says in one line what is wrong.
fn readable(map: &ConfigMap) {
    for (key, text) in map.data.iter().flatten() {
        if key == PICKER_CONFIG_KEY
            && let Err(error) = PickerConfig::parse(text, Path::new(key))
        {
            assert_one_line(&error.to_string());
        }
        let value: Result<serde_json::Value, _> = serde_yaml::from_str(text);
        assert!(value.is_ok(), "{key} is no YAML: {value:?}: {text}");
    }
}
