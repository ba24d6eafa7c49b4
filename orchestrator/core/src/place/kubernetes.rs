//! The jobs of Kubernetes in which sessions run, by `kubectl`.

use base::config::places::{PlaceConfig, is_word};
use base::failure::OrFail;
use base::process::Command;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::place::configured_place::Place;
use crate::place::host::{Host, HostError, JobStep};
use crate::place::job::{self, ClusterJob, JobState};

/// The label of a job and its pods with the name of the job.
const LABEL: &str = "studio/job";
/// What `kubectl` says while the server does not answer.
const AWAY: &[&str] = &[
    "Unable to connect to the server",
    "connection refused",
    "TLS handshake timeout",
    "etcdserver",
    "ServiceUnavailable",
];
/// The container of a pod.
const CONTAINER: &str = "session";
/// The directory of a container that is the home directory of the agent.
const HOME: &str = "/work";
/// How long a pod may take to end, in seconds.
const NOTICE_SECONDS: u32 = 120;
/// How long a job stays listed after its end, in seconds.
const KEPT_SECONDS: u32 = 3600;
/// How often the pod of a job may be replaced.
const RETRIES: u32 = 3;

/// A cluster with Kubernetes.
pub(crate) struct Kubernetes<'a> {
    /// Where `kubectl` runs.
    pub host: Host,
    /// Its place.
    pub place: &'a Place,
}

impl Kubernetes<'_> {
    fn kubectl<'b>(&'b self, words: impl IntoIterator<Item = &'b str>) -> Command {
        let words: Vec<&str> = self.words().into_iter().chain(words).collect();
        self.host.command(words)
    }

    fn words(&self) -> Vec<&str> {
        let namespace = self.place.config.namespace.as_deref();
        let namespace = namespace.into_iter().flat_map(|name| ["--namespace", name]);
        std::iter::once("kubectl").chain(namespace).collect()
    }

    /// Submits a job with this name.
    pub(crate) fn submit(&self, name: &str) -> std::result::Result<(), HostError> {
        let manifest = manifest(name, &job::script(&self.host, name), &self.place.config);
        let command = self.kubectl(["create", "-f", "-"]).input(manifest.to_string().into_bytes());
        self.host.ask_cluster(command, AWAY).map(drop)
    }

    /// Returns the job with this name; `None` if Kubernetes does not know it (any more).
    pub(crate) fn find(&self, name: &str) -> std::result::Result<Option<ClusterJob>, HostError> {
        let label = format!("--selector={LABEL}={name}");
        let words = ["get", "jobs,pods", &label, "--output=json"];
        let output = self.host.ask_cluster(self.kubectl(words), AWAY)?;
        let parse = || serde_json::from_slice::<Listing>(&output.stdout);
        let listing = parse().or_fail(|| "kubectl does not answer as expected");
        Ok(find_job(&listing.map_err(HostError::Failed)?))
    }

    /// Returns the node on which a pod runs. Commands run there in its container.
    pub(crate) fn node(&self, pod: &str, node: &str) -> Host {
        let words = self.words().into_iter();
        let words = words.chain(["exec", "--stdin", pod, "--container", CONTAINER, "--"]);
        let step = JobStep {
            words: words.map(str::to_owned).collect(),
            not_runnable: "no such file or directory",
            exited: "command terminated with exit code",
        };
        self.host.in_job(step, node)
    }

    /// Deletes the job with this name.
    pub(crate) fn cancel(&self, name: &str) -> std::result::Result<(), HostError> {
        let words = ["delete", "job", name, "--wait=false", "--ignore-not-found"];
        self.host.run(self.kubectl(words)).map(drop)
    }
}

/// Returns the description of a job. It is one pod, which is replaced when its node is lost, and not
/// when its program fails: the session says why.
fn manifest(name: &str, script: &str, config: &PlaceConfig) -> Value {
    let quantity =
        |value: &Option<String>, default: &str| value.as_deref().unwrap_or(default).to_owned();
    let memory = quantity(&config.memory, "4Gi");
    let disk = quantity(&config.disk, "8Gi");
    let cpus = quantity(&config.cpus, "1");
    let secrets: Vec<Value> =
        config.secret.iter().map(|secret| json!({"secretRef": {"name": secret}})).collect();
    let mut spec = json!({
        "backoffLimit": RETRIES,
        "completions": 1,
        "parallelism": 1,
        "ttlSecondsAfterFinished": KEPT_SECONDS,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {"rules": [
            {
                "action": "Ignore",
                "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
            },
            {
                "action": "FailJob",
                "onExitCodes": {"containerName": CONTAINER, "operator": "NotIn", "values": [0]},
            },
        ]},
        "template": {
            "metadata": {"labels": {LABEL: name}},
            "spec": {
                "restartPolicy": "Never",
                "automountServiceAccountToken": false,
                "enableServiceLinks": false,
                "terminationGracePeriodSeconds": NOTICE_SECONDS,
                "securityContext": {
                    "runAsNonRoot": true,
                    "runAsUser": 1000,
                    "fsGroup": 1000,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [{
                    "name": CONTAINER,
                    "image": config.image,
                    "command": ["sh", "-c", script],
                    "workingDir": HOME,
                    "env": [{"name": "HOME", "value": HOME}],
                    "envFrom": secrets,
                    "resources": {
                        "requests": {"cpu": cpus, "memory": memory, "ephemeral-storage": disk},
                        "limits": {"memory": memory, "ephemeral-storage": disk},
                    },
                    "securityContext": {
                        "allowPrivilegeEscalation": false,
                        "readOnlyRootFilesystem": true,
                        "capabilities": {"drop": ["ALL"]},
                    },
                    "volumeMounts": [
                        {"name": "work", "mountPath": HOME},
                        {"name": "tmp", "mountPath": "/tmp"},
                    ],
                }],
                "volumes": [
                    {"name": "work", "emptyDir": {"sizeLimit": disk}},
                    {"name": "tmp", "emptyDir": {}},
                ],
            },
        },
    });
    if let Some(seconds) = config.time_limit_seconds {
        spec["activeDeadlineSeconds"] = json!(seconds);
    }
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "labels": {"app.kubernetes.io/managed-by": "studio", LABEL: name},
        },
        "spec": spec,
    })
}

/// The output of `kubectl get jobs,pods`: what is used of it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Listing {
    items: Vec<Resource>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Resource {
    kind: String,
    metadata: Metadata,
    spec: PodSpec,
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: String,
    creation_timestamp: String,
    deletion_timestamp: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodSpec {
    node_name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    phase: String,
    reason: Option<String>,
    conditions: Vec<Condition>,
    container_statuses: Vec<ContainerStatus>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: Option<String>,
    message: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerStatus {
    state: ContainerState,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerState {
    waiting: Option<ContainerReason>,
    terminated: Option<ContainerReason>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerReason {
    reason: Option<String>,
}

/// Returns the state of a job: that of its newest pod, unless the job is over.
fn find_job(listing: &Listing) -> Option<ClusterJob> {
    let of_kind = |kind: &'static str| listing.items.iter().filter(move |item| item.kind == kind);
    let job = of_kind("Job").next()?;
    let pod = of_kind("Pod").max_by_key(|pod| &pod.metadata.creation_timestamp);
    let id = pod.map_or(&job.metadata.name, |pod| &pod.metadata.name).clone();
    // It becomes an argument of `kubectl`.
    if !is_word(&id) {
        return None;
    }
    let holds = |condition: &&Condition| condition.status == "True";
    let end = job.status.conditions.iter().filter(holds).find_map(|condition| {
        match condition.kind.as_str() {
            "Complete" => Some("Complete".to_owned()),
            "Failed" => {
                let of_pod = pod.and_then(|pod| pod.status.end_reason());
                let reason = condition.reason.clone().unwrap_or_else(|| "Failed".to_owned());
                // The rule of the job that applied says less than its pod.
                Some(of_pod.filter(|_| reason != "DeadlineExceeded").unwrap_or(reason))
            }
            _ => None,
        }
    });
    let state = match (end, pod) {
        (Some(end), _) => JobState::Over(end),
        (None, None) => JobState::Pending("its pod is not there yet".to_owned()),
        (None, Some(pod)) if pod.metadata.deletion_timestamp.is_some() => JobState::Ending,
        (None, Some(pod)) => match pod.status.phase.as_str() {
            "Running" => {
                let node = pod.spec.node_name.as_deref().unwrap_or(&pod.metadata.name);
                JobState::Running(base::text::printable(node))
            }
            "Succeeded" | "Failed" => JobState::Ending,
            _ => JobState::Pending(pod.status.wait_reason()),
        },
    };
    Some(ClusterJob { id, state })
}

impl Status {
    /// Returns why a pod waits.
    fn wait_reason(&self) -> String {
        let of_container = self.container_statuses.iter().find_map(|it| it.state.waiting.as_ref());
        let of_container = of_container.and_then(|waiting| waiting.reason.clone());
        let unmet = self.conditions.iter().find(|it| it.status == "False");
        let unmet = unmet.and_then(|it| it.message.clone().or_else(|| it.reason.clone()));
        let reason = of_container.or(unmet).unwrap_or_else(|| "it is scheduled".to_owned());
        base::text::printable(&reason)
    }

    /// Returns why a pod ended.
    fn end_reason(&self) -> Option<String> {
        let of_container =
            self.container_statuses.iter().find_map(|it| it.state.terminated.as_ref());
        self.reason.clone().or_else(|| of_container?.reason.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(items: &Value) -> Option<ClusterJob> {
        let listing = json!({"kind": "List", "items": items});
        find_job(&serde_json::from_value(listing).unwrap())
    }

    fn job(conditions: &Value) -> Value {
        json!({"kind": "Job", "metadata": {"name": "studio-1"}, "status": {"conditions": conditions}})
    }

    fn pod(name: &str, created: &str, status: &Value) -> Value {
        json!({
            "kind": "Pod", "metadata": {"name": name, "creationTimestamp": created},
            "spec": {"nodeName": "n1"}, "status": status,
        })
    }

    #[test]
    fn the_state_of_a_job_is_that_of_its_newest_pod() {
        let open = job(&json!([]));
        let waits = |why: &str| JobState::Pending(why.to_owned());
        assert_eq!(state(&json!([])), None);
        assert_eq!(state(&json!([open])).unwrap().state, waits("its pod is not there yet"));
        let unscheduled = json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"},
        ]});
        let pulling = json!({"phase": "Pending", "containerStatuses": [
            {"state": {"waiting": {"reason": "ImagePullBackOff"}}},
        ]});
        for (status, why) in
            [(unscheduled, "0/3 nodes are available"), (pulling, "ImagePullBackOff")]
        {
            assert_eq!(state(&json!([open, pod("a", "1", &status)])).unwrap().state, waits(why));
        }
        let failed = pod("studio-1-a", "2026-01-01T00:00:00Z", &json!({"phase": "Failed"}));
        let running = pod("studio-1-b", "2026-01-01T00:01:00Z", &json!({"phase": "Running"}));
        let found = state(&json!([failed, running, open])).unwrap();
        assert_eq!(
            found,
            ClusterJob { id: "studio-1-b".into(), state: JobState::Running("n1".into()) }
        );
        assert_eq!(state(&json!([failed, open])).unwrap().state, JobState::Ending);
        let hostile = pod("--kubeconfig=/x", "3", &json!({"phase": "Running"}));
        assert_eq!(state(&json!([open, hostile])), None);
    }

    #[test]
    fn a_job_that_is_over_says_why() {
        let failed =
            |reason: &str| job(&json!([{"type": "Failed", "status": "True", "reason": reason}]));
        let killed = pod(
            "a",
            "1",
            &json!({"phase": "Failed", "containerStatuses": [
                {"state": {"terminated": {"reason": "OOMKilled"}}},
            ]}),
        );
        let described = |items: &Value| state(items).unwrap().description();
        assert_eq!(
            described(&json!([failed("PodFailurePolicy"), killed])),
            "job a reached its memory limit"
        );
        assert_eq!(
            described(&json!([failed("DeadlineExceeded"), killed])),
            "job a reached its time limit"
        );
        let complete = job(&json!([{"type": "Complete", "status": "True"}]));
        assert_eq!(described(&json!([complete])), "job studio-1 ended (Complete)");
    }

    #[test]
    fn a_manifest_has_the_settings_and_nothing_of_the_task() {
        let config = PlaceConfig {
            image: Some("registry.example/agent:1".to_owned()),
            cpus: Some("2".to_owned()),
            secret: Some("keys".to_owned()),
            time_limit_seconds: Some(600),
            ..PlaceConfig::default()
        };
        let manifest = manifest("studio-0123456789abcdef", "exec studio", &config);
        let spec = &manifest["spec"];
        assert_eq!(spec["activeDeadlineSeconds"], 600);
        assert_eq!(spec["template"]["metadata"]["labels"][LABEL], manifest["metadata"]["name"]);
        let container = &spec["template"]["spec"]["containers"][0];
        assert_eq!(container["image"], "registry.example/agent:1");
        assert_eq!(container["command"], json!(["sh", "-c", "exec studio"]));
        assert_eq!(container["resources"]["requests"]["cpu"], "2");
        assert_eq!(container["resources"]["limits"]["memory"], "4Gi");
        assert_eq!(container["envFrom"], json!([{"secretRef": {"name": "keys"}}]));
        assert_eq!(container["env"], json!([{"name": "HOME", "value": HOME}]));
    }
}
