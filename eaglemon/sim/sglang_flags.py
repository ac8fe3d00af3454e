"""The flags of SGLang 0.5.16, as its own usage text lists them."""

SWITCHES = frozenset(
    """
skip-tokenizer-init trust-remote-code is-embedding enable-multimodal enable-fp32-lm-head
quantize-and-serve enable-tf32-matmul enable-dynamic-chunking enable-priority-scheduling
disable-priority-preemption abort-on-priority-when-disabled schedule-low-priority-values-first
disable-hybrid-swa-memory prefill-only-disable-kv-cache disable-radix-cache
enable-page-major-kv-layout enable-unified-memory disable-chunked-prefix-cache
disable-overlap-schedule enable-mixed-chunk enable-prefill-cp enable-dsa-cache-layer-split
enable-dp-attention enable-dp-attention-local-control-broadcast enable-dp-lm-head
enable-attn-tp-input-scattered disable-attn-tp-gather enable-p2p-check sleep-on-idle use-ray
smg-grpc-mode grpc-mode skip-server-warmup enable-http2 enable-ssl-refresh enable-cache-report
strip-thinking-cache enable-strict-thinking allow-auto-truncate
stream-response-default-include-usage incremental-streaming-output enable-streaming-session
enable-session-radix-cache log-requests show-time-cost enable-metrics enable-mfu-metrics
enable-metrics-for-all-schedulers enable-request-time-stats-logging enable-forward-pass-metrics
enable-trace export-metrics-to-file constrained-json-disable-any-whitespace
disable-flashinfer-autotune disable-prefill-cuda-graph disable-decode-cuda-graph
disable-cuda-graph-padding enable-profile-cuda-graph enable-cudagraph-gc debug-cuda-graph
enable-layerwise-nvtx-marker enable-nccl-nvls enable-symm-mem triton-attention-reduce-in-fp32
flashinfer-mla-disable-ragged enable-fused-qk-norm-rope enable-precise-embedding-interpolation
enable-fused-moe-sum-all-reduce enable-deepseek-v4-fp4-indexer disable-custom-all-reduce
enable-mscclpp enable-torch-symm-mem enable-scattered-sconv pre-warm-nccl
enable-quant-communications enforce-disable-flashinfer-allreduce-fusion
enable-aiter-allreduce-fusion enable-torch-compile enable-torch-compile-debug-mode
speculative-dspark-align-verify-tokens-to-graph-tier speculative-use-rejection-sampling
speculative-skip-dp-mlp-sync enable-multi-layer-eagle speculative-adaptive enable-eplb
enable-expert-distribution-metrics enable-elastic-expert-backup enable-waterfill
elastic-ep-rejoin disable-flashinfer-cutlass-moe-fp4-allgather disable-shared-experts-fusion
enforce-shared-experts-fusion enable-mamba-cache-stochastic-rounding
enable-int8-mamba-checkpoint enable-linear-replayssm enable-gdn-replayssm-spec
enable-hierarchical-cache enable-hisparse enable-broadcast-mm-inputs-process
enable-prefix-mm-cache mm-enable-dp-encoder enable-mm-global-cache disable-fast-image-processor
keep-mm-feature-on-device enable-lora enable-lora-overlap-loading lora-use-virtual-experts
enable-two-batch-overlap enable-single-batch-overlap enable-lmcache enable-flexkv
disaggregation-decode-enable-radix-cache disaggregation-decode-enable-offload-kvcache
encoder-only language-only enable-adaptive-dispatch-to-encoder enable-pdmux
weight-loader-disable-mmap weight-loader-prefetch-checkpoints
weight-loader-drop-cache-after-load remote-instance-weight-loader-start-seed-via-transfer-engine
delete-ckpt-after-loading checkpoint-engine-wait-weights-before-ready enable-prefill-delayer
enable-deterministic-inference enable-dynamic-batch-tokenizer enable-tokenizer-batch-encode
disable-tokenizer-batch-decode enable-memory-saver enable-weights-cpu-backup
enable-draft-weights-cpu-backup enable-custom-logit-processor enable-return-hidden-states
enable-return-routed-experts enable-return-indexer-topk disable-outlines-disk-cache enable-mis
stream-output prefill-round-robin-balance collect-tokens-histogram disable-cuda-graph
enable-breakable-cuda-graph disable-piecewise-cuda-graph enforce-piecewise-cuda-graph
enable-dsa-prefill-context-parallel enable-nsa-prefill-context-parallel
enable-prefill-context-parallel enable-flashinfer-allreduce-fusion
""".split()  # noqa: SIM905 - a table to be read
)
"""Flags without a value."""

VALUES = frozenset(
    """
model-path tokenizer-path tokenizer-mode tokenizer-backend tokenizer-worker-num
detokenizer-worker-num load-format model-loader-extra-config context-length revision model-impl
model-config-parser json-model-override-args dtype quantization quantization-param-path
kv-cache-dtype modelopt-quant modelopt-checkpoint-restore-path modelopt-checkpoint-save-path
modelopt-export-path rl-quant-profile mem-fraction-static max-running-requests
max-queued-requests max-total-tokens chunked-prefill-size max-prefill-tokens
prefill-max-requests schedule-policy default-priority-value
priority-scheduling-preemption-threshold retraction-policy schedule-conservativeness page-size
swa-full-tokens-ratio radix-eviction-policy num-continuous-decode-steps scheduler-recv-interval
nccl-port dist-timeout dist-init-addr nnodes node-rank tp-size dcp-size pp-size
pp-max-micro-batch-size pp-async-batch-depth dp-size load-balance-method attn-cp-size
moe-dp-size cp-strategy device base-gpu-id gpu-id-step random-seed watchdog-timeout
soft-watchdog-timeout host port fastapi-root-path grpc-port sidecar sidecar-args warmups
ssl-keyfile ssl-certfile ssl-ca-certs ssl-keyfile-password api-key admin-api-key
served-model-name weight-version chat-template hf-chat-template-name completion-template
file-storage-path default-chat-template-kwargs tool-server sampling-defaults
asr-max-buffer-seconds asr-max-concurrent-sessions preferred-sampling-params stream-interval
batch-notify-size log-level log-level-http log-requests-level log-requests-format
crash-dump-folder smg-http-sidecar-port load-snapshot-publish-interval
tokenizer-metrics-custom-labels-header extra-metric-labels gc-warning-threshold-secs
decode-log-interval kv-events-config trace-modules otlp-traces-endpoint
export-metrics-to-file-dir constrained-json-whitespace-pattern attention-backend
decode-attention-backend prefill-attention-backend sampling-backend grammar-backend
radix-cache-backend mm-attention-backend fp8-gemm-backend fp4-gemm-backend bf16-gemm-backend
dsa-prefill-backend dsa-decode-backend dsa-paged-mqa-logits-backend dsa-topk-backend
mamba-backend cuda-graph-config cuda-graph-backend-decode cuda-graph-backend-prefill
cuda-graph-max-bs-decode cuda-graph-max-bs-prefill cuda-graph-tc-compiler
triton-attention-num-kv-splits triton-attention-split-tile-size
flashinfer-allreduce-fusion-backend torch-compile-max-bs torchao-config speculative-algorithm
speculative-draft-model-path speculative-draft-model-revision speculative-draft-load-format
speculative-num-steps speculative-eagle-topk speculative-num-draft-tokens
speculative-dflash-block-size speculative-dspark-block-size speculative-dspark-sps-table-path
speculative-dspark-confidence-sts-path speculative-accept-threshold-single
speculative-accept-threshold-acc speculative-token-map speculative-attention-mode
speculative-draft-attention-backend speculative-draft-window-size speculative-moe-runner-backend
speculative-moe-a2a-backend speculative-draft-model-quantization speculative-adaptive-config
decoupled-spec-bind-endpoint decoupled-spec-connect-endpoints decoupled-spec-rank
decoupled-spec-role spec-trace-dir speculative-ngram-min-bfs-breadth
speculative-ngram-max-bfs-breadth speculative-ngram-match-type speculative-ngram-max-trie-depth
speculative-ngram-capacity speculative-ngram-external-corpus-path
speculative-ngram-external-sam-budget speculative-ngram-external-corpus-max-tokens ep-size
moe-a2a-backend moe-runner-backend flashinfer-mxfp4-moe-precision deepep-mode fuseep-mode
deepep-dispatcher-output-dtype ep-num-redundant-experts ep-dispatch-algorithm
init-expert-location eplb-algorithm eplb-rebalance-num-iterations
eplb-rebalance-layers-per-chunk eplb-min-rebalancing-utilization-threshold
expert-distribution-recorder-mode expert-distribution-recorder-buffer-size deepep-config
moe-dense-tp-size elastic-ep-backend mooncake-ib-device elastic-ep-join-mode
elastic-ep-join-rank-offset elastic-ep-initial-size max-ep-size elastic-ep-scale-timeout
max-mamba-cache-size mamba-ssm-dtype mamba-cache-philox-rounds mamba-full-memory-ratio
mamba-radix-cache-strategy mamba-track-interval int8-mamba-ckpt-size linear-attn-backend
linear-attn-decode-backend linear-attn-prefill-backend linear-replayssm-cache-len hicache-ratio
hicache-size hicache-write-policy hicache-io-backend hicache-mem-layout hicache-storage-backend
hicache-storage-prefetch-policy hicache-storage-backend-extra-config hisparse-config
mm-process-config limit-mm-data-per-request mm-feature-transport max-lora-rank max-loaded-loras
max-loras-per-batch lora-eviction-policy lora-backend max-lora-chunk-size
lora-drain-wait-threshold tbo-token-distribution-threshold cpu-offload-gb offload-group-size
offload-num-in-group offload-prefetch-step offload-mode lmcache-config-file flexkv-config-file
kt-weight-path kt-method kt-cpuinfer kt-threadpool-count kt-num-gpu-experts
kt-max-deferred-experts-per-token dllm-algorithm dllm-algorithm-config disaggregation-mode
disaggregation-transfer-backend disaggregation-bootstrap-port disaggregation-ib-device
num-reserved-decode-tokens disaggregation-decode-extra-slots
disaggregation-decode-polling-interval optimistic-prefill-attempts encoder-transfer-backend
encoder-bootstrap-port pdmux-config-path sm-group-num weight-loader-prefetch-num-threads
remote-instance-weight-loader-seed-instance-ip
remote-instance-weight-loader-seed-instance-service-port
remote-instance-weight-loader-send-weights-group-ports remote-instance-weight-loader-backend
engine-info-bootstrap-port modelexpress-config download-dir model-checksum decrypted-config-file
decrypted-draft-config-file prefill-delayer-max-delay-passes
prefill-delayer-token-usage-low-watermark prefill-delayer-queue-min-ratio
prefill-delayer-max-delay-ms min-free-slots-delay rl-on-policy-target kv-canary
kv-canary-sweep-interval dynamic-batch-tokenizer-batch-size
dynamic-batch-tokenizer-batch-timeout debug-tensor-dump-output-folder
debug-tensor-dump-input-file forward-hooks msprobe-dump-config reasoning-parser tool-call-parser
kv-canary-real-data config nsa-prefill-backend nsa-decode-backend mamba-scheduler-strategy
cuda-graph-max-bs piecewise-cuda-graph-compiler piecewise-cuda-graph-max-tokens
dsa-prefill-cp-mode nsa-prefill-cp-mode prefill-cp-mode
""".split()  # noqa: SIM905 - a table to be read
)
"""Flags with one value."""

LISTS = frozenset(
    """
numa-node gc-threshold log-requests-target uvicorn-access-log-exclude-prefixes
tokenizer-metrics-allowed-custom-labels bucket-time-to-first-token bucket-inter-token-latency
bucket-e2e-request-latency prompt-tokens-buckets generation-tokens-buckets cuda-graph-bs-decode
cuda-graph-bs-prefill lora-target-modules lora-paths encoder-urls encoder-register-urls
custom-weight-loader prefill-delayer-forward-passes-buckets prefill-delayer-wait-seconds-buckets
debug-tensor-dump-layers cuda-graph-bs piecewise-cuda-graph-tokens
""".split()  # noqa: SIM905 - a table to be read
)
"""Flags with any number of values."""
