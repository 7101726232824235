//! Random pods as people and worse than people write them.

use serde_json::{Map, Value, json};

use super::fleet::{GPU, MEMORY};

/// Amounts that an API server takes for these resources, and what they are.
const AMOUNTS: [(&str, u64); 14] = [
    ("1", 1),
    ("2", 2),
    ("3", 3),
    ("5", 5),
    ("8", 8),
    ("04", 4),
    ("2000m", 2),
    ("0", 0),
    ("3e0", 3),
    ("2.0", 2),
    ("1k", 1000),
    ("10G", 10_000_000_000),
    ("1Ki", 1024),
    ("9223372036854775807", i64::MAX as u64),
];

/// Variables and what is said in them: first what can be meant well.
pub(super) const VARIABLES: [(&str, &[&str]); 12] = [
    (
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
        &[
            "4294967296",
            "0=1G",
            "0=4096M",
            "GPU-00aa=1G",
            "0=512MB",
            "2Gi",
            "0=2G,1=4G",
            "GPU-other=1G",
            "x=4G",
            "a=4G",
            "",
            "0=999999M",
            "0=17592186044415M",
            "0=18446744073709551615G",
            "1=1G",
            "7=1G",
            " 0 = 1G ",
            "0=$(OTHER)",
            "$(OTHER)",
            "0=0M",
            "0=1K",
            "0=-1G",
            "00=1G",
            "+0=1G",
            "0=1G=2",
            "0x10M",
            "0=1G,,",
            "0=4G,4G",
            "0=1.5G",
            "4K",
            "0=1G,GPU-0=9G",
            "\u{ff10}=1G",
            "0=1G;1=1G",
            "0=1 G",
            "\n0=1G",
        ],
    ),
    (
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
        &["25", "100", "12.5", "0.04", "101", "-1", "", "much", "1e2", "$(OTHER)", "25%", "+90"],
    ),
    (
        "CUDA_MPS_PIPE_DIRECTORY",
        &["/mps/nvidia.com/gpu/pipe", "/mps/aliyun.com/gpu-mem/pipe", "/tmp/x", "", "$(OTHER)"],
    ),
    ("CUDA_VISIBLE_DEVICES", &["0", "", "-1", "1", "0,1", "GPU-other", "GPU-", "$(OTHER)"]),
    (
        "NVIDIA_VISIBLE_DEVICES",
        &["void", "none", "", "/var/run/nvidia-container-devices", "all", "0", "GPU-other", "0,1"],
    ),
    ("CUDA_MPS_CLIENT_PRIORITY", &["1", "7"]),
    ("CUDA_MPS_LOG_DIRECTORY", &["/tmp"]),
    ("CUDA_MPS_SM_PARTITION", &["1"]),
    ("CUDA_MPS_PROTOCOL_VERSION", &["3"]),
    ("CUDA_MPS_DEVICE_MEM_LIMIT", &["0=1G"]),
    ("OTHER", &["0=90G", "all", "/tmp", "90G,1=90G"]),
    ("PATH", &["/bin"]),
];

const PATHS: [&str; 14] = [
    "/data",
    "/cache/../data",
    "/dev/shm",
    "/dev",
    "/dev/shm/",
    "/mps",
    "/",
    "dev/shm",
    "/mps/nvidia.com/gpu/pipe",
    "/x/../dev/shm",
    "/x/../../mps",
    "/data/./../mps/aliyun.com",
    "/dev/shmall",
    "/mpsall",
];

const HOST_PATHS: [&str; 8] =
    ["/data", "/", "/dev", "/dev/nvidia0", "/run/nvidia/mps", "/run", "/opt/driver/x", "/var/run"];

/// How much of what it says is odd: some pods are all well meant.
pub(super) struct Author<'a> {
    pub(super) rng: &'a mut fastrand::Rng,
    oddness: u8,
}

impl<'a> Author<'a> {
    pub(super) fn new(rng: &'a mut fastrand::Rng) -> Self {
        let oddness = [0, 0, 2, 8, 30][rng.usize(0..5)];
        Self { rng, oddness }
    }

    /// Whether something happens, so many times in a hundred.
    fn at(&mut self, percent: u8) -> bool {
        self.rng.u8(0..100) < percent
    }

    fn is_odd(&mut self) -> bool {
        let oddness = self.oddness;
        self.at(oddness)
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.rng.usize(0..of.len())]
    }

    pub(super) fn pod(&mut self) -> Value {
        let mut spec = json!({"unknownField": {"kept": [1, null]}, "containers": []});
        let main = self.rng.usize(1..=3);
        spec["containers"] = self.containers("c", main);
        if self.at(25) {
            spec["initContainers"] = self.containers("i", 1);
            if self.rng.bool() {
                spec["initContainers"][0]["restartPolicy"] = json!("Always");
            }
        }
        if self.is_odd() {
            spec["ephemeralContainers"] = self.containers("e", 1);
        }
        self.place(&mut spec);
        if self.is_odd() {
            spec["hostUsers"] = json!(false);
        }
        if self.at(20) {
            spec["schedulerName"] = json!(self.one(&["default-scheduler", "", "other"]));
        }
        let host = if self.is_odd() { self.one(&HOST_PATHS) } else { "/data" };
        spec["volumes"] = json!([
            {"name": "e", "emptyDir": {"medium": "Memory"}},
            {"name": "h", "hostPath": {"path": host, "type": "Directory"}},
        ]);
        let labels = if self.is_odd() {
            json!({"aliyun.com/gpu-count": self.one(&["1", "2", "x"])})
        } else {
            Value::Null
        };
        let metadata =
            json!({"name": "p", "labels": labels, "annotations": null, "finalizers": []});
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {}})
    }

    fn place(&mut self, spec: &mut Value) {
        if self.at(5) {
            spec["nodeName"] = json!(self.one(&["n0", "n1", "n9", ""]));
        }
        if self.at(20) {
            spec["nodeSelector"] = json!({"pool": self.one(&["a", "b"])});
        }
        if self.at(30) {
            let terms: Vec<Value> = (0..self.rng.usize(1..=2)).map(|_| self.term()).collect();
            spec["affinity"] = json!({"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
            }});
        }
    }

    fn term(&mut self) -> Value {
        let expression = match self.rng.u8(0..7) {
            0 => json!({"key": "pool", "operator": "In", "values": ["a", "x"]}),
            1 => json!({"key": "pool", "operator": "NotIn", "values": ["a"]}),
            2 => {
                json!({"key": "size", "operator": "Gt", "values": [self.rng.u8(0..9).to_string()]})
            }
            3 => {
                json!({"key": "size", "operator": "Lt", "values": [self.rng.u8(0..9).to_string()]})
            }
            4 => json!({"key": self.one(&["pool", "x"]), "operator": "Exists"}),
            5 => json!({"key": self.one(&["pool", "x"]), "operator": "DoesNotExist"}),
            _ => {
                return json!({"matchFields": [
                    {"key": "metadata.name", "operator": "In", "values": [self.one(&["n0", "n1", "n2"])]},
                ]});
            }
        };
        json!({"matchExpressions": [expression]})
    }

    fn containers(&mut self, prefix: &str, count: usize) -> Value {
        (0..count).map(|n| self.container(&format!("{prefix}{n}"))).collect()
    }

    fn container(&mut self, name: &str) -> Value {
        let mut container = json!({"name": name, "image": "i", "stdin": true});
        if self.at(75) {
            container["resources"] = self.resources();
        }
        let count = if self.at(60) { self.rng.usize(0..=5) } else { 0 };
        let env: Vec<Value> = (0..count).map(|_| self.variable()).collect();
        match env.is_empty() {
            true if self.rng.bool() => {}
            true => container["env"] = self.one(&["[]", "null"]).parse().unwrap(),
            false => container["env"] = env.into(),
        }
        if self.at(30) {
            container["envFrom"] = json!([{"configMapRef": {"name": "m", "optional": true}}]);
        }
        if self.at(30) {
            let path = if self.is_odd() { self.one(&PATHS) } else { "/data" };
            let volume = self.one(&["e", "h"]);
            container["volumeMounts"] = json!([{"name": volume, "mountPath": path, "x": 1}]);
        }
        if self.is_odd() {
            container["securityContext"] =
                json!({"privileged": true, "runAsUser": self.rng.u8(0..2)});
        }
        container
    }

    fn resources(&mut self) -> Value {
        let mut amounts = Map::new();
        amounts.insert("cpu".to_owned(), json!("500m"));
        let count = if self.is_odd() { 2 } else { 1 };
        for _ in 0..count {
            let (text, units) =
                if self.is_odd() { self.one(&AMOUNTS) } else { self.one(&AMOUNTS[..4]) };
            let amount = if self.at(10) { json!(units) } else { json!(text) };
            amounts.insert(self.one(&[MEMORY, GPU]).to_owned(), amount);
        }
        if self.rng.bool() {
            json!({"limits": amounts})
        } else {
            json!({"limits": amounts, "requests": amounts})
        }
    }

    fn variable(&mut self) -> Value {
        let odd = self.is_odd();
        let (name, values) = if odd {
            self.one(&VARIABLES)
        } else {
            self.one(&[VARIABLES[0], VARIABLES[1], VARIABLES[11]])
        };
        // Even well meant ones are clamped and written anew: most limits are of all forms.
        let value = if odd || name == VARIABLES[0].0 { self.one(values) } else { values[0] };
        if self.is_odd() {
            let source = json!({"configMapKeyRef": {"name": "m", "key": "k", "optional": true}});
            return json!({"name": name, "valueFrom": source});
        }
        match value {
            "" => json!({"name": name, "unknown": 1}),
            value => json!({"name": name, "value": value, "unknown": 1}),
        }
    }
}

/// What an amount in a pod is, as the API server reads it.
pub(super) fn units(amount: &Value) -> u64 {
    let text = amount.as_str();
    let of_text = AMOUNTS.into_iter().find(|(known, _)| Some(*known) == text);
    of_text.map(|(_, units)| units).or(amount.as_u64()).unwrap()
}
