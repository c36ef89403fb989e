// SPDX-License-Identifier: Apache-2.0
// What the snapshot's words mean to a person.

// Stages with their names, short and long.
export const STAGES = [
  ["time_to_first_token", "TTFT", "Time to first token"],
  ["inter_token", "ITL", "Inter-token latency: from one token to the next"],
  ["time_per_output_token", "TPOT", "Time per output token, mean over a request"],
  ["e2e", "E2EL", "End-to-end latency: the whole request"],
  ["queue", "Queue", "Waiting to be scheduled"],
  ["prefill", "Prefill", "From being scheduled to the first token"],
  ["decode", "Decode", "From the first token to the last"],
];

// Stages that are judged, and the names of their targets.
export const TARGETS = {
  time_to_first_token: "slo_time_to_first_token_seconds",
  time_per_output_token: "slo_time_per_output_token_seconds",
};

export const FAILURES = {
  cuda_illegal_access: "CUDA: illegal memory access",
  cuda_launch_failure: "CUDA: a kernel failed",
  engine_dead: "engine died",
  execution_timeout: "execution timed out",
  gpu_ecc: "uncorrectable memory error of a GPU",
  gpu_lost: "a GPU is lost",
  gpu_memory_too_small: "too little free GPU memory",
  gpu_nvlink: "NVLink error",
  kernel_compiled: "a kernel was compiled while requests waited for it",
  kv_cache_too_small: "KV cache too small for the model",
  nccl_error: "NCCL error",
  out_of_memory: "out of memory",
  request_error: "request failed inside the engine",
  shm_timeout: "its processes waited 60 s for each other",
  stack_dump_failed: "its watchdog could not write what its threads do",
  stack_dumped: "its watchdog wrote what its threads do",
  worker_died: "worker died",
};

// Why vLLM turned requests away before they were queued.
export const REJECTIONS = {
  max_num_queued_reqs: "rejected: too many requests in the queue",
  max_num_queued_tokens: "rejected: too many prompt tokens in the queue",
};

export function plainWords(name) {
  return String(name).replaceAll("_", " ");
}
